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


@gb.objective(link="logit", labels=(0, 1))
def stable_logistic(margin, label):
    """logistic_loss without overflow: both terms have a kink at 0, their sum has none."""
    return math.log1p(math.exp(-abs(margin))) + max(margin, 0.0) - label * margin


@gb.objective
def kinked_square(margin, label):
    return 0.5 * abs(margin) * abs(margin) - label * margin


@gb.objective
def quartic(margin, label):
    """No curvature at 0, and next to none beside it."""
    return margin**4 / 4 - label * margin


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


def score(grad, hess, reg_lambda, reg_alpha):
    return max(abs(grad) - reg_alpha, 0) ** 2 / (hess + reg_lambda)


@gb.split_gain
def my_gain(left_grad, left_hess, right_grad, right_hess, reg_lambda, reg_alpha):
    """The paper's, from the sums of both children alone."""
    children = score(left_grad, left_hess, reg_lambda, reg_alpha) + score(right_grad, right_hess, reg_lambda, reg_alpha)
    return children - score(left_grad + right_grad, left_hess + right_hess, reg_lambda, reg_alpha)


def score_at(grad, hess, weight, reg_lambda, reg_alpha):
    return -(2 * grad * weight + (hess + reg_lambda) * weight * weight + 2 * reg_alpha * abs(weight))


@gb.split_gain
def my_bounded_gain(
    left_grad, left_hess, left_weight, right_grad, right_hess, right_weight, node_grad, node_hess, node_weight,
    reg_lambda, reg_alpha,
):  # fmt: skip
    """The same where weights are held within bounds."""
    left = score_at(left_grad, left_hess, left_weight, reg_lambda, reg_alpha)
    right = score_at(right_grad, right_hess, right_weight, reg_lambda, reg_alpha)
    return left + right - score_at(node_grad, node_hess, node_weight, reg_lambda, reg_alpha)


@gb.split_gain(name="apart")
def far_apart(left_grad, left_hess, right_grad, right_hess, feature, power=2.0, favoured=1):
    """How far apart the children's means are, and how even they are: no loss at all."""
    distance = abs(left_grad / (left_hess + 1) - right_grad / (right_hess + 1))
    evenness = min(left_hess, right_hess) / (left_hess + right_hess)
    return (2 if feature == favoured else 1) * distance**power * evenness


@gb.split_gain
def fair(gain, feature, proxy=0, price=0.5):
    """The built-in gain, of which splits on one column get a part."""
    return gain * (1 - price) if feature == proxy else gain
