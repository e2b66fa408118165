"""Likelihoods and deviances of labels that are not negative, averaged over rows."""

import math

import numpy as np
from numba import float32, float64

from gpuboost.kernels.jit import scalar
from gpuboost.kernels.reduce import elementwise_terms
from gpuboost.kernels.scalar import exp_double, larger, log_double, log_gamma_double
from gpuboost.metrics import register
from gpuboost.metrics.base import DEFAULTS
from gpuboost.metrics.pointwise import MeanTerm
from gpuboost.params import Params, check_param

SMALLEST_MEAN = 1e-16  # XGBoost's floors inside logarithms and quotients
SMALLEST_AMOUNT = 1e-6


@scalar
def poisson_loss(prediction, label, parameters):
    """−ln of the Poisson probability of the label: ln Γ(y + 1) + p − y·ln p. NaN for a label below 0."""
    if not label >= float32(0.0):
        return float64(math.nan)
    p, y = larger(float64(prediction), SMALLEST_MEAN), float64(label)
    return log_gamma_double(y + float64(1.0)) + p - y * log_double(p)


@scalar
def gamma_loss(prediction, label, parameters):
    """−ln of the density of the gamma law of shape 1 and mean p, which is exponential: y/p + ln p."""
    p = larger(float64(prediction), SMALLEST_AMOUNT)
    return float64(label) / p + log_double(p)


@scalar
def gamma_deviance(prediction, label, parameters):
    """2·(ln(p/y) + y/p − 1), p and y raised by SMALLEST_AMOUNT. NaN where either is negative."""
    if not (prediction >= float32(0.0) and label >= float32(0.0)):
        return float64(math.nan)
    p, y = float64(prediction) + SMALLEST_AMOUNT, float64(label) + SMALLEST_AMOUNT
    return float64(2.0) * (log_double(p / y) + y / p - float64(1.0))


@scalar
def tweedie_loss(prediction, label, parameters):
    """−ln of the Tweedie density but for a term of y: p^(2 − ρ)/(2 − ρ) − y·p^(1 − ρ)/(1 − ρ) with ρ = parameters[0]; at 1 it is
    Poisson's."""
    log_p, y = log_double(larger(float64(prediction), SMALLEST_MEAN)), float64(label)
    first, second = float64(1.0) - float64(parameters[0]), float64(2.0) - float64(parameters[0])
    pull = log_p if first == float64(0.0) else exp_double(first * log_p) / first
    return exp_double(second * log_p) / second - y * pull


poisson_loss_row = elementwise_terms(poisson_loss)
gamma_loss_row = elementwise_terms(gamma_loss)
gamma_deviance_row = elementwise_terms(gamma_deviance)
tweedie_loss_row = elementwise_terms(tweedie_loss)


@register
class PoissonLogLikelihood(MeanTerm):
    family = "poisson-nloglik"
    row_term = staticmethod(poisson_loss_row)


@register
class GammaLogLikelihood(MeanTerm):
    family = "gamma-nloglik"
    row_term = staticmethod(gamma_loss_row)


@register
class GammaDeviance(MeanTerm):
    family = "gamma-deviance"
    row_term = staticmethod(gamma_deviance_row)


@register
class TweedieLogLikelihood(MeanTerm):
    """tweedie-nloglik@ρ with the variance power ρ."""

    family = "tweedie-nloglik"
    row_term = staticmethod(tweedie_loss_row)

    def __init__(self, argument: str | None = None, params: Params = DEFAULTS) -> None:
        super().__init__()
        try:
            power = check_param("tweedie_variance_power", argument)
        except ValueError:
            power = None
        if argument is None or power is None:
            given = self.family if argument is None else f"{self.family}@{argument}"
            raise ValueError(f"eval_metric 'tweedie-nloglik@rho' needs a number from 1 to below 2, got {given!r}. Use @1.5, say.")
        self.parameters, self.name = (power,), f"{self.family}@{np.format_float_positional(power, trim='-')}"
