"""kernels/category_splits.py: the best set of categories of a node, against trying every candidate, and every set, in Python."""

from itertools import chain, combinations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_backend import take_part

from gpuboost.backend.plans import BUILT_IN_GAIN
from gpuboost.kernels import category_splits
from gpuboost.kernels.category_splits import count_words, evaluate_category_splits, noise_gain, root_of
from gpuboost.kernels.scalar import gain_rank, node_score, node_score_at, optimal_weight
from gpuboost.kernels.short_sorts import ROOM
from gpuboost.kernels.structs import CATEGORICAL, CATEGORY_RULES, NO_GAIN, NODE, NUMERIC

RULES = {"max_cat_to_onehot": 4, "max_cat_threshold": 64, "cat_smooth": 0.0, "cat_l2": 0.0, "min_data_per_group": 0.0,
         "cat_noise": 0.0}  # fmt: skip
NUMBERS = 3  # bins of a feature of numbers beside the categories


def some_rules(**rules):
    rules = RULES | rules | of_light(RULES | rules)
    return np.array([tuple(rules[name] for name in CATEGORY_RULES.names)], CATEGORY_RULES)


def of_light(rules):
    """What light categories are judged by, if it is not given."""
    noise = rules["cat_noise"]
    return {"cat_spread": rules.get("cat_spread", noise), "cat_step": rules.get("cat_step", 0.75 * noise**0.5)}


def lay_out(features, missing):
    """(hist, sums, offsets) of one node. features : [(g, h) of each category] of each. A bin for no category follows each, and a
    feature of numbers stands first. missing : of the last feature; of the others what the sum asks for."""
    bins = [[(0, 0)] * NUMBERS, *([*categories, (0, 0)] for categories in features)]
    sums = np.sum(features[-1], axis=0, initial=0) + missing
    return np.array(list(chain(*bins)), np.int64), sums, np.cumsum([0, *map(len, bins)]).astype(np.int32)


def find_sets(hist, sums, offsets, *, mask=None, scales=(1.0, 1.0), lower=-np.inf, upper=np.inf, number_gain=NO_GAIN,
              number_feature=0, reg_lambda=1.0, reg_alpha=0.0, max_delta_step=0.0, min_child_weight=0.0, n_threads=1,
              gain=BUILT_IN_GAIN, **rules):  # fmt: skip
    """Adapter: (nodes, left_sums, cats) after evaluating all nodes.

    hist : int64 (n_nodes, total_bins, 2). sums : int64 (n_nodes, 2). number_gain, number_feature : the split of numbers that each
    node has already.
    """
    hist, sums = np.asarray(hist, np.int64)[:, None], np.asarray(sums, np.int64)[:, None]
    n_nodes, n_features = len(hist), len(offsets) - 1
    nodes, left_sums = np.zeros(n_nodes, NODE), np.full_like(sums, -1)
    nodes["slot"], nodes["lower"], nodes["upper"], nodes["kind"] = np.arange(n_nodes)[::-1], lower, upper, NUMERIC
    nodes["gain"], nodes["feature"], nodes["bin"] = number_gain, number_feature, 77
    columns, n_categories = np.arange(1, n_features, dtype=np.int32), np.diff(offsets) - 1
    n_categories[0] = 0
    most, shape = max(ROOM, int(n_categories.max())), (n_nodes, len(columns))
    cats = np.full((n_nodes, count_words(n_categories)), 0xA5A5A5A5, np.uint32)
    mask = np.zeros((0, n_features), np.uint8) if mask is None else np.asarray(mask, np.uint8)
    evaluate_category_splits(gain.function)(
        np.arange(n_nodes, dtype=np.int32), nodes, sums, left_sums, cats, np.ascontiguousarray(hist[::-1]), columns, offsets,
        np.arange(n_features, dtype=np.int32), mask, 1 / np.array([scales], np.float64), np.zeros(1, np.int32),
        reg_lambda, reg_alpha, max_delta_step, min_child_weight,
        some_rules(**rules), np.array(gain.parameters, np.float64), np.empty(shape), np.empty(shape, np.int64),
        np.empty((n_threads, most), np.int32), np.empty((n_threads, most)), n_threads,
    )  # fmt: skip
    return nodes, left_sums[:, 0], cats


