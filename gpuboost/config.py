"""The global configuration, and the messages that its verbosity lets through.

verbosity : what is said while training.
    0  silent
    1  warnings, as Python's UserWarning, and the notice of a first compilation (default)
    2  information: one line per training (device, threads, rows, columns, bins), seconds per stage
    3  debugging: one line per round
nthread : CPU threads where no parameter says otherwise; 0, the default, means all cores, or what NUMBA_NUM_THREADS or
    OMP_NUM_THREADS say.
unseen_categories : what values of a category are that a model's training has not met: "missing", with a warning (default), or an
    "error" (ValueError).
category_container : where a model file has the categories: "gpuboost", in an attribute that other readers ignore (default), or
    "xgboost", also in the container by which XGBoost 3.1 and later match them by value (ASCII text, and integers, which must then
    be of 64 bits there, too); Treelite refuses such a file.

Each thread and each asynchronous task has its own configuration; a new thread starts from the defaults.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from gpuboost.output import say, warn_user
from gpuboost.params import check_param

__all__ = ["config_context", "get_config", "log", "logs", "set_config", "verbosity_context", "warn"]

_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"verbosity": 1, "nthread": 0, "unseen_categories": "missing", "category_container": "gpuboost"}
)
CHOICES = {"unseen_categories": ("missing", "error"), "category_container": ("gpuboost", "xgboost")}
_settings: ContextVar[Mapping[str, Any]] = ContextVar("gpuboost_config", default=_DEFAULTS)


def get_config() -> dict[str, Any]:
    """A copy of the current configuration."""
    return dict(_settings.get())


def set_config(**settings: Any) -> None:
    """Change the named settings and keep the others, as those that are given as None.

    Raises ValueError for an unknown name or a value that is not allowed; nothing is changed then.
    """
    _settings.set(_merged(settings))


@contextmanager
def config_context(**settings: Any) -> Iterator[None]:
    """set_config for the length of a with block; afterwards the configuration is as it was before."""
    token = _settings.set(_merged(settings))
    try:
        yield
    finally:
        _settings.reset(token)


def verbosity_context(level: int | None) -> AbstractContextManager[None]:
    """Another verbosity for the length of a with block; None keeps the current one."""
    return _Verbosity(level)


class _Verbosity(AbstractContextManager[None]):
    """config_context(verbosity=level), in a tenth of the time where nothing changes: every round of a training has one."""

    def __init__(self, level: int | None) -> None:
        self._level = level

    def __enter__(self) -> None:
        level, current = self._level, _settings.get()
        is_current = level is None or (type(level) is int and level == current["verbosity"])
        self._token = _settings.set(current if is_current else _merged({"verbosity": level}))

    def __exit__(self, *error: object) -> None:
        _settings.reset(self._token)


def logs(level: int) -> bool:
    """Whether the current verbosity is at least `level`."""
    return bool(_settings.get()["verbosity"] >= level)


def log(level: int, message: str) -> None:
    """Print "[gpuboost] message" to stderr when the current verbosity is at least `level`."""
    if logs(level):
        say(f"[gpuboost] {message}")


def warn(message: str) -> None:
    """A UserWarning when the current verbosity is at least 1, of the line outside this package that led here."""
    if logs(1):
        warn_user(message)


def _merged(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    merged = get_config()
    for name, value in settings.items():
        if name not in _DEFAULTS:
            close = get_close_matches(name, _DEFAULTS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Use one of {', '.join(_DEFAULTS)}."
            raise ValueError(f"unknown setting {name!r}. {hint}")
        if value is not None:
            merged[name] = _checked(name, value)
    return MappingProxyType(merged)


def _checked(name: str, value: Any) -> Any:
    if name not in CHOICES:
        return check_param(name, value)
    if not isinstance(value, str) or value not in CHOICES[name]:
        raise ValueError(f"{name} must be {' or '.join(map(repr, CHOICES[name]))}, got {value!r}.")
    return value
