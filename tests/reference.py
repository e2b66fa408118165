"""Gradient tree boosting in plain NumPy: the algorithm of Chen & Guestrin 2016 at reading speed, and the oracle of the tests.

    raw table → quantile cuts → bins → rounds of (gradients → histograms → best splits → pruning → leaf weights) → predictions

Everything is float64 and as direct as it can be. The engine computes the same trees with integers, in parallel, much faster.
A node is a dict: {"leaf": value}, or {"feature", "threshold", "default_left", "gain", "left", "right", "leaf"}, with
"listed", the categories on the right, in place of "threshold" where the feature is of categories.
"""

from fractions import Fraction
from itertools import accumulate

import numpy as np


def fit(
    X, y, weight=None, *, n_rounds=1, objective="squared", learning_rate=0.3, max_bin=256, base_margin=0.0, categorical=(),
    **settings,
):  # fmt: skip
    """Train. X : float (n, n_features), NaN is missing. categorical : columns of codes, with a bin for each. Returns the list of
    trees (their root nodes); settings as grow's."""
    X, y = np.asarray(X, np.float32).astype(np.float64), np.asarray(y, np.float64)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    most = np.nan_to_num(X[weight > 0]).max(axis=0)
    cuts = [
        np.arange(1, most[f] + 2) if f in categorical else quantile_cuts(X[:, f], weight, max_bin)
        for f in range(X.shape[1])
    ]
    codes = np.column_stack([to_bins(X[:, f], cuts[f]) for f in range(X.shape[1])])
    margin, trees = np.full(len(y), float(base_margin)), []
    for _ in range(n_rounds):
        grad, hess = gradients(objective, margin, y)
        tree = grow(codes, cuts, grad * weight, hess * weight, categorical=categorical, **settings)
        scale_leaves(tree, learning_rate)
        trees.append(tree)
        margin += predict([tree], X)
    return trees


def predict(trees, X, base_margin=0.0):
    """Raw scores: base_margin plus one leaf of every tree."""
    X = np.asarray(X, np.float32).astype(np.float64)
    return np.array([base_margin + sum(leaf_of(tree, row)["leaf"] for tree in trees) for row in X])


def leaf_of(node, row):
    while "left" in node:
        x = row[node["feature"]]
        is_left = x not in node["listed"] if "listed" in node else x < node["threshold"]
        goes_left = node["default_left"] if np.isnan(x) else is_left
        node = node["left"] if goes_left else node["right"]
    return node


# ---- the table in bins (§3.2–3.3)


def quantile_cuts(column, weight, max_bin):
    """Ascending thresholds of at most max_bin bins: between all distinct values where they are few enough, else after each value
    that reaches a rank j·W/max_bin, j = 1, 2, … of the weight W, and also before one that reaches several. (The engine moreover
    sets values of 2W/max_bin or more aside, and spreads the ranks over the others.)"""
    present = ~np.isnan(column) & (weight > 0)
    values, index = np.unique(column[present], return_inverse=True)
    if len(values) <= max_bin:
        last = np.arange(len(values) - 1)  # each value ends a bin
    else:
        cumulative = np.cumsum(np.bincount(index, weight[present]))
        ranks = np.diff(np.floor(cumulative * max_bin / cumulative[-1]), prepend=0)
        last = np.flatnonzero((ranks[:-1] > 0) | (ranks[1:] > 1))
    low, high = values[last], values[last + 1]
    middle = ((low + high) / 2).astype(np.float32)
    return np.where(middle > low, middle, high)  # midway, unless float32 has nothing in between


def to_bins(column, cuts):
    """Bin b holds cuts[b − 1] ≤ x < cuts[b]; −1 where the value is missing."""
    return np.where(np.isnan(column), -1, np.searchsorted(cuts, column, side="right"))


# ---- the loss (§2.2)


def gradients(objective, margin, y):
    """First and second derivatives of each row's loss by its margin."""
    if objective == "squared":  # ½(margin − y)²
        return margin - y, np.ones(len(y))
    p = 1 / (1 + np.exp(-margin))  # logistic: −y·ln p − (1 − y)·ln(1 − p)
    return p - y, p * (1 - p)


def leaf_weight(G, H, reg_lambda, reg_alpha, max_delta_step, lower=-np.inf, upper=np.inf):
    """w* = −T(G)/(H + λ), T(G) = sign(G)·max(|G| − α, 0): the minimiser of G·w + ½(H + λ)w² + α|w| (Eqs. 4 and 5)."""
    w = -np.sign(G) * max(abs(G) - reg_alpha, 0) / (H + reg_lambda) if H > 0 else 0.0
    return np.clip(np.clip(w, -max_delta_step, max_delta_step) if max_delta_step else w, lower, upper)