def set_of(cats):
    """The categories of a node's words."""
    bits = np.unpackbits(cats[1:].view(np.uint8), bitorder="little")
    assert cats[0] == len(bits)
    return set(np.flatnonzero(bits).tolist())


def best_of(categories, missing=(0, 0), **settings):
    """(gain, categories on the right, default_left, sums of the left child) of one feature; None without a split."""
    hist, sums, offsets = lay_out([categories], missing)
    nodes, left_sums, cats = find_sets(hist[None], sums[None], offsets, **settings)
    if nodes["gain"][0] == NO_GAIN:
        return None
    assert (nodes["kind"][0], nodes["feature"][0], nodes["bin"][0]) == (CATEGORICAL, 1, 0)
    return nodes["gain"][0], set_of(cats[0]), nodes["default_left"][0], left_sums[0].tolist()


# ---- by hand


def test_of_few_categories_one_is_listed():
    # G = 0, H = 4, λ = 1: {0} 36/2 + 36/4 = 27, {1} 16/3 + 16/3, {2} 4/2 + 4/4
    assert best_of([(-6, 1), (4, 2), (2, 1)]) == (27, {0}, 1, [6, 3])


def test_of_many_categories_the_first_or_last_in_order_are_listed():
    # G/(H + 1): −2, 1.5, −1.5, 2; in this order 0, 2, 1, 3. {0, 2} | {1, 3}: 49/4 + 49/4, H = 6
    categories = [(-4, 1), (3, 1), (-3, 1), (4, 1)]
    assert best_of(categories) == (49 / 3 + 49 / 3, {0, 2}, 1, [7, 2])
    assert best_of(categories, max_cat_threshold=1) == (16 / 2 + 16 / 4, {0}, 1, [4, 3])
    assert best_of([(-1, 1), (-1, 1), (-1, 1), (3, 1)], max_cat_threshold=1) == (9 / 4 + 9 / 2, {3}, 1, [-3, 3])


def test_missing_rows_are_tried_on_both_sides():
    # right {0} and missing: (−9, 2), left (9, 3)
    assert best_of([(-6, 1), (5, 2), (4, 1)], missing=(-3, 1)) == (81 / 3 + 81 / 4, {0}, 0, [9, 3])
    assert best_of([(-6, 1), (5, 2), (4, 1)], missing=(3, 1))[1:] == ({0}, 1, [12, 4])


@pytest.mark.parametrize("n_empty", [0, 3])
def test_all_present_against_missing_is_a_candidate(n_empty):
    categories = [(0, 0)] * n_empty + [(1, 1)] * 4
    present = set(range(n_empty, n_empty + 4))
    assert best_of(categories, missing=(-4, 2)) == (16 / 3 + 16 / 5, present, 1, [-4, 2])
    assert best_of(categories, missing=(-4, 2), max_cat_threshold=3)[1] < present


def test_categories_that_the_node_lacks_go_left():
    assert best_of([(0, 0), (-4, 1), (0, 0), (3, 1), (0, 0), (5, 2)])[1] == {1}
    assert best_of([(0, 0), (-4, 1), (-4, 1), (0, 0), (5, 2)], max_cat_threshold=1)[1] == {4}


def test_one_category_without_missing_rows_has_no_split():
    assert best_of([(5, 3)]) is None and best_of([(0, 0), (5, 3), (0, 0), (0, 0), (0, 0)]) is None
    assert best_of([]) is None


# ---- ties: fewer categories, the first before the last, missing left


def test_ties_go_to_the_smaller_set_then_to_the_first_categories():
    # {0, 1} | {2, 3} either way round; both lists are as long
    assert best_of([(-3, 1), (-3, 1), (3, 1), (3, 1)])[1] == {0, 1}
    # one against three: the last is the shorter list
    assert best_of([(-1, 1), (-1, 1), (-1, 1), (9, 1)])[1] == {3}
    # without a signal in the order, categories keep their numbers
    assert best_of([(3, 1), (-3, 1), (3, 1), (-3, 1)])[1] == {1, 3}
    assert best_of([(-3, 1), (0, 1), (3, 1)])[1] == {0}  # one of few


