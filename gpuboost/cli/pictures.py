"""Pictures of the command line: drawn by gpuboost.plotting, written to files of the kind that their names end in."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from gpuboost.errors import install
from gpuboost.paths import write_file

__all__ = ["check_picture", "draw_curves", "save_picture"]

KINDS = "png", "svg", "pdf"


def check_picture(path: str) -> None:
    """What would fail when the work is done fails before it. Raises ValueError, and ImportError without matplotlib."""
    if Path(path).suffix.removeprefix(".") not in KINDS:
        raise ValueError(f"a picture's name must end in .{', .'.join(KINDS)}, got {path!r}. Use picture.png, for example.")
    if not Path(path).resolve().parent.is_dir():
        raise ValueError(f"the folder of the picture {path!r} does not exist. Create it first.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError(f"pictures are drawn by matplotlib. Install it: {install('plot')}") from None


def draw_curves(history: Mapping[str, Mapping[str, list[float]]]) -> Any:
    """matplotlib axes for every metric, one below the other, with a curve for each table; the first of them."""
    import matplotlib.pyplot as plt

    from gpuboost.plotting import plot_metric

    metrics = list(dict.fromkeys(metric for of_data in history.values() for metric in of_data))
    _, axes = plt.subplots(len(metrics), squeeze=False, figsize=(6.4, 3.2 * len(metrics)), layout="constrained")
    for metric, ax in zip(metrics, axes[:, 0]):
        plot_metric(history, metric, ax=ax, title=None)
    return axes[0, 0]


def save_picture(axes: Any, path: str) -> None:
    """The figure that these axes belong to."""
    data = BytesIO()
    axes.figure.savefig(data, format=Path(path).suffix.removeprefix("."))
    write_file(path, data.getvalue())
