"""kernels/category_vectors.py: the best set of categories for several outputs, against trying every candidate, and every set."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_backend import NaiveTraining, _chance, take_part
from test_category_splits import ANY_RULES, best_of, of_light, set_of, some_rules

from gpuboost.kernels.category_splits import count_words, root_of
from gpuboost.kernels.category_vectors import evaluate_category_vectors_cpu, noise_gain_of_outputs
from gpuboost.kernels.scalar import gain_rank, node_score, node_score_at, optimal_weight
from gpuboost.kernels.short_sorts import ROOM
from gpuboost.kernels.structs import CATEGORICAL, NO_GAIN, NODE, NUMERIC

SETTINGS = st.fixed_dictionaries({
    "reg_lambda": st.sampled_from([0.0, 1.0, 2.5]), "reg_alpha": st.sampled_from([0.0, 0.5]),
    "max_delta_step": st.sampled_from([0.0, 0.25]), "min_child_weight": st.sampled_from([0.0, 2.0]),
})  # fmt: skip


def find_vector_sets(hist, sums, offsets, *, mask=None, scales=None, number_gain=NO_GAIN, number_feature=0, reg_lambda=1.0,
                     reg_alpha=0.0, max_delta_step=0.0, min_child_weight=0.0, n_threads=1, **rules):  # fmt: skip
    """Adapter: (nodes, left_sums, cats) after evaluating all nodes. hist : int64 (n_nodes, n_outputs, total_bins, 2), all
    features of categories. sums : int64 (n_nodes, n_outputs, 2). scales : of each output."""
    hist, sums = np.asarray(hist, np.int64), np.asarray(sums, np.int64)
    n_nodes, n_outputs = sums.shape[:2]
    nodes, left_sums = np.zeros(n_nodes, NODE), np.full_like(sums, -1)
    nodes["slot"], nodes["kind"] = np.arange(n_nodes)[::-1], NUMERIC
    nodes["gain"], nodes["feature"], nodes["bin"] = number_gain, number_feature, 77
    columns, n_categories = np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets) - 1
    cats, shape = np.full((n_nodes, count_words(n_categories)), 0xA5A5A5A5, np.uint32), (n_nodes, len(columns))
    most = max(ROOM, int(n_categories.max()))
    mask = np.zeros((0, len(columns)), np.uint8) if mask is None else np.asarray(mask, np.uint8)
    scales = np.ones((n_outputs, 2)) if scales is None else np.array(scales, np.float64)
    evaluate_category_vectors_cpu(
        np.arange(n_nodes, dtype=np.int32), nodes, sums, left_sums, cats, np.ascontiguousarray(hist[::-1]), columns, offsets,
        columns, mask, 1 / scales, np.zeros(1, np.int32), reg_lambda, reg_alpha, max_delta_step, min_child_weight,
        some_rules(**rules), np.empty(shape), np.empty(shape, np.int64), np.empty((n_threads, most), np.int32),
        np.empty((n_threads, most)), n_threads,
    )  # fmt: skip
    return nodes, left_sums, cats


def lay_out(categories, missing=0):
    """(hist, sums, offsets) of one node and feature. categories : int64 (n_outputs, n_categories, 2), behind which is a bin for
    no category. missing : int64 (n_outputs, 2)."""
    categories = np.asarray(categories, np.int64)
    hist = np.concatenate([categories, np.zeros_like(categories[:, :1])], axis=1)
    return hist[None], (categories.sum(axis=1) + missing)[None], np.array([0, hist.shape[1]], np.int32)


def best_vector_set(categories, missing=0, **options):
    """(gain, categories on the right, default_left, sums of the left child); None without a split."""
    nodes, left_sums, cats = find_vector_sets(*lay_out(categories, missing), **options)
    if nodes["gain"][0] == NO_GAIN:
        return None
    assert (nodes["kind"][0], nodes["feature"][0], nodes["bin"][0]) == (CATEGORICAL, 0, 0)
    return nodes["gain"][0], set_of(cats[0]), nodes["default_left"][0], left_sums[0].tolist()


def random_vectors(rng, n_outputs, n, largest=9, rank=None):
    """int64 (n_outputs, n, 2). rank : of the matrix of their values; None: some are without hessian in some outputs."""
    hess = rng.integers(0, largest, (n_outputs, n))
    grad = rng.integers(-largest, largest + 1, (n_outputs, n))
    if rank is not None:
        hess = np.tile(rng.integers(1, largest, n), (n_outputs, 1))
        grad = hess * (rng.integers(-9, 10, (n_outputs, rank)) @ rng.integers(-9, 10, (rank, n)))
    return np.stack([np.where(hess > 0, grad, 0), hess], axis=-1)


# ---- by hand


def test_of_few_categories_one_is_listed():
    # λ = 1. {0} on the right: 36/2 + 36/4 of the first output, as in test_category_splits; of the second 4/2 + 4/4, G = 0
    assert best_vector_set([[(-6, 1), (4, 2), (2, 1)], [(2, 1), (-1, 2), (-1, 1)]]) == (30, {0}, 1, [[6, 3], [-2, 3]])


def test_scores_of_all_outputs_choose_the_set():
    """Either output alone would list one category; their order by the first is 2 0 1 3, by the second 2 1 0 3."""
    first, second = [(-2, 1), (2, 1), (-9, 1), (9, 1)], [(1, 1), (-1, 1), (-9, 1), (9, 1)]
    gain, listed, _, left = best_vector_set([first, second])
    assert listed == {2, 0} and gain == 4 * 11**2 / 3 / 2 + 2 * 8**2 / 3  # each side: H = 2
    assert left == [[11, 2], [8, 2]]


def test_missing_rows_are_tried_on_both_sides():
    categories = [[(-6, 1), (5, 2), (4, 1)], [(-6, 1), (5, 2), (4, 1)]]
    assert best_vector_set(categories, [(-3, 1), (-3, 1)]) == (2 * (81 / 3 + 81 / 4), {0}, 0, [[9, 3]] * 2)
    assert best_vector_set(categories, [(3, 1), (3, 1)])[1:] == ({0}, 1, [[12, 4]] * 2)


def test_all_present_against_missing_is_a_candidate():
    assert best_vector_set([[(1, 1)] * 4] * 2, [(-4, 2)] * 2) == (2 * (16 / 3 + 16 / 5), {0, 1, 2, 3}, 1, [[-4, 2]] * 2)


def test_an_output_without_hessian_adds_nothing():
    """Labels may be missing for an output in every row of a category, or of the node; also where nothing is regularised."""
    one = [(-4, 1), (3, 1), (-3, 1), (4, 1)]
    expected = best_of(one, reg_lambda=0.0)
    found = best_vector_set([one, [(0, 0)] * 4], reg_lambda=0.0)
    assert found[:3] == expected[:3] and found[3] == [expected[3], [0, 0]]
    partly = best_vector_set([one, [(-1, 1), (0, 0), (0, 0), (2, 1)]], reg_lambda=0.0)
    assert partly[1] == {0, 2} and np.isfinite(partly[0])


def test_a_split_of_numbers_stays_where_it_gains_as_much_on_a_lower_feature():
    hist, sums, offsets = lay_out([[(-6, 1), (4, 2), (2, 1)], [(2, 1), (-1, 2), (-1, 1)]])  # 30
    both = np.concatenate([hist, hist], axis=2), sums, np.array([0, 4, 8], np.int32)
    for number_gain, number_feature, kind, feature in [(30, 0, CATEGORICAL, 0), (31, 0, NUMERIC, 0), (29, 1, CATEGORICAL, 0)]:
        nodes, _, cats = find_vector_sets(*both, number_gain=number_gain, number_feature=number_feature)
        assert (nodes["kind"][0], nodes["feature"][0]) == (kind, feature)
    mask = [[0, 1]]
    assert find_vector_sets(*both, mask=mask)[0]["feature"][0] == 1
    assert find_vector_sets(*both, mask=mask, number_gain=30, number_feature=0)[0]["kind"][0] == NUMERIC


def test_min_child_weight_and_group_are_of_the_mean_over_outputs():
    categories = [[(-9, 1), (1, 4), (4, 4), (4, 4)], [(-9, 3), (1, 4), (4, 4), (4, 4)]]  # {0} weighs 2 on the mean
    assert best_vector_set(categories, min_child_weight=2.0)[1] == {0}
    assert best_vector_set(categories, min_child_weight=2.1)[1] == {0, 1}
    assert best_vector_set(categories, min_data_per_group=2.1)[1] == {0, 1}


# ---- against every candidate, and every set


def gain_of(left, right, total, s, children):
    def scores(sums, s):
        for g, h in np.asarray(sums, float).tolist():
            if s["max_delta_step"]:
                weight = optimal_weight(g, h, s["reg_lambda"], s["reg_alpha"], s["max_delta_step"], -np.inf, np.inf)
            yield 0.0 if h <= 0 else node_score_at(g, h, weight, s["reg_lambda"], s["reg_alpha"]) if s["max_delta_step"] else (
                node_score(g, h, s["reg_lambda"], s["reg_alpha"])
            )

    parent = 0.0
    for score in scores(total, s):  # sum() is more exact than the kernel from Python 3.12 on
        parent += score
    gain = -parent
    for of_left, of_right in zip(scores(left, children), scores(right, children)):
        gain += of_left + of_right
    return gain


def candidates(categories, missing, s, rules):
    """(gain, listed, missing left) of each, the first of equals first."""
    n_outputs, n, _ = categories.shape
    total, weights = categories.sum(axis=1) + missing, categories[:, :, 1].sum(axis=0).astype(float)
    held = np.flatnonzero(weights > 0).tolist()
    children, least, noise = s, s["min_child_weight"], 0.0
    if n < rules["max_cat_to_onehot"]:
        lists = [[c] for c in held]
    else:
        noise = rules["cat_noise"]
        light = of_light(rules).values()
        held = take_part(categories, held, weights, total.tolist(), [(1.0, 1.0)] * n_outputs, noise, *light)
        smooth, units = s["reg_lambda"] + rules["cat_smooth"], [[1.0, 1.0]] * n_outputs
        keys = NaiveTraining._keys_of_categories(None, categories, weights.tolist(), held, total.tolist(), units, smooth)
        held.sort(key=lambda c: (keys[c], c))
        lists = [part for m in range(1, min(len(held), rules["max_cat_threshold"]) + 1) for part in (held[:m], held[-m:])]
        children = {**s, "reg_lambda": s["reg_lambda"] + rules["cat_l2"]}
        least = max(least, rules["min_data_per_group"])
    for listed in lists:
        of_listed = categories[:, listed].sum(axis=1)
        units = [[1.0, 1.0]] * n_outputs
        by_chance = noise and _chance(categories[:, held, 1].tolist(), of_listed[:, 1].tolist(), units, noise)
        for missing_left in (True, False):
            right = of_listed + (0 if missing_left else missing)
            left = total - right
            if min(left[:, 1].sum(), right[:, 1].sum()) >= max(least * n_outputs, 1):
                yield gain_of(left, right, total, s, children) - by_chance, set(listed), missing_left


@settings(max_examples=120)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(1, 30), st.booleans(), SETTINGS, ANY_RULES)
def test_random_nodes_get_the_best_candidate(seed, n_outputs, n, has_missing, s, rules):
    rng = np.random.default_rng(seed)
    categories, missing = random_vectors(rng, n_outputs, n), np.zeros((n_outputs, 2), np.int64)
    if has_missing:
        missing = np.stack([rng.integers(-9, 10, n_outputs), rng.integers(1, 9, n_outputs)], axis=1)
    total, best = categories.sum(axis=1) + missing, None
    parent = -gain_of(np.zeros_like(total), np.zeros_like(total), total, s, s)
    for gain, listed, missing_left in candidates(categories, missing, s, rules):
        if gain > max(1e-6, 2.0**-44 * parent) and (best is None or gain_rank(gain) > gain_rank(best[0])):
            best = gain, listed, int(missing_left)
    found = best_vector_set(categories, missing, **s, **rules)
    assert (found and found[:3]) == best
    if found:
        assert found[3] == (total - categories[:, sorted(best[1])].sum(axis=1) - missing * (1 - best[2])).tolist()


def best_of_every_set(categories, reg_lambda):
    n, best, total = categories.shape[1], 0.0, categories.sum(axis=1)
    s = {"reg_lambda": reg_lambda, "reg_alpha": 0.0, "max_delta_step": 0.0}
    for listed in chain.from_iterable(combinations(range(1, n), m) for m in range(1, n)):
        right = categories[:, list(listed)].sum(axis=1)
        best = max(best, gain_of(total - right, right, total, s, s))
    return best


@pytest.mark.parametrize("seed", range(10))
def test_categories_along_a_line_get_the_best_of_all_sets(seed):
    """Where values differ in one direction, along it is Fisher's order."""
    categories = random_vectors(np.random.default_rng(seed), 3, 8, 30, rank=1)
    gain, *_ = best_vector_set(categories, reg_lambda=0.0)
    assert gain == pytest.approx(best_of_every_set(categories, 0.0), rel=2.0**-14)  # of equal ranks the first


