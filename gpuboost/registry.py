"""Names of one kind of thing, such as objectives: each class registers itself under its name, in a file of one folder."""

import sys
from collections.abc import Collection
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import Generic, TypeVar

from gpuboost.errors import not_built

__all__ = ["Registry"]

Kind = TypeVar("Kind")


class Registry(Generic[Kind]):
    """Classes by name, found in the files of a package when they are first asked for.

    parameter : of training that holds such a name, for errors. package : whose modules register their classes; None where only
        users do.
    planned : names known from XGBoost that have no class yet. otherwise : what to do about a name like no other, a sentence.
    """

    def __init__(self, parameter: str, package: str | None, *, planned: Collection[str] = (), otherwise: str = "") -> None:
        self.parameter, self.planned, self.otherwise = parameter, planned, otherwise
        self._package = package  # None once its modules are imported
        self._classes: dict[str, type[Kind]] = {}

    def register(self, name: str, cls: type[Kind]) -> None:
        """Make a class known under a name.

        The same definition run once more, as in a notebook, replaces the class. Raises ValueError where another has the name.
        """
        known = self._classes.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(
                f"{self.parameter} {name!r} is {known.__module__}.{known.__qualname__} already. "
                f"Give {cls.__module__}.{cls.__qualname__} another name."
            )
        self._classes[name] = cls

    def names(self) -> list[str]:
        """All names that have a class, sorted."""
        self._load()
        return sorted(self._classes)

    def find(self, name: str) -> type[Kind] | None:
        """The class of a name; None where there is none."""
        self._load()
        return self._classes.get(name)

    def get(self, name: str, given: str | None = None) -> type[Kind]:
        """The class of a name.

        given : what the user wrote, for errors, where that is more than the name ("error@0.7").
        Raises NotImplementedError for a planned name, ValueError with the nearest name and the list for any other.
        """
        if (found := self.find(name)) is not None:
            return found
        given, names = given or name, ", ".join(self.names())
        if name in self.planned:
            raise not_built(f"{self.parameter}={given!r}", f"Built: {names}.")
        close = get_close_matches(given, self.names(), n=1)
        hint = f"Did you mean {close[0]!r}?" if close else self.otherwise
        raise ValueError(f"{self.parameter} must be one of {names}; got {given!r}. {hint}")

    def _load(self) -> None:
        package = self._package  # read once: another thread may finish meanwhile
        if package is not None:
            for module in iter_modules(sys.modules[package].__path__):
                import_module(f"{package}.{module.name}")
            self._package = None