def score(G, H, reg_lambda, reg_alpha, max_delta_step, lower=-np.inf, upper=np.inf):
    """Twice the loss that a leaf's weight takes off: T(G)²/(H + λ) at the optimum, Eq. 4 at a bounded weight (Eq. 6)."""
    if H <= 0:
        return 0.0
    if not max_delta_step and lower == -np.inf and upper == np.inf:
        return max(abs(G) - reg_alpha, 0) ** 2 / (H + reg_lambda)
    w = leaf_weight(G, H, reg_lambda, reg_alpha, max_delta_step, lower, upper)
    return -(2 * G * w + (H + reg_lambda) * w * w + 2 * reg_alpha * abs(w))


# ---- one tree (§2.2, Algorithms 1 and 3)


def grow(
    codes, cuts, grad, hess, *, max_depth=6, gamma=0.0, min_child_weight=1.0, reg_lambda=1.0, reg_alpha=0.0, max_delta_step=0.0,
    signs=None, gain_of=None, categorical=(), **rules,
):  # fmt: skip
    """Split from the root down to max_depth, and undo what does not pay on the way back up.

    signs : of each feature's monotone constraint. Between the leaves below both children of a split on such a feature lies the
    middle of the children's weights, as a bound for all of them (XGBoost's rule). gain_of : as best_split. rules : as sets_of."""
    penalties = reg_lambda, reg_alpha, max_delta_step
    signs = np.zeros(codes.shape[1], int) if signs is None else signs

    def grow_node(rows, depth, lower=-np.inf, upper=np.inf):
        within = *penalties, lower, upper
        node = {"leaf": leaf_weight(grad[rows].sum(), hess[rows].sum(), *within)}
        if depth == max_depth:
            return node
        own = codes[rows], cuts, grad[rows], hess[rows]
        split = best_split(*own, min_child_weight, within, signs, gain_of, categorical, rules)
        if split is None:
            return node
        gain, feature, last_bin, default_left = split
        code = codes[rows, feature]
        goes_left = np.where(code < 0, default_left, ~np.isin(code, last_bin) if feature in categorical else code <= last_bin)
        sides, bounds = (rows[goes_left], rows[~goes_left]), [(lower, upper), (lower, upper)]
        if signs[feature]:
            middle = sum(leaf_weight(grad[side].sum(), hess[side].sum(), *within) for side in sides) / 2
            bounds = [(lower, middle), (middle, upper)][:: signs[feature]]
        left, right = (grow_node(side, depth + 1, *own) for side, own in zip(sides, bounds))
        if gain < gamma and "left" not in left and "left" not in right:
            return node  # bottom-up: only a split of two leaves can be undone
        node |= dict(gain=gain, feature=feature, default_left=default_left, left=left, right=right)
        if feature in categorical:
            return node | {"listed": last_bin}
        return node | {"threshold": cuts[feature][last_bin] if last_bin < len(cuts[feature]) else np.finfo(np.float32).max}

    return grow_node(np.flatnonzero(hess > 0), 0)


def best_split(codes, cuts, grad, hess, min_child_weight, penalties, signs, gain_of=None, categorical=(), rules=None):
    """(gain, feature, last bin on the left or categories on the right, default_left) of largest gain, or None. penalties : with
    the bounds on weights.

    gain = score(left) + score(right) − score(node)      (Eq. 7 without its ½; γ is left to pruning)

    or gain_of(G_L, H_L, G_R, H_R, feature).

    Missing rows are tried on both sides; on the left beside present ones only, since missing against present is tried with
    missing right. The first of equals in 16 bits wins: lower feature, lower bin, missing left. With missing rows on the left all
    bins up to the next value are.
    """
    parent = score(grad.sum(), hess.sum(), *penalties)
    best, largest = None, -np.inf
    for feature in range(codes.shape[1]):
        code, n_bins = codes[:, feature], len(cuts[feature]) + 1
        hist = np.column_stack([np.bincount(code + 1, values, n_bins + 1) for values in (grad, hess)])  # row 0: missing
        for listed, added, least, by_chance in sets_of(hist, penalties[0], **rules) if feature in categorical else ():
            for default_left in (True, False):
                GR, HR = hist[1:][listed].sum(axis=0) + hist[0] * (not default_left)
                GL, HL = hist.sum(axis=0) - (GR, HR)
                children = penalties[0] + added, *penalties[1:]
                if min(HL, HR) > 0 and min(HL, HR) >= max(min_child_weight, least):
                    gain = score(GL, HL, *children) + score(GR, HR, *children) - parent - by_chance
                    if gain > max(1e-6, 2.0**-44 * parent) and rank(gain) > largest:
                        best, largest = (gain, feature, listed, default_left), rank(gain)
        if feature in categorical:
            continue
        for last_bin in range(n_bins):
            for default_left in (True, False):
                GL, HL = hist[1 : last_bin + 2].sum(axis=0) + hist[0] * default_left
                GR, HR = hist[last_bin + 2 :].sum(axis=0) + hist[0] * (not default_left)
                if min(HL, HR, hist[1 : last_bin + 2, 1].sum()) <= 0 or min(HL, HR) < min_child_weight:
                    continue
                if signs[feature] * (leaf_weight(GR, HR, *penalties) - leaf_weight(GL, HL, *penalties)) < 0:
                    continue  # against the feature's constraint
                gain = score(GL, HL, *penalties) + score(GR, HR, *penalties) - parent
                if gain_of is not None:
                    gain = gain_of(GL, HL, GR, HR, feature)
                if gain > max(1e-6, 2.0**-44 * parent) and rank(gain) > largest:  # less is rounding
                    best, largest = (gain, feature, last_bin, default_left), rank(gain)
    if best is not None and best[1] not in categorical and best[3] and (codes[:, best[1]] < 0).any():
        gain, feature, last_bin, _ = best
        above = codes[codes[:, feature] > last_bin, feature]
        return gain, feature, above.min() - 1, True
    return best