@pytest.mark.parametrize("n_outputs, rank", [(2, 2), (3, 2), (6, 3), (8, 8)])
def test_the_direction_finds_nearly_the_best_of_all_sets(n_outputs, rank):
    """And more than either the best output alone or the weights of the node (XGBoost 3.4) order them for."""
    rng, shares = np.random.default_rng(n_outputs), []
    for _ in range(20):
        categories = random_vectors(rng, n_outputs, 8, 30, rank)
        found, _, _, _ = best_vector_set(categories)
        best = best_of_every_set(categories, 1.0)
        grad, hess = categories[:, :, 0], categories[:, :, 1]
        values, weight = grad / (hess + 1), grad.sum(axis=1) / (hess.sum(axis=1) + 1)
        s = {"reg_lambda": 1.0, "reg_alpha": 0.0, "max_delta_step": 0.0}
        others = []
        for keys in (weight @ values, values[np.argmax(((values - values.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))]):
            cuts = [categories[:, np.argsort(keys)[:m]].sum(axis=1) for m in range(1, 8)]
            total = categories.sum(axis=1)
            others.append(max(gain_of(total - right, right, total, s, s) for right in cuts))
        shares.append(np.array([found, *others]) / best)
    found, by_node, by_output = np.mean(shares, axis=0)
    assert found > 0.97 and found > by_node and found > by_output


def test_one_output_gets_the_gain_that_the_kernel_for_one_finds():
    rng = np.random.default_rng(1)
    for n in (3, 5, 40):
        categories = random_vectors(rng, 1, n, 100)
        expected = best_of([tuple(pair) for pair in categories[0].tolist()], max_cat_threshold=40)
        found = best_vector_set(categories, max_cat_threshold=40)
        assert gain_rank(found[0]) == pytest.approx(gain_rank(expected[0]), rel=2.0**-14)


# ---- chance


@pytest.mark.parametrize("n_outputs", [2, 5, 20])
@pytest.mark.parametrize("listed", [0.2, 0.5, 0.9])
def test_the_gain_of_chance_is_that_of_the_first_categories_along_the_direction(n_outputs, listed):
    """Of equal categories without any difference, by the first principal component; up to 18 % less or 12 % more, and four
    standard errors."""
    n, gains, rng = 100, [], np.random.default_rng(n_outputs)
    m = round(listed * n)
    for _ in range(150):
        grad = rng.normal(size=(n, n_outputs))
        grad -= grad.mean(axis=0)
        along = np.linalg.eigh(grad.T @ grad)[1][:, -1]
        first = grad[np.argsort(grad @ along)[:m]].sum(axis=0)
        gains.append((first**2).sum() * (1 / m + 1 / (n - m)))
    error = 4 * np.std(gains) / np.sqrt(len(gains))
    unit = root_of(1) ** 2 / 2.0**40
    free = 1 + 2 * np.sqrt(n_outputs) + n_outputs - 1
    expected = noise_gain_of_outputs(m * 1.0, n * 1.0, n * unit, float(n_outputs), 1.0) + free
    assert 0.82 * np.mean(gains) - error < expected < 1.12 * np.mean(gains) + error


def test_categories_that_differ_by_chance_alone_are_not_split():
    rng, n = np.random.default_rng(3), 200
    noise = np.sqrt(50.0) * rng.normal(size=(3, n))
    signal = noise + 50.0 * rng.normal(size=(1, n))
    options = {"scales": [(64.0, 64.0)] * 3, "max_cat_threshold": n}
    for grad, is_split in ((noise, False), (signal, True)):
        grad = np.round(64 * (grad - grad.mean(axis=1, keepdims=True)))
        categories = np.stack([grad, np.full((3, n), 3200)], axis=-1)
        free, braked = (best_vector_set(categories, cat_noise=s, **options) for s in (0.0, 2.0))
        assert free[0] > 100 and ((braked is not None and braked[0] > 1000) if is_split else (braked is None or braked[0] < 30))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_every_node_reads_its_own_histogram(n_threads):
    rng, laid = np.random.default_rng(5), []
    for _ in range(6):
        first, second = random_vectors(rng, 2, 9), random_vectors(rng, 2, 17)
        second[:, 0] += first.sum(axis=1) - second.sum(axis=1) + [[0, 400], [0, 400]]
        first[:, 0] += [[0, 400], [0, 400]]
        laid.append((first, second))
    hist = np.stack([np.concatenate([lay_out(part)[0][0] for part in own], axis=1) for own in laid])
    sums = np.stack([own[0].sum(axis=1) for own in laid])
    nodes, left_sums, cats = find_vector_sets(hist, sums, np.array([0, 10, 28], np.int32), n_threads=n_threads)
    for i, own in enumerate(laid):
        found = [best_vector_set(part) for part in own]
        best = max((0, 1), key=lambda f: (gain_rank(found[f][0]), -f))  # noqa: B023 - used at once
        assert (nodes["gain"][i], set_of(cats[i]), left_sums[i].tolist()) == (found[best][0], found[best][1], found[best][3])
        assert nodes["feature"][i] == best
