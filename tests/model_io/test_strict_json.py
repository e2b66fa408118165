"""JSON that Python's reader takes and the standard does not."""

import sys

import pytest

from gpuboost.errors import ModelFormatError
from gpuboost.model_io.strict_json import read_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": [0, {"b": Infinity}]}', r"a\[1\].b: must not be Infinity"),
        ("[-Infinity]", r"\[0\]: must not be -Infinity"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "a: has 'b' twice"),
        ('{"a": {"b": 1, "b": 2}, "a": 3}', "document: has 'a' twice"),  # the inner one is dropped
        ('{"a": -Infinity, "a": 3}', "document: has 'a' twice"),
        ('{"a": 1} {', "document: not JSON: Extra data"),
        ("[" * 65 + "]" * 65, "document: nested deeper than 64 at character 64"),
        ('["' + "[" * 100, "document: not JSON: Unterminated string"),
        ("[" * 10**6, "document: nested deeper"),
    ],
)
def test_what_is_not_strict_json_is_refused_by_place(text, message):
    with pytest.raises(ModelFormatError, match=f"(?i){message}"):
        read_json(text.encode())


@pytest.mark.parametrize("data", [b'"\xff"', '"a"'.encode("utf-16"), b"\xef\xbb\xbf[]", b'"\xc3"', b'"\xc0\x80"'])
def test_other_encodings_are_refused(data):
    with pytest.raises(ModelFormatError, match="document: not"):
        read_json(data)


def test_brackets_in_strings_are_not_nesting():
    value = ["[" * 1000, '"\\"[' * 100, "\\", ["]}"]]
    assert read_json(b'["%s", "%s", "\\\\", ["]}"]]' % (b"[" * 1000, b'\\"\\\\\\"[' * 100)) == value
    assert read_json(b"[" * 64 + b"]" * 64) is not None


def test_depth_does_not_depend_on_the_recursion_limit():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        with pytest.raises(ModelFormatError, match="nested deeper than 64"):
            read_json(b'{"a":' * 10**6)
    finally:
        sys.setrecursionlimit(limit)
