"""Arguments that XGBoost's users pass by position, as they did for years: train(params, dtrain, 10, [(dtest, "test")])."""

import inspect
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

__all__ = ["also_by_position"]

F = TypeVar("F", bound=Callable[..., Any])


def also_by_position(*names: str) -> Callable[[F], F]:
    """Let a function take these keyword arguments by position, too, behind its own: with a FutureWarning, as XGBoost does.

    names : in XGBoost's order, as far as that stays the same from version to version. The function shows them as by_position.
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters.values()
        n_own = sum(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)

        @wraps(function)
        def taking(*args: Any, **kwargs: Any) -> Any:
            if len(args) > n_own:
                if len(args) > n_own + len(names):
                    raise TypeError(f"{function.__qualname__} takes no argument behind {names[-1]} by position. Name the others.")
                further = dict(zip(names, args[n_own:]))
                if twice := further.keys() & kwargs.keys():
                    raise TypeError(f"{function.__qualname__} got {' and '.join(sorted(twice))} twice: by position and by name.")
                pairs = ", ".join(f"{name}=" for name in further)
                warnings.warn(f"Pass {pairs} by name, not by position, to {function.__qualname__}.", FutureWarning, 2)
                args, kwargs = args[:n_own], kwargs | further
            return function(*args, **kwargs)

        taking.__dict__["by_position"] = names
        return cast(F, taking)

    return decorate
