"""The rule of one parameter, and the fields of a dataclass that carry one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpuboost.params.values import as_integer, as_real, bounded, listed, plain

__all__ = ["Rule", "choice", "flag", "integer", "param", "real", "reals"]


@dataclass(frozen=True)
class Rule:
    """What one parameter means and may be.

    doc : one line. allowed : the accepted values in words. fix : the usual remedy, a sentence.
    parse : value → value as stored; raises ValueError whose text completes "<name> must be ...".
    """

    doc: str
    allowed: str
    parse: Callable[[Any], Any]
    fix: str = ""


def param(default: Any, doc: str, allowed: str, parse: Callable[[Any], Any], **rule: Any) -> Any:
    return field(default=default, metadata={"rule": Rule(doc, allowed, parse, **rule)})


def integer(default: int | None, interval: str, doc: str, **rule: Any) -> Any:
    parse, limits = bounded(as_integer, interval)
    return param(default, doc, f"integer {limits}", parse, **rule)


def real(default: float | None, interval: str, doc: str, **rule: Any) -> Any:
    parse, limits = bounded(as_real, interval)
    return param(default, doc, f"number {limits}", parse, **rule)


def reals(interval: str, doc: str, default: Any = None, **rule: Any) -> Any:
    """One number or several, stored as a tuple; none at all only where that is the default, ()."""
    parse_one, limits = bounded(as_real, interval)

    def parse(value: Any) -> tuple[float, ...]:
        value = plain(value)
        if isinstance(value, str) and value.strip()[:1] in ("[", "("):  # XGBoost's notation, "[5E-1]"
            inner = value.strip()[1:-1]
            value = inner.split(",") if inner.strip() else ()
        items = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        if not items and default is None:
            raise ValueError("a number or a sequence of at least one")
        return tuple(parse_one(item) for item in items)

    return param(default, doc, f"number or sequence of numbers, {limits}", parse, **rule)


def flag(default: bool, doc: str, **rule: Any) -> Any:
    def parse(value: Any) -> bool:
        text = str(plain(value)).strip().lower()
        if text not in ("true", "1", "false", "0"):
            raise ValueError("True or False")
        return text in ("true", "1")

    return param(default, doc, "true or false", parse, **rule)


def choice(default: str | None, values: str, doc: str, **rule: Any) -> Any:
    """One of several words; `values` are written with spaces between."""
    names = values.split()

    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(listed(names))
        return value

    return param(default, doc, listed(names), parse, **rule)
