"""The exceptions that gpuboost raises beside Python's own ValueError, TypeError and MemoryError, and what they advise."""

__all__ = [
    "DISTRIBUTION", "DeviceNotFoundError", "ModelFormatError", "NotFittedError", "RowError", "from_other_library", "install",
    "kind_of", "not_built",
]  # fmt: skip

DISTRIBUTION = "gpuboost-trees"  # what pip knows us by: on PyPI, gpuboost is another project, with a module of the same name


def install(extra: str) -> str:
    """The command that installs gpuboost with one of its extras (pyproject.toml)."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def kind_of(value: object) -> str:
    """The type of what was given, for messages, with its library, whose classes may be called as ours: xgboost.DMatrix."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


def from_other_library(model: object) -> str:
    """For the end of a message: how a model of another library that writes XGBoost's files is read; nothing for other objects."""
    given = "" if hasattr(model, "save_raw") else ".get_booster()" if hasattr(model, "get_booster") else None
    return "" if given is None else f" Read it: gpuboost.Booster(model_file=model{given}.save_raw())."


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
