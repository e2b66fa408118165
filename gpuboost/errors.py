"""The exceptions that gpuboost raises beside Python's own ValueError, TypeError and MemoryError."""

__all__ = ["DeviceNotFoundError", "ModelFormatError", "NotFittedError", "not_built"]


class ModelFormatError(ValueError):
    """A model file that is malformed; the message names the place inside the document."""


class DeviceNotFoundError(RuntimeError):
    """The GPU that was asked for, or the software to use it, is not there."""


class NotFittedError(ValueError, AttributeError):
    """Prediction or saving was asked of something that has no model yet (as scikit-learn's class of the same name)."""


def not_built(name: str, instead: str = "") -> NotImplementedError:
    """The error for a name of XGBoost's API that gpuboost knows but does not have yet."""
    return NotImplementedError(f"{name} is not built yet in gpuboost.{' ' + instead if instead else ''}")
