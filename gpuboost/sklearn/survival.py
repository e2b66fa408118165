"""Survival times as y: what survival:aft and survival:cox make of them."""

import numpy as np

__all__ = ["as_bounds", "as_signed_times"]


def as_signed_times(y: np.ndarray) -> np.ndarray:
    """float64 (n_samples,), as survival:cox takes them: minus the time of a sample without an event. y : that, or as_events."""
    if y.dtype.names is None:
        return y
    event, time = as_events(y)
    if (bad := ~(time >= 0) | (event & (time == 0))).any():
        raise ValueError(
            f"times of y must be above 0 where there was an event, and elsewhere not negative, got {time[bad][0]:g}. "
            "Add a little to times of 0."
        )
    return np.where(event, time, -time)


def as_bounds(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """label_lower_bound and label_upper_bound, (n_samples,), as survival:aft takes them.

    y : (n_samples, 2) of both; or times that are known, (n_samples,); or as as_events, where a time without an event is later.
    """
    if y.dtype.names is not None:
        event, time = as_events(y)
        return time, np.where(event, time, np.inf)
    if y.ndim == 2 and y.shape[1] == 2:
        return y[:, 0], y[:, 1]
    if y.ndim == 1:
        return y, y
    raise ValueError(f"y of survival:aft must be (n_samples, 2), lower and upper bounds, or (n_samples,), got shape {y.shape}.")


def as_events(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """bool and float64 (n_samples,): whether there was an event, and when, of a structured array with two such fields in this
    order (as of scikit-survival)."""
    kinds = [y.dtype[name].kind for name in y.dtype.names or ()]
    if len(kinds) != 2 or kinds[0] != "b" or kinds[1] not in "iuf":
        raise ValueError(f"y with named fields must have two, whether there was an event (bool) and the time, got {y.dtype}.")
    event, time = (y[name] for name in y.dtype.names or ())
    return event, time.astype(np.float64)