def test_ties_go_to_missing_left():
    """(−12, 4) against (12, 5), or (−12, 5) against (12, 4)."""
    assert best_of([(-6, 2), (-6, 2), (6, 2), (6, 2)], missing=(0, 1))[1:3] == ({0, 1}, 1)
    assert best_of([(-6, 2), (6, 2)])[2] == 1


def test_a_split_of_numbers_stays_where_it_gains_as_much_on_a_lower_feature():
    hist, sums, offsets = lay_out([[(-6, 1), (4, 2), (2, 1)]] * 2, (0, 0))  # both gain 27
    for number_gain, number_feature, kind, feature in [
        (27, 0, NUMERIC, 0), (27, 1, CATEGORICAL, 1), (26.9, 0, CATEGORICAL, 1), (27.1, 9, NUMERIC, 9),
        (NO_GAIN, 0, CATEGORICAL, 1),
    ]:  # fmt: skip
        nodes, left_sums, cats = find_sets(
            hist[None], sums[None], offsets, number_gain=number_gain, number_feature=number_feature
        )
        assert (nodes["kind"][0], nodes["feature"][0]) == (kind, feature)
        if kind == NUMERIC:
            assert nodes["gain"][0] == number_gain and nodes["bin"][0] == 77
            assert left_sums[0].tolist() == [-1, -1] and (cats == 0xA5A5A5A5).all()
    mask = [[1, 0, 1]]
    assert find_sets(hist[None], sums[None], offsets, mask=mask)[0]["feature"][0] == 2
    assert find_sets(hist[None], sums[None], offsets, mask=[[1, 0, 0]])[0]["gain"][0] == NO_GAIN


# ---- brakes


def test_brakes_shrink_order_and_gain():
    categories = [(-4, 1), (-30, 20), (3, 2), (31, 21), (0, 5)]
    gain, listed, _, _ = best_of(categories)
    assert listed == {0, 1}  # −2, −1.43, 1, 1.41, 0
    # −4/102 is nearer to 0 than −30/121: the category of one row comes behind
    assert best_of(categories, cat_smooth=100.0, max_cat_threshold=1, reg_lambda=1.0)[1] == {3}
    lower, _, _, _ = best_of(categories, cat_l2=10.0)
    assert lower == pytest.approx(34**2 / 32 + 34**2 / 39)  # λ + cat_l2 = 11
    assert gain == pytest.approx(34**2 / 22 + 34**2 / 29)


def test_children_of_sets_need_the_group():
    categories = [(-9, 1), (1, 4), (4, 4), (4, 4)]
    assert best_of(categories)[1] == {0}
    assert best_of(categories, min_data_per_group=2.0)[1] == {0, 1}
    assert best_of(categories[:3], min_data_per_group=2.0)[1] == {0}  # not of one among few


def test_light_children_are_no_candidates():
    assert best_of([(-9, 1), (1, 4), (4, 4), (4, 4)], min_child_weight=2.0)[1] == {0, 1}
    assert best_of([(-9, 0), (1, 4)]) is None


def normal_categories(n_categories, hess, spread=0.0):
    """[(g, h)] of categories whose gradients have the variance h, in units of 1/64; spread : deviation of what they differ by."""
    rng = np.random.default_rng(n_categories)
    grad = np.sqrt(hess) * rng.normal(size=n_categories) + hess * spread * rng.normal(size=n_categories)
    return [(round(64 * g), round(64 * h)) for g, h in zip(grad - grad.mean(), np.broadcast_to(hess, n_categories))]


@pytest.mark.parametrize("n_categories", [30, 300, 3000])
@pytest.mark.parametrize("listed", [0.05, 0.5, 0.9])
def test_the_gain_of_chance_is_that_of_the_first_categories_in_order(n_categories, listed):
    """Of equal categories without any difference: the approximation is up to 22 % less; beyond that, five standard errors."""
    rng = np.random.default_rng(n_categories)
    grad = np.sort(rng.normal(size=(400 if n_categories < 3000 else 50, n_categories)), axis=1)
    m = round(listed * n_categories)
    first, total = grad[:, :m].sum(axis=1), grad.sum(axis=1)
    gains = first**2 / m + (total - first) ** 2 / (n_categories - m) - total**2 / n_categories
    error = 5 * gains.std() / np.sqrt(len(gains))
    expected = noise_gain(m, n_categories, n_categories * root_of(1), 1.0) + 3
    assert 0.78 * gains.mean() - error < expected < gains.mean() + error


