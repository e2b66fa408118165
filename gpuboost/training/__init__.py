"""A training, in the order that a table walks through it.

    loop        train(): rounds, evaluations and callbacks; stands above Booster
    adopt       the parameters that given ones and a model to go on from come to
    start       checks of the table, the empty model, its rows on the backend
    running     one round after another, and the model that takes them in
    watch       margins of the other matrices that are evaluated
    dart        trees that a round leaves out
    statistics  target statistics beside columns of categories
    checkpoint  what it takes to go on after a kill
    evaluate    metrics of matrices
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuboost.training.loop import boost_rounds as boost_rounds
    from gpuboost.training.loop import check_arguments as check_arguments
    from gpuboost.training.loop import train as train

__all__ = ["boost_rounds", "check_arguments", "train"]


def __getattr__(name: str) -> Any:
    """What loop offers, loaded when first used: it builds on Booster, which builds on the other rooms."""
    if name in __all__:
        from gpuboost.training import loop

        return getattr(loop, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
