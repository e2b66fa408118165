"""Evaluation metrics by their XGBoost names. A new one joins by adding a file here that registers it."""

from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules

from gpuboost.errors import not_built
from gpuboost.metrics.base import Metric

__all__ = ["Metric", "get_metric", "metric_names", "register"]

_registry: dict[str, type[Metric]] = {}

_PLANNED = """rmsle mape mphe aucpr pre ndcg map quantile expectile poisson-nloglik gamma-nloglik gamma-deviance tweedie-nloglik
cox-nloglik aft-nloglik interval-regression-accuracy""".split()


def register(metric: type[Metric]) -> type[Metric]:
    """Class decorator: make a metric known under its family name."""
    _registry[metric.family] = metric
    return metric


def metric_names() -> list[str]:
    """The names that evaluate, sorted."""
    _load()
    return sorted(_registry)


def get_metric(name: str) -> Metric:
    """The metric of this name; "family@argument" passes the argument on."""
    _load()
    family, at, argument = name.partition("@")
    if family in _registry:
        return _registry[family](argument if at else None)
    if family.rstrip("-") in _PLANNED:
        raise not_built(f"eval_metric={name!r}", f"Built: {', '.join(metric_names())}.")
    close = get_close_matches(name, metric_names(), n=1)
    hint = f"Did you mean {close[0]!r}?" if close else "Pass a function as custom_metric to train()."
    raise ValueError(f"eval_metric must be one of {', '.join(metric_names())}; got {name!r}. {hint}")


def _load() -> None:
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
