"""The exceptions that gpuboost raises beside Python's own ValueError, TypeError and MemoryError, and what they advise."""

__all__ = ["DISTRIBUTION", "DeviceNotFoundError", "ModelFormatError", "NotFittedError", "install", "not_built"]

DISTRIBUTION = "gpuboost-trees"  # what pip knows us by: on PyPI, gpuboost is another project, with a module of the same name


def install(extra: str) -> str:
    """The command that installs gpuboost with one of its extras (pyproject.toml)."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class ModelFormatError(ValueError):
    """A model file that is malformed; the message names the place inside the document."""


class DeviceNotFoundError(RuntimeError):
    """The GPU that was asked for, or the software to use it, is not there."""


class NotFittedError(ValueError, AttributeError):
    """Prediction or saving was asked of something that has no model yet (as scikit-learn's class of the same name)."""


def not_built(name: str, instead: str = "") -> NotImplementedError:
    """The error for a name of XGBoost's API that gpuboost knows but does not have yet."""
    return NotImplementedError(f"{name} is not built yet in gpuboost.{' ' + instead if instead else ''}")