def test_categories_that_differ_by_chance_alone_are_not_split():
    noise, signal = normal_categories(200, 50.0), normal_categories(200, 50.0, spread=1.0)
    settings = {"scales": (64.0, 64.0), "max_cat_threshold": 200}
    left = best_of(noise, cat_noise=2.0, **settings)
    assert best_of(noise, **settings)[0] > 100 and (left is None or left[0] < 10)  # χ² of one degree: 10 once in 600
    gain, listed, _, _ = best_of(signal, **settings)
    reduced, same, _, _ = best_of(signal, cat_noise=2.0, **settings)
    assert len(same & listed) > 0.8 * len(same) and 0.6 * gain < reduced < gain - 100


def test_light_categories_are_not_listed():
    categories = [(-3, 1), (-9, 3), (4, 4), (8, 4), (2, 1)]
    assert best_of(categories)[1] == {0, 1}
    # 0 and 4 stay on the left: {2, 3} 12²/9 + 10²/6, {1} 9²/4 + 11²/11
    assert best_of(categories, cat_noise=2.0)[1:] == ({2, 3}, 1, [-10, 5])
    assert best_of([(-2, 1), (2, 1), (-2, 1), (2, 1)], cat_noise=2.0) is None
    assert best_of([(-9, 1), (9, 1)], cat_noise=2.0)[1] == {0}  # one of few


def test_a_light_category_that_tells_by_itself_is_listed():
    """Of 1,000 rows an event every 20th: 10 rows weigh 0.475. Ten events of them are no chance, three may be."""
    scales = 2.0**20, 2.0**20
    rare, events = 10 * 0.05 * 0.95, lambda n: 0.05 * (10 - n) - 0.95 * n

    def best(n_events):
        categories = [(events(n_events), rare)] + [(0.5 * (-1) ** i, 4.75) for i in range(9)]
        units = [(round(g * 2**20), round(h * 2**20)) for g, h in categories]
        return best_of(units, cat_noise=2.0, scales=scales, min_child_weight=0.1)

    assert best(10)[1] == {0}
    assert best(3) is None or 0 not in best(3)[1]


def test_light_categories_are_listed_where_all_of_them_tell():
    """1,000 categories of 6 rows, each of one class or, by chance, of any."""
    rng, scales = np.random.default_rng(0), (16.0, 16.0)
    pure = [(48 * (-1) ** c, 24) for c in range(1000)]
    mixed = [(int(16 * g), 24) for g in rng.binomial(6, 0.5, 1000) - 3]
    settings = {"scales": scales, "max_cat_threshold": 1000}
    assert best_of(pure, cat_noise=2.0, **settings)[1] in ({*range(0, 1000, 2)}, {*range(1, 1000, 2)})
    assert best_of(mixed, **settings)[0] > 100 and best_of(mixed, cat_noise=2.0, **settings) is None


# ---- against every candidate


def score(g, h, s):
    weight = optimal_weight(g, h, s["reg_lambda"], s["reg_alpha"], s["max_delta_step"], s["lower"], s["upper"])
    if s["max_delta_step"] or s["lower"] > -np.inf or s["upper"] < np.inf:
        return node_score_at(g, h, weight, s["reg_lambda"], s["reg_alpha"])
    return node_score(g, h, s["reg_lambda"], s["reg_alpha"])


