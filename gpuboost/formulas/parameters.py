"""Formulas with parameters: an object that stands for one, and the name that says the same in text, "focal@gamma=1.5"."""

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from operator import attrgetter
from typing import Any

__all__ = ["Parametrised", "parse_arguments"]


class Parametrised:
    """A registered formula with values of its parameters. Called, it is the user's function.

    registered_name : what parameters of training take in its place.
    """

    def __init__(self, function: Callable[..., Any], name: str, defaults: dict[str, float], **given: float) -> None:
        self.__wrapped__, self.__name__, self.__doc__ = function, function.__name__, function.__doc__
        self._name, self._defaults, self._given = name, defaults, given

    def using(self, **parameters: float) -> "Parametrised":
        """The same with other values. Raises ValueError for a name that it does not have, or what is no number."""
        given = {**self._given, **parameters}
        parse_arguments(self._name, _text(given), self._defaults)
        return Parametrised(self.__wrapped__, self._name, self._defaults, **given)

    @property
    def registered_name(self) -> str:
        return self._name + ("@" + _text(self._given) if self._given else "")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.__wrapped__(*arguments, **{**self._given, **named})

    def __reduce__(self) -> tuple[Any, ...]:
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


def _text(given: dict[str, float]) -> str:
    return ",".join(f"{name}={value!r}" for name, value in given.items())


def parse_arguments(name: str, text: str, defaults: dict[str, float]) -> dict[str, float]:
    """Values of a formula's parameters from "gamma=1.5,alpha=0.25", or from one number alone for the first of them."""
    values = dict(defaults)
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, number = (word.strip() for word in part.partition("="))
        if not equals and defaults and part == text.strip():
            key, number = next(iter(defaults)), part
        if key not in defaults:
            close = get_close_matches(key, defaults, n=1)
            has = f"It has {', '.join(defaults)}." if defaults else "It has none."
            raise ValueError(f"{name} has no parameter {key!r}. {f'Did you mean {close[0]!r}?' if close else has}")
        try:
            values[key] = float(number)
        except ValueError:
            raise ValueError(f"{name}: {key} must be a number, got {number!r}.") from None
    return values
