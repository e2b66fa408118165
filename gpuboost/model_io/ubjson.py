"""UBJSON as XGBoost writes it: bytes from and to plain Python data whose arrays of numbers are NumPy arrays.

    value   one type byte, then its content; numbers are big-endian
    numbers i U I l L: int8, uint8, int16, int32, int64.   d D: float32, float64
    Z T F   null, true, false
    S       L, int64 length, UTF-8
    { ... } members without order: L, int64 length, UTF-8 name, value
    [ ... ] values;   [#L count: that many values, no closing bracket
    [$t#L   count: that many numbers of type t, one after another without type bytes

Of UBJSON's other forms (N, C, H, counted objects, lengths of another type) XGBoost writes none, and they are refused. XGBoost
casts without asking: it wants arrays of numbers of exactly the types that it writes itself (see schema.to_document).
"""

import struct
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NoReturn

import numpy as np

from gpuboost.errors import ModelFormatError
from gpuboost.model_io.cursor import MAX_DEPTH

__all__ = ["read_ubjson", "write_ubjson"]

NUMBERS = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q", b"d": ">f", b"D": ">d"}
CONSTANTS = {b"Z": None, b"T": True, b"F": False}
DTYPES = {kind: (np.dtype(form), np.dtype(form).newbyteorder("=")) for kind, form in NUMBERS.items()}
ARRAYS = {DTYPES[kind][1]: (b"[$" + kind + b"#", DTYPES[kind][0]) for kind in (b"i", b"U", b"l", b"L", b"d")}
FORMS = {kind: struct.Struct(form) for kind, form in NUMBERS.items()}
LENGTH = FORMS[b"L"]
LENGTH_OF = struct.Struct(">cq")
ARRAY_HEADS = {b"[$" + kind + b"#L": kind for kind in NUMBERS}


def write_ubjson(value: Any) -> bytes:
    """The bytes of dicts, lists, strings, integers, numbers of 32 bits and NumPy arrays of int8, uint8, int32, int64 or float32.

    Members are sorted by name and an integer has the smallest type that holds it, so equal values give equal bytes.

    Raises ValueError for a number that is not finite.
    """
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _write(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, dict):
        parts.append(b"{")
        for key in sorted(value):
            parts.append(_name(key))
            _write(value[key], parts)
        parts.append(b"}")
    elif isinstance(value, list):
        parts.append(b"[#" + _length(value))
        if len(value) > 1 and _are_alike(value):
            columns = _columns_of(b"", value)
            rows = [b""] * (len(columns) * len(value))
            for k, column in enumerate(columns):
                rows[k :: len(columns)] = column
            parts += rows
        else:
            for item in value:
                _write(item, parts)
    elif isinstance(value, str):
        parts.append(b"S" + _text(value))
    elif isinstance(value, np.ndarray) and value.dtype in ARRAYS:
        for column in _columns_of(b"", [value]):
            parts += column
    elif type(value) is int:
        kind = next(kind for kind, bits in ((b"i", 7), (b"I", 15), (b"l", 31), (b"L", 63)) if -(2**bits) <= value < 2**bits)
        parts.append(kind + FORMS[kind].pack(value))
    elif type(value) is float and np.isfinite(value):
        parts.append(b"d" + FORMS[b"d"].pack(value))
    else:
        raise TypeError(f"{type(value).__name__} cannot be stored in a UBJSON model file.")


def _are_alike(values: list[Any]) -> bool:
    """Whether these are objects with members of the same names, such as a model's trees."""
    return all(type(value) is dict and value.keys() == values[0].keys() for value in values)


def _columns_of(name: bytes, values: list[Any]) -> list[list[bytes]]:
    """What each of these values is written as, behind a name: in one part or several, of which one after another is made for all
    of them at once. 2,000 trees, member after member 0.037 s instead of 0.09."""
    if _are_alike(values):
        columns = [[name + b"{"] * len(values)]
        for key in sorted(values[0]):
            columns += _columns_of(_name(key), [value[key] for value in values])
        return [*columns, [b"}"] * len(values)]
    dtype = values[0].dtype if type(values[0]) is np.ndarray else None
    if dtype not in ARRAYS or not all(type(value) is np.ndarray and value.dtype == dtype for value in values):
        written: list[bytes] = []
        for value in values:
            parts = [name]
            _write(value, parts)
            written.append(b"".join(parts))
        return [written]
    joined, (head, stored_as) = np.concatenate(values), ARRAYS[dtype]
    if joined.dtype.kind == "f" and not np.isfinite(joined).all():
        raise ValueError("a number in the model is not finite, so it cannot be stored in a model file.")
    stored, size, name = joined.astype(stored_as).tobytes(), stored_as.itemsize, name + head
    bounds = [0, *accumulate(size * len(value) for value in values)]
    return [[name + _length(value) for value in values], [stored[begin:end] for begin, end in pairwise(bounds)]]


def _length(value: Any) -> bytes:
    return LENGTH_OF.pack(b"L", len(value))


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")  # as JSON files do
    return _length(data) + data