def candidates(categories, missing, s, rules):
    """(gain, listed, missing left) of each, the first of equals first."""
    total = np.sum(categories, axis=0) + missing
    held, noise = [c for c, (_, h) in enumerate(categories) if h > 0], 0.0
    takes_one = len(categories) < rules["max_cat_to_onehot"]
    least, children = s["min_child_weight"], s
    if takes_one:
        lists = [[c] for c in held]
    else:
        noise = rules["cat_noise"]
        own = np.array([categories], np.int64)
        sums, units = [tuple(map(int, total))], [(1.0, 1.0)]
        held = take_part(own, held, [h for _, h in categories], sums, units, noise, *of_light(rules).values())
        held.sort(key=lambda c: (categories[c][0] / (categories[c][1] + (s["reg_lambda"] + rules["cat_smooth"])), c))
        sizes = range(1, min(len(held), rules["max_cat_threshold"]) + 1)
        lists = [part for m in sizes for part in (held[:m], held[-m:])]
        least = max(least, rules["min_data_per_group"])
        children = {**s, "reg_lambda": s["reg_lambda"] + rules["cat_l2"]}
    for listed in lists:
        hess = [categories[c][1] for c in held]
        by_chance = noise_gain(sum(categories[c][1] for c in listed), sum(hess), sum(map(root_of, hess)), noise)
        for missing_left in (True, False):
            right = np.sum([categories[c] for c in listed], axis=0) + (0 if missing_left else np.array(missing))
            left = total - right
            if min(left[1], right[1]) >= max(least, 1):
                gain = -score(*map(float, total), s) + (score(*map(float, left), children) + score(*map(float, right), children))
                gain -= by_chance
                yield gain, set(listed), missing_left


SETTINGS = st.fixed_dictionaries({
    "reg_lambda": st.sampled_from([0.0, 1.0, 2.5]), "reg_alpha": st.sampled_from([0.0, 0.5]),
    "max_delta_step": st.sampled_from([0.0, 0.25]), "min_child_weight": st.sampled_from([0.0, 2.0]),
    "lower": st.sampled_from([-np.inf, -0.5]), "upper": st.sampled_from([np.inf, 0.25]),
})  # fmt: skip
ANY_RULES = st.fixed_dictionaries({
    "max_cat_to_onehot": st.sampled_from([1, 4, 50]), "max_cat_threshold": st.sampled_from([1, 2, 64]),
    "cat_smooth": st.sampled_from([0.0, 3.0]), "cat_l2": st.sampled_from([0.0, 5.0]),
    "min_data_per_group": st.sampled_from([0.0, 4.0]), "cat_noise": st.sampled_from([0.0, 0.5, 2.0]),
    "cat_spread": st.sampled_from([1, 4]),  # times cat_noise
    "cat_step": st.sampled_from([0.25, 2.0]),
}).map(lambda rules: rules | {"cat_spread": rules["cat_spread"] * rules["cat_noise"]})  # fmt: skip


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 60), st.booleans())
def test_of_many_categories_the_ends_of_the_order_are_enough(seed, most, n_more, has_ties):
    """A list of at most a few; as a full sort gives it, where less than eight times as many are held, and where more are."""
    rng = np.random.default_rng(seed)
    categories = random_categories(rng, 8 * most + n_more, 3 if has_ties else 1000)
    rules = {**RULES, "max_cat_to_onehot": 1, "max_cat_threshold": most}
    s = {"reg_lambda": 1.0, "reg_alpha": 0.0, "max_delta_step": 0.0, "min_child_weight": 0.0, "lower": -np.inf, "upper": np.inf}
    best = None
    for gain, listed, _ in candidates(categories, (0, 0), s, rules):
        if gain > 1e-6 and (best is None or gain_rank(gain) > gain_rank(best[0])):
            best = gain, listed
    found = best_of(categories, max_cat_to_onehot=1, max_cat_threshold=most)
    assert (found and found[:2]) == best


@numba.njit
def sort_ends(n, order, keys):
    category_splits.sort_ends(n, order, keys)


