"""The bytes of UBJSON: by hand, there and back, and what is refused."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuboost.errors import ModelFormatError
from gpuboost.model_io.ubjson import read_ubjson, write_ubjson


def length(n: int) -> bytes:
    return b"L" + struct.pack(">q", n)


def test_document_by_hand():
    data = (
        b"{" + length(1) + b"aS" + length(2) + b"\xc3\xa9"
        + length(1) + b"b[#" + length(3) + b"i\x01I\x00\xc8l\x00\x01\x00\x00"
        + length(1) + b"c[$d#" + length(2) + b"\x3f\x80\x00\x00\xc0\x00\x00\x00"
        + length(1) + b"d{}" + b"}"
    )  # fmt: skip
    value = {"d": {}, "b": [1, 200, 65536], "a": "é", "c": np.array([1, -2], np.float32)}
    assert write_ubjson(value) == data
    again = read_ubjson(data)
    assert again.pop("c").tolist() == value.pop("c").tolist()
    assert again == value


def test_a_number_of_32_bits():
    assert write_ubjson([0.5, 0.1]) == b"[#" + length(2) + b"d" + struct.pack(">f", 0.5) + b"d" + struct.pack(">f", 0.1)
    assert read_ubjson(write_ubjson([0.5])) == [0.5]


def test_forms_that_are_only_read():
    assert read_ubjson(b"[ZTFU\xffD" + struct.pack(">d", 0.1) + b"]") == [None, True, False, 255, 0.1]
    for kind, code in {"i": "b", "U": "B", "I": "h", "l": "i", "L": "q", "d": "f", "D": "d"}.items():
        array = read_ubjson(b"[$" + kind.encode() + b"#" + length(2) + struct.pack(f">2{code}", 3, 100))
        assert array.tolist() == [3, 100] and array.dtype == np.dtype(code) and array.dtype.isnative


def arrays(dtype: type, values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(values).map(lambda items: np.array(items, dtype))


INTEGERS = st.integers(-(2**63), 2**63 - 1)
ARRAYS = [
    arrays(np.uint8, st.integers(0, 255)),
    arrays(np.int32, st.integers(-(2**31), 2**31 - 1)),
    arrays(np.int64, INTEGERS),
    arrays(np.float32, st.floats(width=32, allow_nan=False, allow_infinity=False)),
]
VALUES = st.recursive(
    st.one_of(INTEGERS, st.text(), *ARRAYS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def plain(value: object) -> object:
    """Arrays as (dtype, numbers), which compare."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, list) else value


@given(VALUES)
def test_reading_returns_what_was_written(value):
    assert plain(read_ubjson(write_ubjson(value))) == plain(value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "document: needs 1 bytes where 0 are left"),
        (b"[#" + length(2**60), r"document: has length 1152921504606846976, which does not fit the 0 bytes left"),
        (b"[$L#" + length(2**61), "document: has length 2305843009213693952"),
        (b"[$d#" + length(2) + b"1234567", "document: has length 2, which does not fit the 7 bytes left"),
        (b"[$d#" + length(-1), "document: has length -1"),
        (b"S" + length(2**63 - 1), "document: has length 9223372036854775807"),
        (b"S" + length(2) + b"\xff\xfe", "document: not UTF-8"),
        (b"[$S#" + length(1), "document: must be an array of numbers, got the type b'S'"),
        (b"[$d" + length(1), "document: must go on with b'#', got b'L'"),
        (b"[#i\x01Z", "document: must go on with b'L', got b'i'"),
        (b"{U\x01aZ}", "document: must go on with b'L', got b'U'"),
        (b"{" + length(1) + b"aN}", "a: has the type b'N', which no model file holds"),
        (b"{" + length(1) + b"a[ZH]}", r"a\[1\]: has the type b'H'"),
        (b"{" + length(1) + b"aZ" + length(1) + b"aZ}", "document: has 'a' twice"),
        (b"{}{}", "document: 2 bytes follow its end"),
        (b"[" * 100000, r"\[0\]\[0\].*: nested deeper than 64"),
        ((b"{" + length(1) + b"a") * 100000, "a.a.a.*: nested deeper than 64"),
    ],
)
def test_malformed_bytes_are_refused_by_place(data, message):
    with pytest.raises(ModelFormatError, match=message):
        read_ubjson(data)


def test_every_truncation_is_refused():
    data = write_ubjson({"a": [1, "x", {"b": np.arange(3, dtype=np.int32)}]})
    for size in range(len(data)):
        with pytest.raises(ModelFormatError):
            read_ubjson(data[:size])


@pytest.mark.parametrize("value", [None, float("nan"), True, np.zeros(1), b"x", (1,)])
def test_what_xgboost_has_no_type_for_is_not_written(value):
    with pytest.raises(TypeError, match="cannot be stored"):
        write_ubjson({"a": value})