_name = lru_cache(512)(_text)  # all trees have members of the same names


def read_ubjson(data: bytes) -> Any:
    """What the bytes hold. Nothing is allocated for a length that the bytes left do not cover.

    Raises ModelFormatError, naming the place in the document and the byte, where they are malformed: cut off, nested deeper
    than MAX_DEPTH, with a name twice in one object, with bytes after the end.
    """
    reader = _Reader(data)
    try:
        value = reader.value()
        if reader.at < len(data):
            reader.fail(f"{len(data) - reader.at} bytes follow its end.")
    except _Fault as fault:
        place = "".join(reversed(fault.steps)).lstrip(".") or "document"
        raise ModelFormatError(f"{place}: {fault.args[0]} (UBJSON, byte {reader.at})") from None
    return value


class _Fault(Exception):
    """steps : from the value that is malformed upwards, ".name" and "[index]"."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.steps: list[str] = []


class _Reader:
    def __init__(self, data: bytes):
        self.data = data
        self.at = 0
        self.depth = 0  # of the value under way

    def fail(self, message: str) -> NoReturn:
        raise _Fault(message)

    def take(self, n_bytes: int) -> bytes:
        if n_bytes > len(self.data) - self.at:
            self.fail(f"needs {n_bytes} bytes where {len(self.data) - self.at} are left.")
        self.at += n_bytes
        return self.data[self.at - n_bytes : self.at]

    def expect(self, token: bytes) -> None:
        found = self.data[self.at : self.at + len(token)]
        if found != token:
            self.fail(f"must go on with {token!r}, got {found!r}.")
        self.at += len(token)

    def number(self, kind: bytes) -> Any:
        form = FORMS[kind]
        return form.unpack(self.take(form.size))[0]

    def length(self, item_bytes: int = 1) -> int:
        """A length in items of at least that many bytes each."""
        self.expect(b"L")
        length = self.number(b"L")
        left = len(self.data) - self.at
        if not 0 <= length * item_bytes <= left:
            self.fail(f"has length {length}, which does not fit the {left} bytes left.")
        return length

    def text(self) -> str:
        begin, size, data = self.at + 9, len(self.data), None
        if self.data[self.at : self.at + 1] == b"L" and begin <= size:  # what length() and take() do, in one go
            end = begin + LENGTH.unpack_from(self.data, begin - 8)[0]
            if begin <= end <= size:
                self.at, data = end, self.data[begin:end]
        if data is None:
            data = self.take(self.length())
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            self.fail(f"not UTF-8: {error.reason}.")

    def value(self) -> Any:
        kind = self.take(1)
        if kind == b"{":
            return self.object()
        if kind == b"[":
            return self.array()
        if kind == b"S":
            return self.text()
        if kind in CONSTANTS:
            return CONSTANTS[kind]
        if kind not in NUMBERS:
            self.fail(f"has the type {kind!r}, which no model file holds.")
        return self.number(kind)

    def inner(self, step: str | int) -> Any:
        """The value that is one step deeper: a name or an index."""
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                self.fail(f"nested deeper than {MAX_DEPTH}.")
            value = self.value()
        except _Fault as fault:
            fault.steps.append(f".{step}" if isinstance(step, str) else f"[{step}]")
            raise
        self.depth -= 1
        return value

    def object(self) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while self.data[self.at : self.at + 1] != b"}":
            key = self.text()
            if key in members:
                self.fail(f"has {key!r:.60} twice.")
            numbers = self.numbers_at_once()
            members[key] = self.inner(key) if numbers is None else numbers
        self.at += 1
        return members

    def array(self) -> Any:
        if self.skip(b"$"):
            kind = self.take(1)
            if kind not in NUMBERS:
                self.fail(f"must be an array of numbers, got the type {kind!r}.")
            self.expect(b"#")
            stored, native = DTYPES[kind]
            return np.frombuffer(self.take(self.length(stored.itemsize) * stored.itemsize), stored).astype(native)
        if self.skip(b"#"):
            return [self.inner(i) for i in range(self.length())]
        values: list[Any] = []
        while not self.skip(b"]"):
            values.append(self.inner(len(values)))
        return values

    def numbers_at_once(self) -> np.ndarray | None:
        """What array() gives of numbers, where nothing is wrong, in one go: a file has thousands. None for whatever else."""
        kind, begin = ARRAY_HEADS.get(self.data[self.at : self.at + 5]), self.at + 13
        if kind is not None and begin <= len(self.data):
            (stored, native), length = DTYPES[kind], LENGTH.unpack_from(self.data, begin - 8)[0]
            if 0 <= length * stored.itemsize <= len(self.data) - begin:
                self.at = begin + length * stored.itemsize
                return np.frombuffer(self.data, stored, length, begin).astype(native)
        return None

    def skip(self, token: bytes) -> bool:
        """Whether the next byte is this one, which is then taken."""
        is_next = self.data[self.at : self.at + 1] == token
        self.at += is_next
        return is_next