@pytest.mark.parametrize("n", [1, 2, 17, 64])
@pytest.mark.parametrize("keys", ["normal", "few values", "all equal", "equal but one", "skewed", "tiny and huge", "falling"])
def test_the_ends_are_those_of_a_stable_sort(n, keys):
    rng, size = np.random.default_rng(n), 8 * n + 400
    keys = {
        "normal": rng.normal(size=size), "few values": rng.integers(0, 5, size) / 3, "all equal": np.full(size, -0.5),
        "equal but one": np.where(np.arange(size) == size // 2, -1e-9, 0.0), "skewed": np.exp(rng.normal(size=size) * 20),
        "tiny and huge": rng.choice([-1e300, -1e-300, 0.0, 1e-300, 1e300], size), "falling": -np.arange(size) ** 3.0,
    }[keys]  # fmt: skip
    order = np.sort(rng.choice(10 * size, size, replace=False)).astype(np.int32)
    expected, found = order[np.argsort(keys, kind="stable")], order.copy()
    sort_ends(n, found, keys)
    assert found[:n].tolist() == expected[:n].tolist() and found[-n:].tolist() == expected[-n:].tolist()


def random_categories(rng, n, largest=9):
    """Some without hessian, which stay on the left with their gradients."""
    return [(int(rng.integers(-largest, largest + 1)), int(hess)) for hess in rng.integers(0, largest, n)]


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans(), SETTINGS, ANY_RULES)
def test_random_nodes_get_the_best_candidate(seed, n, has_missing, s, rules):
    rng = np.random.default_rng(seed)
    categories = random_categories(rng, n)
    missing = (int(rng.integers(-9, 10)), int(rng.integers(1, 9))) if has_missing else (0, 0)
    best = None
    total = np.sum(categories, axis=0) + missing
    parent = score(*map(float, total), s) if total[1] else 0.0
    for gain, listed, missing_left in candidates(categories, missing, s, rules):
        if gain > max(1e-6, 2.0**-44 * parent) and (best is None or gain_rank(gain) > gain_rank(best[0])):
            best = gain, listed, int(missing_left)
    found = best_of(categories, missing, **s, **rules)
    assert (found and found[:3]) == best
    if found:
        right = np.sum([categories[c] for c in best[1]], axis=0) + np.array(missing) * (1 - best[2])
        assert found[3] == (total - right).tolist()


def every_set(held):
    return chain.from_iterable(combinations(held, m) for m in range(1, len(held) + 1))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("has_missing", [False, True])
def test_the_order_finds_the_best_of_all_sets(seed, has_missing):
    """With λ = 0 and sums as squared error has them; the same partition, or one of its equals."""
    rng = np.random.default_rng(seed)
    categories = random_categories(rng, int(rng.integers(4, 11)), 30)
    missing = np.array((20, 7) if has_missing else (0, 0))
    held, total, best = [c for c, (_, h) in enumerate(categories) if h > 0], np.sum(categories, axis=0) + missing, 0.0
    for listed in every_set(held):
        for right in {tuple(np.sum([categories[c] for c in listed], axis=0) + add) for add in ((0, 0), tuple(missing))}:
            left = total - right
            if left[1] > 0:
                best = max(best, left[0] ** 2 / left[1] + right[0] ** 2 / right[1] - total[0] ** 2 / total[1])
    gain, *_ = best_of(categories, missing, reg_lambda=0.0)
    assert gain_rank(gain) == pytest.approx(gain_rank(best), rel=2.0**-15)  # the smaller of equal ranks wins by its order


@pytest.mark.parametrize("n_threads", [1, 3])
def test_every_node_reads_its_own_histogram(n_threads):
    rng = np.random.default_rng(5)
    features = [[random_categories(rng, n) for n in (3, 6, 40)] for _ in range(7)]
    for own in features:  # all features sum to the same
        for categories in own[:2]:
            g, h = np.sum(own[2], axis=0) - np.sum(categories, axis=0)
            categories[0] = (categories[0][0] + int(g), categories[0][1] + int(h))
    laid = [lay_out(own, (0, 0)) for own in features]
    hist, sums = np.stack([node[0] for node in laid]), np.stack([node[1] for node in laid])
    nodes, left_sums, cats = find_sets(hist, sums, laid[0][2], n_threads=n_threads)
    for i, own in enumerate(features):
        found = [best_of(categories) for categories in own]
        best = max(range(3), key=lambda f: (gain_rank(found[f][0]), -f))  # noqa: B023 - used at once
        assert (nodes["gain"][i], set_of(cats[i]), left_sums[i].tolist()) == (found[best][0], found[best][1], found[best][3])
        assert nodes["feature"][i] == 1 + best
