"""A value inside an untrusted document together with its place there, and the checks that turn it into a typed one."""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from gpuboost.errors import ModelFormatError

__all__ = ["Cursor"]

INTEGER_TEXT = re.compile(r"-?[0-9]{1,18}")
JSON_NAMES = {dict: "an object", list: "an array", str: "a string", int: "an integer", float: "a number", bool: "a boolean"}


class Cursor:
    """One value of the document. Every method that reads it raises ModelFormatError, naming the place, if it does not fit.

    >>> Cursor({"learner": {"name": 1}})["learner"]["name"].string()
    Traceback (most recent call last):
    gpuboost.errors.ModelFormatError: learner.name: must be a string, got an integer.
    """

    def __init__(self, value: Any, place: str = ""):
        self.value = value
        self.place = place

    def fail(self, message: str, index: int | None = None) -> NoReturn:
        """Raise ModelFormatError about this value, or about its entry ``index``."""
        place = (self.place or "document") + ("" if index is None else f"[{index}]")
        raise ModelFormatError(f"{place}: {message}")

    def _typed(self, kind: type) -> Any:
        if type(self.value) is not kind:
            self.fail(f"must be {JSON_NAMES[kind]}, got {JSON_NAMES.get(type(self.value), repr(self.value))}.")
        return self.value

    def get(self, key: str) -> "Cursor | None":
        """The member ``key`` of an object, or None where it is absent."""
        members = self._typed(dict)
        return Cursor(members[key], f"{self.place}.{key}".lstrip(".")) if key in members else None

    def __getitem__(self, key: str) -> "Cursor":
        member = self.get(key)
        if member is None:
            self.fail(f"has no {key!r}, which a model file needs.")
        return member

    def entries(self) -> Iterator["Cursor"]:
        """The entries of an array, in order."""
        return (Cursor(value, f"{self.place}[{i}]") for i, value in enumerate(self._typed(list)))

    def members(self) -> "dict[str, Cursor]":
        """The members of an object."""
        return {key: self[key] for key in self._typed(dict)}

    def string(self) -> str:
        return self._typed(str)

    def integer_text(self, low: int, high: int) -> int:
        """An integer from low to high written as a string, as XGBoost writes its parameters."""
        text = self.string()
        if not INTEGER_TEXT.fullmatch(text) or not low <= int(text) <= high:
            self.fail(f"must be an integer from {low} to {high} in a string, got {text!r:.40}.")
        return int(text)

    def integers(self, length: int | None, low: int, high: int, *, or_booleans: bool = False) -> npt.NDArray[np.int64]:
        """An array of integers from low to high, with ``length`` entries unless that is None. Returns int64."""
        values = self._numbers(length, {int, bool} if or_booleans else {int}, "an integer")
        if values and not (low <= min(values) and max(values) <= high):
            index = next(i for i, value in enumerate(values) if not low <= value <= high)
            self.fail(f"must be between {low} and {high}, got {values[index]}.", index)
        return np.array(values, dtype=np.int64)

    def floats(self, length: int) -> npt.NDArray[np.float64]:
        """An array of ``length`` numbers, none of them NaN. Returns float64."""
        values = self._numbers(length, {int, float}, "a number")
        try:
            array = np.array(values, dtype=np.float64)
        except OverflowError:
            self.fail("holds an integer that does not fit a 64-bit float.")
        if np.isnan(array).any():
            self.fail("must not be NaN.", int(np.isnan(array).argmax()))
        return array

    def _numbers(self, length: int | None, kinds: set[type], wanted: str) -> list[Any]:
        # The document in memory holds NumPy arrays (see schema.to_document), the one from a file holds lists.
        values = self.value.tolist() if isinstance(self.value, np.ndarray) else self._typed(list)
        if length is not None and len(values) != length:
            self.fail(f"must have {length} entries, got {len(values)}.")
        if not set(map(type, values)) <= kinds:
            index = next(i for i, value in enumerate(values) if type(value) not in kinds)
            self.fail(f"must be {wanted}, got {JSON_NAMES.get(type(values[index]), repr(values[index]))}.", index)
        return values