def sets_of(
    hist, reg_lambda, *, max_cat_to_onehot=4, max_cat_threshold=64, cat_smooth=0.0, cat_l2=0.0, min_data_per_group=0.0,
    cat_noise=0.0,
):  # fmt: skip
    """(categories, what their split adds to λ, least hessian of its children, gain by chance): each category alone where they are
    few, else the first and the last of those present in the order of G/(H + λ); the smaller set first. hist : (n_categories + 2,
    2), of missing rows, of each, and of no category.
    """
    total, hist = hist.sum(axis=0), hist[1:-1]
    present = np.flatnonzero(hist[:, 1] > 0)
    if len(hist) < max_cat_to_onehot:
        return [([c], 0.0, 0.0, 0.0) for c in present]
    present = present[takes_part(*hist[present].T, total[0] / total[1], cat_noise)]
    grad, hess = hist[present].T
    order = present[np.argsort(grad / (hess + (reg_lambda + cat_smooth)), kind="stable")].tolist()
    sizes = range(1, min(len(order), max_cat_threshold) + 1)
    sets = [part for m in sizes for part in (order[:m], order[-m:])]
    return [(part, cat_l2, min_data_per_group, chance_gain(hist[part, 1].sum(), hess, cat_noise)) for part in sets]


def takes_part(grad, hess, mean, noise):
    """Which categories count: heavy ones, light ones that chance does not make so, or all where chance does not make them so."""
    is_light, apart = hess < noise, np.abs(grad - hess * mean)
    if not is_light.any():
        return ~is_light
    step, (light, d) = 0.75 * np.sqrt(noise), (hess[is_light], apart[is_light])
    if (d**2 / (noise * light)).sum() >= len(d) + 6 * np.sqrt(2 * (len(d) + (step**2 / (noise * light)).sum())):
        return np.ones(len(hess), bool)
    return ~is_light | (apart**2 >= 8 * (noise * hess + 2 / 3 * step * apart))


def chance_gain(listed, hess, noise):
    """What categories that differ by chance alone, of these hessians, gain where their order puts a share of them on one side."""
    share = listed / hess.sum()
    expected = 1.8 * max(share * (1 - share), 0.0) ** 0.75 * np.sqrt(hess).sum() ** 2 / hess.sum()
    return noise * max(expected - 3.0, 0.0)


def rank(gain):
    """The gain cut to 16 significant bits: the engine's gradients have no more."""
    mantissa, exponent = np.frexp(gain)
    return np.ldexp(np.trunc(mantissa * 2**16), exponent - 16)


def scale_leaves(node, factor):
    node["leaf"] *= factor
    if "left" in node:
        scale_leaves(node["left"], factor)
        scale_leaves(node["right"], factor)


def expected_quantile(residuals, weights, alpha):
    """By its definition, exactly, α as it is written: the mean of the smallest values whose weight reaches and passes α·W."""
    total, by_value = sum(weights), sorted(zip(residuals.tolist(), weights))
    ends = []
    for reaches in (lambda weight: weight >= Fraction(str(alpha)) * total, lambda weight: weight > Fraction(str(alpha)) * total):
        up_to = accumulate(weight for _, weight in by_value)
        ends.append(next(value for (value, _), weight in zip(by_value, up_to) if reaches(weight)))
    return sum(ends) / 2
