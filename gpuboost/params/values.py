"""Reading the value of one parameter: numbers, words and lists, given as such or as text.

Each reader takes any value and returns it as Params stores it, or raises ValueError whose text completes "<name> must be ...".
"""

import ast
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

DEVICES = "'auto', 'cpu', 'cuda', 'cuda:N', or of several GPUs 'cuda:0,cuda:1' or 'cuda:all'"
SKETCHES = "'top_outputs:k', 'random_sampling:k' or 'random_projection:k', such as 'top_outputs:5'"
SETS = "sets of columns by name or number, such as [[0, 1], ['age', 'income']]"


def plain(value: Any) -> Any:
    """NumPy's scalars and arrays (and pandas's columns) as Python's own numbers and lists."""
    return value.tolist() if hasattr(value, "tolist") else value


def as_number(value: Any) -> int | float | None:
    """6, 0.3, "6", "0.3" and NumPy's scalars as int or float; None for what is no number (True is none)."""
    value = plain(value)
    if isinstance(value, str):
        for convert in (int, float):
            with suppress(ValueError):
                return convert(value)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def as_integer(value: Any) -> int:
    number = as_number(value)
    if isinstance(number, float) and number.is_integer():  # 6.0, as searches over parameters produce
        return int(number)
    if not isinstance(number, int):
        raise ValueError("an integer")
    return number


def as_real(value: Any) -> float:
    number = as_number(value)
    if number is None or not abs(number) <= sys.float_info.max:  # NaN, infinity, 10**400
        raise ValueError("a finite number")
    return float(number)


def bounded(convert: Callable[[Any], Any], interval: str) -> tuple[Callable[[Any], Any], str]:
    """The parser of numbers inside an interval in the usual notation, "(0, 1]", and the interval in words."""
    low, high = (float(end) if "inf" in end or "." in end else int(end) for end in interval[1:-1].split(","))
    is_low_open, is_high_open = interval[0] == "(", interval[-1] == ")"
    above = f"greater than {low}" if is_low_open else f"at least {low}"
    below = f"less than {high}" if is_high_open else f"at most {high}"
    limits = f"between {low} and {high}" if not (is_low_open or is_high_open) else f"{above} and {below}"
    if math.isinf(high):
        limits = "finite" if math.isinf(low) else above

    def parse(value: Any) -> Any:
        number = convert(value)
        if number < low or number > high or (is_low_open and number == low) or (is_high_open and number == high):
            raise ValueError(limits)
        return number

    return parse, limits


def listed(names: Iterable[str]) -> str:
    *rest, last = map(repr, names)
    return f"{', '.join(rest)} or {last}" if rest else last


def parse_device(value: Any) -> str:
    devices = [_one_device(name) for name in str(value).lower().split(",")]
    if len(devices) > 1 and (len({*devices}) < len(devices) or not all(name[-1].isdecimal() for name in devices)):
        raise ValueError(DEVICES)
    return ",".join(devices)


def _one_device(text: str) -> str:
    name, colon, ordinal = text.strip().partition(":")
    name = "cuda" if name == "gpu" else name
    if name == "cuda" and ordinal.isascii() and ordinal.isdecimal():
        return f"cuda:{int(ordinal)}"
    if (name, ordinal) != ("cuda", "all") and (name not in ("auto", "cpu", "cuda") or colon):
        raise ValueError(DEVICES)
    return name + colon + ordinal


def parse_nthread(value: Any) -> int:
    number = as_integer(value)
    return 0 if number == -1 else number


def parse_objective(value: Any) -> str:
    value = getattr(value, "registered_name", value)  # of a user's formula
    if not isinstance(value, str) or not value:
        raise ValueError("the name of an objective")
    return "reg:squarederror" if value == "reg:linear" else value  # its old name


def parse_pairs(value: Any) -> int | None:
    """XGBoost's model files have 2^32 − 1 where none was given."""
    if value is not None and not 1 <= (number := as_integer(value)) < 2**32:
        raise ValueError("an integer at least 1")
    return None if value is None or number == 2**32 - 1 else number


def parse_split_gain(value: Any) -> str | None:
    value = getattr(value, "registered_name", value)
    if value is not None and not (isinstance(value, str) and value):
        raise ValueError("a function under @gpuboost.split_gain, or its name")
    return value


def parse_sketch(value: Any) -> str | None:
    """With the number in plain digits."""
    method, colon, size = value.partition(":") if isinstance(value, str) else ("", "", "")
    if value is not None and method not in ("top_outputs", "random_sampling", "random_projection"):
        raise ValueError(SKETCHES)
    if value is not None and not (size.isascii() and size.isdecimal() and 0 < int(size) < 2**31):
        raise ValueError(SKETCHES)
    return None if value is None else f"{method}:{int(size)}"


def parse_metrics(value: Any) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    names = tuple(getattr(name, "registered_name", name) for name in names)  # of a user's formula
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError("the name of a metric or a list of names")
    return tuple(dict.fromkeys(names))  # each once, in the order given


def parse_sets(value: Any) -> tuple[tuple[int | str, ...], ...]:
    """Each set ascending, numbers before names. Text as XGBoost writes it, JSON, or as Python does."""
    value = plain(value)
    if isinstance(value, str) and value.strip():
        value = _literal(value)
    if isinstance(value, (str, dict)) and not value:
        return ()
    result = []
    for group in _members(value):
        members = {item if isinstance(item, str) else _column_number(item) for item in _members(plain(group))}
        if not members:
            raise ValueError(f"{SETS}, none of them empty")
        result.append(tuple(sorted(members, key=lambda item: (isinstance(item, str), item))))
    return tuple(result)


def _column_number(value: Any) -> int:
    with suppress(ValueError):
        return as_integer(value)
    raise ValueError(SETS)


def _members(group: Any) -> Any:
    if not isinstance(group, (list, tuple, set, frozenset)):
        raise ValueError(SETS)
    return group


def _literal(text: str) -> Any:
    """What a text says in JSON or in Python; None for anything else."""
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return read(text.strip())
    return None


def parse_monotone(value: Any) -> tuple[Any, ...]:
    """Signs by column, (1, -1), or pairs of a column's name (or number) and its sign, (("age", 1),)."""
    value = plain(value)
    if isinstance(value, str):  # XGBoost's notation, "(1,-1)", or that of a dict
        value = _literal(value) if value.strip() else ()
        value = (value,) if isinstance(value, int) else value  # "(1)"
    items = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(items, (list, tuple)):
        raise ValueError("a sequence of signs, or a mapping from names to signs")
    if items and all(isinstance(item, (list, tuple)) for item in items):
        if all(len(item) == 2 and type(plain(item[0])) in (str, int) for item in items):  # True is neither
            return tuple((plain(name), parse_sign(sign)) for name, sign in items)
        raise ValueError("a sign for each name of a column")
    return tuple(map(parse_sign, items))


def parse_sign(value: Any) -> int:
    number = as_number(value)
    if number not in (-1, 0, 1):
        raise ValueError("-1, 0 or 1 for each feature")
    return int(number)
