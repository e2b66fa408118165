"""Evaluation metrics by their XGBoost names. A new one is a class in a file here that registers itself (base.py)."""

from gpuboost.metrics.base import Metric
from gpuboost.params import Params
from gpuboost.registry import Registry

__all__ = ["Metric", "get_metric", "metric_names", "register"]

_registry: Registry[Metric] = Registry("eval_metric", __name__, otherwise="Pass a function as custom_metric to train().")


def register(metric: type[Metric]) -> type[Metric]:
    """Class decorator: make a metric known under its family name."""
    _registry.register(metric.family, metric)
    return metric


def metric_names() -> list[str]:
    """The names that evaluate, sorted, without arguments."""
    return _registry.names()


def get_metric(name: str, params: Params | None = None) -> Metric:
    """The metric of this name; "family@argument" passes the argument on. params : of the training."""
    family, at, argument = name.partition("@")
    if family.endswith("-") and not at and (known := _registry.find(family[:-1])) is not None and known.takes_minus:
        return known("-", params or Params())
    return _registry.get(family, given=name)(argument if at else None, params or Params())
