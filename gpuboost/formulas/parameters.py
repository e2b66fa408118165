"""Formulas with parameters: an object that stands for one, and the name that says the same in text, "focal@gamma=1.5"."""

import math
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib import import_module
from operator import attrgetter
from pickle import PicklingError
from typing import Any

__all__ = ["Parametrised", "check_name", "parse_arguments", "split_arguments", "with_arguments"]


class Parametrised:
    """A registered formula with values of its parameters. Called, it is the user's function.

    registered_name : what parameters of training take in its place.
    """

    def __init__(self, cls: Any, find: Callable[[str], Any], given: dict[str, float] | None = None) -> None:
        """cls : the class that is registered, with its name, formula and defaults. find : the class of a name."""
        function = cls.formula.function
        self.__wrapped__, self.__name__, self.__doc__ = function, function.__name__, function.__doc__
        self._cls, self._find, self._given = cls, find, given or {}

    def using(self, **parameters: float) -> "Parametrised":
        """The same with other values. Raises ValueError for a name that it does not have, or what is no number."""
        checked = parse_arguments(self._cls.registered, parameters.items(), self._cls.defaults)
        return Parametrised(self._cls, self._find, {**self._given, **{name: checked[name] for name in parameters}})

    @property
    def registered_name(self) -> str:
        """Raises ValueError where another function has been registered under the name since."""
        if self._find(self._cls.registered) is not self._cls:
            raise ValueError(f"{self._cls.registered!r} has been defined anew since. Use the new one, or give each its name=.")
        return with_arguments(self._cls.registered, self._given, self._cls.defaults)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.__wrapped__(*arguments, **{**self._given, **named})

    def __deepcopy__(self, memo: dict[int, Any]) -> "Parametrised":
        return self  # it never changes

    def __reduce__(self) -> tuple[Any, ...]:
        if "<locals>" in self.__wrapped__.__qualname__:
            where = "is defined inside a function, where no other process finds it"
            raise PicklingError(f"{self.__name__!r} {where}. Define it at the top of a module.")
        return _found, (self.__wrapped__.__module__, self.__wrapped__.__qualname__, self._given)

    def __repr__(self) -> str:
        return self.registered_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parametrised) and self.registered_name == other.registered_name

    def __hash__(self) -> int:
        return hash(self.registered_name)


def _found(module: str, name: str, given: dict[str, float]) -> "Parametrised":
    """A pickled one: that of the module that defines it."""
    return attrgetter(name)(import_module(module)).using(**given)


def check_name(name: str) -> str:
    """Raises ValueError for what could not be told from a name with parameters."""
    if not name or "@" in name or "," in name:
        raise ValueError(f"name must have neither @ nor comma, got {name!r}.")
    return name


def with_arguments(name: str, given: dict[str, float], defaults: dict[str, float]) -> str:
    """The one name of a formula with these values: those that are not the defaults, in their order."""
    others = {key: given[key] for key in defaults if given.get(key, defaults[key]) != defaults[key]}
    return name + ("@" + ",".join(f"{key}={float(value)!r}" for key, value in others.items()) if others else "")


def split_arguments(text: str, defaults: dict[str, float]) -> list[tuple[str, str]]:
    """(name, number) of each in "gamma=1.5,alpha=0.25"; one number alone is the first's."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) == 1 and "=" not in parts[0] and defaults:
        return [(next(iter(defaults)), parts[0])]
    return [(key.strip(), number.strip()) for key, _, number in (part.partition("=") for part in parts)]


def parse_arguments(name: str, given: Iterable[tuple[str, Any]], defaults: dict[str, float]) -> dict[str, float]:
    """All values of a formula's parameters. Raises ValueError for one that it does not have, or that is no finite number."""
    values = dict(defaults)
    for key, number in given:
        if key not in defaults:
            close = get_close_matches(key, defaults, n=1)
            has = f"It has {', '.join(defaults)}." if defaults else "It has none."
            raise ValueError(f"{name} has no parameter {key!r}. {f'Did you mean {close[0]!r}?' if close else has}")
        try:
            values[key] = float(number)
        except (TypeError, ValueError):
            values[key] = math.nan
        if not math.isfinite(values[key]):
            raise ValueError(f"{name}: {key} must be a finite number, got {number!r}.")
    return values
