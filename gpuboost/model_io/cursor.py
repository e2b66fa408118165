"""A value inside an untrusted document together with its place there, and the checks that turn it into a typed one."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from gpuboost.errors import ModelFormatError

__all__ = ["MAX_DEPTH", "Cursor", "join_floats32", "join_integers"]

MAX_DEPTH = 64  # arrays and objects inside each other that the readers follow; a model needs 8

INTEGER_TEXT = re.compile(r"-?[0-9]{1,18}")
JSON_NAMES = {dict: "an object", list: "an array", str: "a string", int: "an integer", float: "a number", bool: "a boolean"}
JSON_NAMES |= {type(None): "null", np.ndarray: "an array of numbers"}  # the latter from UBJSON


class Cursor:
    """One value of the document. Every method that reads it raises ModelFormatError, naming the place, if it does not fit.

    >>> Cursor({"learner": {"name": 1}})["learner"]["name"].string()
    Traceback (most recent call last):
    gpuboost.errors.ModelFormatError: learner.name: must be a string, got an integer.
    """

    def __init__(self, value: Any, place: str = "", above: "Cursor | None" = None):
        """place : within ``above``; it is asked for in messages only."""
        self.value, self._place, self._above = value, place, above

    @property
    def place(self) -> str:
        return self._place if self._above is None else f"{self._above.place}{self._place}".lstrip(".")

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
        return Cursor(members[key], f".{key}", self) if key in members else None

    def __getitem__(self, key: str) -> "Cursor":
        member = self.get(key)
        if member is None:
            self.fail(f"has no {key!r}, which a model file needs.")
        return member

    def entries(self) -> Iterator["Cursor"]:
        """The entries of an array, in order."""
        return (Cursor(value, f"[{i}]", self) for i, value in enumerate(self._typed(list)))

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
        ends: tuple[Any, ...] = ()
        if len(values):
            ends = (values.min(), values.max()) if isinstance(values, np.ndarray) else (min(values), max(values))
        if not all(low <= end <= high for end in ends):
            index = next(i for i, value in enumerate(values) if not low <= value <= high)
            self.fail(f"must be between {low} and {high}, got {values[index]}.", index)
        return np.array(values, dtype=np.int64)

    def floats(self, length: int | None, counts: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.float64]:
        """An array of finite numbers, with ``length`` entries unless that is None. Returns float64.

        counts : bool (length,), where they must be finite; elsewhere 0 stands for those that are not."""
        values = self._numbers(length, {int, float}, "a number")
        try:
            array = np.array(values, dtype=np.float64)
        except OverflowError:
            self.fail("holds an integer that does not fit a 64-bit float.")
        if counts is not None:
            array[~counts & ~np.isfinite(array)] = 0
        if not np.isfinite(array).all():
            index = int(np.isfinite(array).argmin())
            self.fail(f"must be finite, got {array[index]}.", index)
        return array

    def floats32(self, length: int, counts: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.float32]:
        """An array of ``length`` numbers that are finite as float32 too. Returns float32. counts : as floats."""
        array = self.floats(length, counts)
        with np.errstate(over="ignore"):
            rounded = array.astype(np.float32)
        if not np.isfinite(rounded).all():
            index = int(np.isfinite(rounded).argmin())
            self.fail(f"must be finite in 32 bits, got {array[index]:g}.", index)
        return rounded

    def _numbers(self, length: int | None, kinds: set[type], wanted: str) -> list[Any] | npt.NDArray[Any]:
        # JSON brings lists. UBJSON and the document in memory (schema.to_document) bring arrays, whose entries have one type.
        values = self.value if isinstance(self.value, np.ndarray) else self._typed(list)
        if length is not None and len(values) != length:
            self.fail(f"must have {length} entries, got {len(values)}.")
        entries = values if isinstance(values, list) else values[:1].tolist()
        if not set(map(type, entries)) <= kinds:
            index = next(i for i, entry in enumerate(entries) if type(entry) not in kinds)
            self.fail(f"must be {wanted}, got {JSON_NAMES.get(type(entries[index]), repr(entries[index]))}.", index)
        return values


def join_integers(
    cursors: Sequence[Cursor], lengths: Sequence[int], low: int, high: Sequence[int], *, or_booleans: bool = False
) -> npt.NDArray[np.int64]:
    """Cursor.integers of several arrays, one behind another. high : of each. Where something is wrong, one array after another is
    read, which says what."""
    joined = _joined(cursors, lengths, {int, bool} if or_booleans else {int}, "iu")
    if joined is not None and len(joined):
        ends = (joined.min(), joined.max()) if isinstance(joined, np.ndarray) else (min(joined), max(joined))
        if low <= ends[0] and ends[1] <= max(high):
            numbers = np.array(joined, np.int64)
            if (numbers <= np.repeat(high, lengths)).all():
                return numbers
    each = zip(cursors, lengths, high)
    return np.concatenate([cursor.integers(n, low, most, or_booleans=or_booleans) for cursor, n, most in each])


def join_floats32(
    cursors: Sequence[Cursor], lengths: Sequence[int], counts: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.float32]:
    """Cursor.floats32 of several arrays, one behind another; so is counts."""
    joined = _joined(cursors, lengths, {int, float}, "f")
    if joined is not None:
        with np.errstate(over="ignore"), suppress(OverflowError):  # of integers that no float holds
            array = np.asarray(joined, None if isinstance(joined, np.ndarray) else np.float64)
            if counts is not None:
                array[~counts & ~np.isfinite(array)] = 0
            rounded = array.astype(np.float32, copy=False)
            if np.isfinite(rounded).all():
                return rounded
    ends = np.cumsum(lengths)
    own = [None if counts is None else counts[end - n : end] for end, n in zip(ends, lengths)]
    return np.concatenate([cursor.floats32(n, part) for cursor, n, part in zip(cursors, lengths, own)])


def _joined(
    cursors: Sequence[Cursor], lengths: Sequence[int], types: set[type], kinds: str
) -> npt.NDArray[Any] | list[Any] | None:
    """What several cursors hold: arrays of these kinds, or lists of these types, of these lengths; None: something else."""
    values = [cursor.value for cursor in cursors]
    if all(type(v) is np.ndarray and v.dtype.kind in kinds and len(v) == n for v, n in zip(values, lengths)):
        return np.concatenate(values)
    if all(type(v) is list and len(v) == n for v, n in zip(values, lengths)):
        entries = list(chain.from_iterable(values))
        return entries if set(map(type, entries)) <= types else None
    return None
