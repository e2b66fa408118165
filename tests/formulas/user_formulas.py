"""What a user of @gpuboost.objective and @gpuboost.metric would write."""

import math

import gpuboost as gb


@gb.objective(link="logit", labels=(0, 1))
def my_logistic(margin, label):
    p = 1 / (1 + math.exp(-margin))
    return p - label, max(p * (1 - p), 1e-16)


@gb.objective(link="logit", labels=(0, 1))
def logistic_loss(margin, label):
    p = 1 / (1 + math.exp(-margin))
    return -(label * math.log(p) + (1 - label) * math.log(1 - p))


@gb.objective(name="focal-loss", link="logit", labels=(0, 1))
def focal(margin, label, gamma=2.0, floor=1e-15):
    p = 1 / (1 + math.exp(-margin))
    right = p if label == 1 else 1 - p
    return -((1 - right) ** gamma) * math.log(max(right, floor))


@gb.objective
def by_weight(margin, label, weight, factor=1.0):
    """Squared error that counts more where rows weigh much."""
    return factor * weight * (margin - label) ** 2 / 2


@gb.objective(link="log", labels=(0, math.inf))
def my_poisson(margin, label):
    return math.exp(margin) - label * margin


@gb.metric
def within(prediction, label, distance=1.0):
    return abs(prediction - label) <= distance


@gb.metric(name="hits", maximize=True)
def hit_rate(prediction, label):
    return (prediction > 0.5) == (label == 1)
