"""The exceptions that gpuboost raises beside Python's own ValueError, TypeError and MemoryError, and what they advise."""

__all__ = ["DISTRIBUTION", "DeviceNotFoundError", "ModelFormatError", "NotFittedError", "RowError", "install", "not_built"]

DISTRIBUTION = "gpuboost-trees"  # what pip knows us by: on PyPI, gpuboost is another project, with a module of the same name


def install(extra: str) -> str:
    """The command that installs gpuboost with one of its extras (pyproject.toml)."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class ModelFormatError(ValueError):
    """A model file that is malformed; the message names the place inside the document."""


class RowError(ValueError):
    """A value that is not allowed in a row of a table. The message is before, "row 17", after.

    row : its number among the rows that were looked at; a text once it is known where they came from.
    """

    def __init__(self, before: str, row: int | str, after: str) -> None:
        super().__init__(f"{before}row {row}{after}")
        self.before, self.row, self.after = before, row, after

    def at(self, row: int | str) -> "RowError":
        """The same of a row that is called otherwise."""
        return RowError(self.before, row, self.after)

    def __reduce__(self) -> tuple[type["RowError"], tuple[str, int | str, str]]:
        return RowError, (self.before, self.row, self.after)


class DeviceNotFoundError(RuntimeError):
    """The GPU that was asked for, or the software to use it, is not there."""


class NotFittedError(ValueError, AttributeError):
    """Prediction or saving was asked of something that has no model yet (as scikit-learn's class of the same name)."""


def not_built(name: str, instead: str) -> NotImplementedError:
    """The error for a name of XGBoost's API that gpuboost knows but does not have yet."""
    return NotImplementedError(f"{name} is not built yet in gpuboost. {instead}")
