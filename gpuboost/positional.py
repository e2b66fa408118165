"""Arguments that XGBoost's users pass by position, as they did for years: train(params, dtrain, 10, [(dtest, "test")])."""

import inspect
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

__all__ = ["also_by_position"]

F = TypeVar("F", bound=Callable[..., Any])


def also_by_position(*names: str, is_fit: bool = False) -> Callable[[F], F]:
    """Let a function take these keyword arguments by position, too, behind its own: with a FutureWarning, as XGBoost does.

    names : in XGBoost's order, as far as that stays the same from version to version. The function shows them as by_position.
    is_fit : whether it is a method of estimators, to which people give what XGBoost's took until 2.1, early_stopping_rounds.
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters.values()
        own_names = {parameter.name for parameter in parameters}
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
            strangers = [name for name in kwargs if name not in own_names] if is_fit else []
            if strangers and strangers[0] in args[0].get_params(deep=False):
                name, kind = strangers[0], type(args[0]).__name__
                raise TypeError(f"fit takes no {name}, a parameter of the estimator. Pass it there: {kind}({name}=...).")
            return function(*args, **kwargs)

        taking.__dict__["by_position"] = names
        return cast(F, taking)

    return decorate
