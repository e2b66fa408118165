"""JSON as its standard has it, from untrusted bytes: Python's reader without what it lets pass.

Python takes Infinity, keeps the last of two members of one name, guesses UTF-16, and recurses as deep as the text does. NaN is
left to whoever reads the number: XGBoost before 3.0 writes it where none is to be read (schema.py).
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from gpuboost.errors import ModelFormatError
from gpuboost.model_io.cursor import MAX_DEPTH

__all__ = ["read_json"]

# A string, closed or not, or a bracket. The possessive quantifiers (*+) keep it linear in the length of any text.
STRING_OR_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[][{}]', re.DOTALL)


def read_json(data: bytes) -> Any:
    """What the bytes hold. Raises ModelFormatError, naming the place in the document, where they are not strict JSON."""
    try:
        text = data.decode("utf-8", "surrogatepass")  # an escaped half of a surrogate pair is valid, so the half itself passes
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"document: not UTF-8: {error.reason} at byte {error.start}.") from None
    _check_depth(text)
    faults: list[tuple[Any, str]] = []  # (object of the document, what is wrong with it)

    def constant(name: str) -> float:
        value = float(name)
        if value == value:
            faults.append((value, f"must not be {name}."))
        return value

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated = counts.most_common(1)[0][0]
            faults.append((result, f"has {repeated!r:.60} twice."))
        return result

    try:
        document = json.loads(text, parse_constant=constant, object_pairs_hook=members)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"document: not JSON: {error}.") from None
    if faults:
        fault, message = faults[-1]  # not part of a repeated member that was dropped: that would be a later fault
        raise ModelFormatError(f"{next(_places(document, fault, ''))}: {message}")
    return document


def _check_depth(text: str) -> None:
    depth = 0
    for token in STRING_OR_BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth > MAX_DEPTH:
            raise ModelFormatError(f"document: nested deeper than {MAX_DEPTH} at character {token.start()}.")


def _places(value: Any, fault: Any, place: str) -> Iterator[str]:
    """Where in the value this very object is."""
    if value is fault:
        yield place.lstrip(".") or "document"
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _places(member, fault, f"{place}.{key}")
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            yield from _places(entry, fault, f"{place}[{i}]")
