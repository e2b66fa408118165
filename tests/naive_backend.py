"""The backend contract in plain NumPy and Python loops: slow, and short enough to be checked by reading.

It has no sibling subtraction, no limbs, no packed sums, no work lists and one row list per node. It shares with CpuBackend the
scalar formulas (kernels/scalar.py, those of objectives and metrics), so equal model bytes say that all the rest of the kernels
computes what the contract asks.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
from round_facts import leaf_scales, needs_refinement, output_keys, scales_16

from gpuboost.backend.contract import (
    Backend,
    Coder,
    Gradients,
    LeafQuantiles,
    Memory,
    Predictor,
    Ranker,
    RowReducer,
    Training,
    TrainingRows,
    Trees,
)
from gpuboost.backend.fixed_point import check_finite, round_key, sum_scale, weight_factor
from gpuboost.backend.output_sketch import choose_outputs
from gpuboost.backend.plans import Round, SplitGain
from gpuboost.kernels.category_splits import noise_gain, root_of
from gpuboost.kernels.category_vectors import STEPS, equal_categories, noise_gain_of_outputs
from gpuboost.kernels.column_sampling import LEVEL_DRAW, NODE_DRAW, TREE_DRAW
from gpuboost.kernels.quantise import LIGHT_UNITS, SMALL_UNITS
from gpuboost.kernels.query_terms import AVERAGE_PRECISION, DCG, PRECISION
from gpuboost.kernels.ranked_documents import MAP, NDCG
from gpuboost.kernels.scalar import exp_double, log_double, node_score, node_score_at, optimal_weight
from gpuboost.kernels.sketch import DIGITS, MISSING, NON_FINITE
from gpuboost.model.tree import CategorySets, Tree
from gpuboost.params import Params

__all__ = ["NaiveBackend", "proposed_bins"]

F = np.float32


@dataclass
class _Node:
    tree: int
    parent: int
    depth: int
    rows: np.ndarray  # numbers of the worker's rows in it
    sums: list[tuple[int, int]]  # of all workers, by output
    lower: dict[int, float] = field(default_factory=lambda: defaultdict(lambda: -math.inf))  # bounds on weights, by output
    upper: dict[int, float] = field(default_factory=lambda: defaultdict(lambda: math.inf))
    gain: float = -math.inf
    feature: int = 0
    bin: int = 0
    default_left: int = 0
    listed: frozenset | None = None  # of a split by categories: those that go right
    left_sums: list[tuple[int, int]] = field(default_factory=list)
    left: int = -1
    leaf: int = -1
    cover: float = 0.0
    weight: list[float] = field(default_factory=list)  # by output
    value: list[np.float32] = field(default_factory=list)


class NaiveMemory(Memory):
    name = "host"

    def zeros(self, shape, dtype):
        return np.zeros(shape, dtype)

    def put(self, array):
        return np.array(array)

    def fetch(self, array):
        return array


class NaiveCoder(Coder):
    def count_digits(self, batch, missing, weights, features, level, slots0, slots1, counts) -> None:
        for i, f in enumerate(features):
            for row, x in enumerate(np.asarray(batch[:, f], F)):
                weight = int(weights[row]) if len(weights) else 1
                if np.isnan(x) or x == F(missing):
                    if level == 0:
                        counts[i, MISSING] += weight
                    continue
                bits = int((x + F(0)).view(np.uint32))  # + 0 makes −0 into 0
                key = bits ^ (0xFFFFFFFF if bits >> 31 else 0x80000000)
                digits = key // (DIGITS[1] * DIGITS[2]), key // DIGITS[2] % DIGITS[1], key % DIGITS[2]
                if level == 0:
                    counts[i, digits[0]] += weight
                    counts[i, NON_FINITE] += not abs(x) < np.finfo(F).max
                elif (slot := slots0[i, digits[0]]) > 0:  # 0: not wanted
                    if level == 1:
                        counts[slot, digits[1]] += weight
                    elif (slot := slots1[slot, digits[1]]) > 0:
                        counts[slot, digits[2]] += weight

    def bin_rows(self, batch, missing, cuts, first_row, page) -> int:
        n_lost = 0
        own = slice(first_row, first_row + len(batch))
        for f in range(cuts.n_features):
            values = np.asarray(batch[:, f], F)
            codes = np.searchsorted(cuts.of(f)[:-1], values, side="right")
            codes[np.isnan(values) | (values == F(missing))] = cuts.n_bins[f]
            page.columns[f, own] = codes.astype(page.columns.dtype)
            if len(page.records):
                page.records[own, f] = page.columns[f, own]
            n_lost += int((page.columns[f, own] != codes).sum())
        return n_lost

    def write_records(self, packing, page) -> None:
        if packing is None:
            page.records[:, : len(page.columns)] = page.columns.T
            return
        for group, (first, last) in enumerate(zip(packing.first_member, packing.first_member[1:])):
            for f in packing.members[first:last]:
                for row, code in enumerate(page.columns[f]):
                    page.records[row, group] += packing.luts[f, code]


class NaiveLeafQuantiles(LeafQuantiles):
    """A digit of 8 bits at a time, of the smallest residual that the weight reaches and of the smallest that it passes."""

    def __init__(self, training: "NaiveTraining", alphas: tuple[float, ...]) -> None:
        self.training, self.alphas = training, alphas

    def start(self):
        t = self.training
        ends = [(i, t.outputs[node.tree]) for i, node in enumerate(t.nodes) if node.left < 0 and node.leaf == i]
        self.leaves = {(i, output): [] for i, outputs in ends for output in outputs}  # (key, weight) of their rows
        leaf_of_rows = {(node.tree, row): node.leaf for node in t.nodes for row in node.rows.tolist()}  # children after parents
        for (tree, row), leaf in leaf_of_rows.items():
            for output in t.outputs[tree]:
                scale = t.leaf_scales[output, 1] * weight_factor(t.rows.global_rows)
                residual = t.rows.label[min(output, len(t.rows.label) - 1), row] - t.margin[output, row] + F(0)
                bits = int(residual.view(np.uint32))
                weight = max(1, math.floor(float(t.hess[output, row]) * scale + 0.5))
                self.leaves[leaf, output].append((bits ^ (0xFFFFFFFF if bits >> 31 else 0x80000000), weight))
        self.found = {i: [0, 0] for i in self.leaves}
        return [(0, level) for level in range(4)]

    def count(self, first_node, level):
        self.counts = np.zeros((len(self.leaves), 2, 256), np.int64)
        for counts, (i, rows) in zip(self.counts, self.leaves.items()):
            for k in range(2):
                for key, weight in rows:
                    if key >> 32 - 8 * level == self.found[i][k]:
                        counts[k, key >> 24 - 8 * level & 255] += weight
        return self.counts

    def choose(self, first_node, level) -> None:
        if level == 0:
            self.left = {}
        for counts, i in zip(self.counts.tolist(), self.leaves):
            for k in range(2):
                if level == 0:
                    rank = Fraction(str(self.alphas[i[1]])) * sum(counts[k])
                    self.left[i, k] = (max(1, math.ceil(rank)), min(math.floor(rank) + 1, sum(counts[k])))[k]
                digit = 0
                while digit < 255 and self.left[i, k] > counts[k][digit]:  # none is reached of a leaf without rows
                    self.left[i, k] -= counts[k][digit]
                    digit += 1
                self.found[i][k] = self.found[i][k] * 256 + digit

    def set_leaves(self) -> None:
        t = self.training
        for (i, output), keys in self.found.items():
            bits = [key ^ (0x80000000 if key >> 31 else 0xFFFFFFFF) for key in keys]
            middle = sum(float(np.uint32(b).view(F)) for b in bits) / 2
            t.nodes[i].weight[output - t.outputs[t.nodes[i].tree][0]] = 0.0 if keys[0] > keys[1] else middle
        signs = t.settings.monotone_constraints
        for i, node in reversed(list(enumerate(t.nodes))):
            if node.leaf == i and node.left >= 0 and signs and signs[node.feature]:
                low, high = (self._leaves_below(child) for child in (node.left, node.left + 1)[:: signs[node.feature]])
                largest, smallest = max(leaf.weight[0] for leaf in low), min(leaf.weight[0] for leaf in high)
                if largest > smallest:
                    middle = (largest + smallest) / 2
                    for leaf in low:
                        leaf.weight[0] = min(leaf.weight[0], middle)
                    for leaf in high:
                        leaf.weight[0] = max(leaf.weight[0], middle)
        for i, _ in self.found:
            t.nodes[i].value = [F(weight * t.learning_rate) for weight in t.nodes[i].weight]

    def _leaves_below(self, i):
        node = self.training.nodes[i]
        return [node] if node.left < 0 else [leaf for child in range(2) for leaf in self._leaves_below(node.left + child)]


class NaiveTraining(Training, Gradients, Trees):
    """All of a training in one object."""

    histogram_capacity = 2**31

    def __init__(self, rows: TrainingRows, params: Params, n_trees: int, leaf_size: int) -> None:
        self.gradients = self.trees = self
        self.rows, self.settings = rows, params
        self.outputs = [range(first, first + leaf_size) for first in range(0, n_trees * leaf_size, leaf_size)]  # of each tree
        self.codes = np.concatenate([page.columns for page in rows.binned.pages], axis=1).astype(np.int64)
        self.margin = rows.margin
        self.grad, self.hess = np.zeros(rows.margin.shape, F), np.zeros(rows.margin.shape, F)
        n_searched = params.searched_outputs(leaf_size)
        self.searched = [range(first, first + n_searched) for first in range(0, n_trees * n_searched, n_searched)]
        self.few = self.grad, self.hess  # what splits are searched by
        self.q = np.zeros((n_trees * n_searched, rows.margin.shape[1], 2), np.int64)  # fixed point
        self.drawn = None  # bool (n_rows,): the rows of this round, where they are drawn
        self.nodes, self.n_leaves, self.frontier, self.selected = [], [], [], []
        self.proposed = {}  # by tree or by node: bool (total_bins,)
        self.noise = self.spread = params.usual_cat_noise if params.cat_noise is None else params.cat_noise
        self.step = 0.75 * math.sqrt(self.spread)

    def compute(self, objective):
        label, weight = self.rows.label, self.rows.weight
        margin = self.margin
        for i in range(label.shape[1]):
            w = weight[i] if len(weight) else F(1)
            if objective.row_gradient is not None:
                objective.row_gradient(margin, label, w, i, objective.parameters, self.grad, self.hess)
                continue
            labels = label[:, i] if objective.label_rows == 1 else label[:, i].reshape(-1, objective.label_rows)
            for output, m in enumerate(margin[:, i]):
                y = labels[output if len(labels) > 1 else 0]  # one for all outputs, or one each
                g, h = objective.gradient(m, y if objective.label_rows == 1 else tuple(y), w, output, objective.parameters)
                self.grad[output, i], self.hess[output, i] = _cut(F(g)) * w, _cut(max(F(h), F(0))) * w
                if objective.label_rows == 1 and np.isnan(y):
                    self.grad[output, i], self.hess[output, i] = 0, 0
        return self._largest()

    def set(self, grad, hess, few=None):
        self.grad[...], self.hess[...] = grad, np.maximum(hess, F(0))
        if few is not None:
            self.few = few[0].copy(), np.maximum(few[1], F(0))
        return self._largest()

    def _largest(self):
        return self._largest_of(self.grad, self.hess)

    def _largest_of(self, grad, hess):
        largest = [np.abs(grad).max(axis=1, initial=0), hess.max(axis=1, initial=0)]
        return np.stack(largest, axis=-1).astype(F).view(np.int32).astype(np.int64)

    def start_round(self, plan: Round) -> None:
        self.round_number, self.learning_rate, self.gain, self.plan = plan.number, plan.learning_rate, plan.gain, plan

    def count_magnitudes(self):
        """By exponent and 3 bits, and the 12 bits after them, of ĝ as float32."""
        counts = np.zeros((2048, 2), np.int64)
        for bits in self._magnitudes()[self._kept()].view(np.uint32).tolist():
            counts[bits >> 20] += 1, bits >> 8 & 0xFFF
        return counts

    def _magnitudes(self):
        squares = np.zeros(self.grad.shape[1])
        for g, h in zip(self.grad.astype(np.float64), self.hess.astype(np.float64)):
            squares += g * g + 0.1 * (h * h)
        return np.fmin(np.sqrt(squares), 3e38).astype(F)

    def _kept(self):
        weight = self.rows.weight
        return np.flatnonzero(weight) if len(weight) else np.arange(self.rows.label.shape[1])

    def draw_rows(self, counts):
        n, s = self.rows.global_rows, self.settings
        n_drawn = max(1, int(s.subsample * n + 1e-6))
        if counts is not None:
            mu, magnitudes = _threshold(counts.tolist(), n_drawn), self._magnitudes().tolist()
        keys = [round_key(s.seed, self.round_number, 2**31 + i) for i in range(16)]
        keys = [high << 32 | low for high, low in zip(keys[::2], keys[1::2])]
        self.drawn = np.zeros(self.grad.shape[1], bool)
        largest = np.zeros((len(self.grad), 2), np.int64)
        for i, row in enumerate(self._kept().tolist()):
            place, p = _permuted(self.rows.first_row + i, n, keys), n_drawn / n
            if counts is not None:
                p = 1.0 if magnitudes[row] >= mu and magnitudes[row] > 0 else magnitudes[row] / mu if mu > 0 else 0.0
            self.drawn[row] = place < n_drawn if counts is None else p == 1 or place + 0.5 < n * float(p)
            for output in range(len(self.grad)):
                for k, values in enumerate((self.grad, self.hess)):
                    bits = int(np.abs(values[output, row]).view(np.uint32))
                    if counts is not None and self.drawn[row]:
                        values[output, row] = F(float(values[output, row]) / float(p))
                        bits = int(np.abs(values[output, row]).view(np.uint32))
                    if self.drawn[row] or bits >= 0x7F800000:
                        largest[output, k] = max(largest[output, k], bits)
        self.grad[:, ~self.drawn], self.hess[:, ~self.drawn] = 0, 0
        return largest

    def sum_squares(self, maxima):
        check_finite(maxima)
        exponent = math.frexp(max(np.array(maxima[:, 0], np.uint32).view(F).tolist()))[1]
        scale = Fraction(2) ** min(62 - (max(self.rows.global_rows, 1) - 1).bit_length() - 2 * exponent, 1000)
        self.square_scale, self.exponent = scale, exponent
        squares = [[math.floor(Fraction(g) ** 2 * scale + Fraction(1, 2)) for g in own] for own in self.grad.tolist()]
        return np.array([sum(own) for own in squares], np.int64)

    def choose_noise(self, squares, sums):
        grad = reduce(add, [float(own) / float(self.square_scale) for own in squares.tolist()])
        hess = reduce(add, [float(own[1]) / scale for own, (_, scale) in zip(sums.tolist(), self.scales.tolist())])
        dispersion = grad * len(sums) / (hess * len(squares)) if hess > 0 else math.inf
        self.spread = self.settings.chance * dispersion
        self.noise = min(self.spread, self.settings.usual_cat_noise)
        self.step = 2.0**self.exponent if squares.any() else 0.0

    def sketch(self, squares):
        if self.plan.searches_given:
            if self.drawn is not None:
                self.few[0][:, ~self.drawn], self.few[1][:, ~self.drawn] = 0, 0
            return self._largest_of(*self.few)
        outputs, factors = (part.tolist() for part in choose_outputs(self.plan.sketch, squares.tolist()))
        shape = len(outputs), self.grad.shape[1]
        self.few = np.zeros(shape, F), np.zeros(shape, F)
        for row in range(shape[1]):
            self.few[1][:, row] = reduce(add, self.hess[:, row].tolist()) / len(self.hess)
            for j in range(shape[0]):
                terms = [float(self.grad[i, row]) * factor for i, factor in zip(outputs[j], factors[j])]
                self.few[0][j, row] = reduce(add, terms)
        return self._largest_of(*self.few)

    def quantise(self, maxima, sketched=None):
        check_finite(maxima)
        self.leaf_scales = leaf_scales(maxima, self.rows.global_rows)
        self.scales = scales_16(maxima if sketched is None else sketched)
        return self._round(np.zeros(len(self.scales), bool))

    def refine(self, sums):
        n_rows = max(1, int(self.settings.subsample * self.rows.global_rows + 1e-6))
        refined = needs_refinement(sums, n_rows, self.scales, self.settings)
        if not refined.any():
            return None
        self.scales = self.scales * np.where(refined, 65536.0, 1.0)[:, None]
        return self._round(refined)

    def _round(self, refined):
        """⌊value · scale + u⌋ in 16 bits, or 32 where refined, u from a hash of round, output and the bits of the pair."""
        sums = np.zeros((len(refined), 4), np.int64)
        for output, key in enumerate(output_keys(self.settings.seed, self.round_number, len(refined))):
            grad, hess = self.few[0][output], self.few[1][output]
            random = _mix(_mix(key ^ grad.view(np.uint32)) + hess.view(np.uint32))
            uniforms = random, _mix(random ^ np.uint32(0x9E3779B9))
            limits = (2**31 - 2**16, 2**32 - 1) if refined[output] else (2**15 - 1, 2**16 - 1)
            for k, values in enumerate((grad, hess)):
                scaled = values.astype(np.float64) * self.scales[output, k]
                rounded = np.floor(scaled + uniforms[k] * 2.0**-32)
                self.q[output, :, k] = np.clip(rounded, -limits[k] if k == 0 else 0, limits[k])
            g, h = abs(grad * self.scales[output, 0]), hess * self.scales[output, 1]
            n_quiet = np.count_nonzero((0 < g) & (g < SMALL_UNITS) & (h >= LIGHT_UNITS))
            light = sum(math.floor(units * 65536) for units in h[h < LIGHT_UNITS].tolist())
            sums[output] = *self.q[output].sum(axis=0), n_quiet, light
        return sums

    def start(self, sums) -> None:
        kept = self._kept()
        kept = kept if self.drawn is None else kept[self.drawn[kept]]
        self.nodes = [_Node(t, -1, 0, kept, _pairs(sums[own, :2])) for t, own in enumerate(self.searched)]
        self.n_leaves = [1 for _ in self.outputs]
        self.frontier = list(range(len(self.outputs)))

    def frontier_size(self) -> int:
        return len(self.frontier)

    def build_histograms(self, batch):
        """Every node's from its rows, whatever is asked for."""
        cuts = self.rows.binned.cuts
        self.hist = np.zeros((batch.end - batch.begin, len(self.searched[0]), cuts.total_bins, 2), np.int64)
        for hists, node in zip(self.hist, [self.nodes[i] for i in self.frontier[batch.begin : batch.end]]):
            for f in range(cuts.n_features):
                present = node.rows[self.codes[f, node.rows] < cuts.n_bins[f]]
                for hist, output in zip(hists, self.searched[node.tree]):
                    np.add.at(hist, cuts.offsets[f] + self.codes[f, present], self.q[output, present])
        return self.hist

    def subtract_histograms(self, batch) -> None:
        pass

    def propose_candidates(self, batch) -> None:
        cuts, s = self.rows.binned.cuts, self.settings
        for hist, i in zip(self.hist, self.frontier[batch.begin : batch.end]):
            weights = hist[..., 1].sum(axis=0)
            own = [weights[cuts.offsets[f] : cuts.offsets[f + 1]].tolist() for f in range(cuts.n_features)]
            key = self.nodes[i].tree if s.proposals == "global" else i
            self.proposed[key] = np.concatenate([proposed_bins(hess, s.max_bin) for hess in own])

    def evaluate_splits(self, batch) -> None:
        cuts, s = self.rows.binned.cuts, self.settings
        for i, hist in zip(self.frontier[batch.begin : batch.end], self.hist):
            node = self.nodes[i]
            proposed = np.ones(cuts.total_bins, bool)
            if s.proposals is not None:
                proposed = self.proposed[node.tree if s.proposals == "global" else i]
            scales = self.scales[self.searched[node.tree]].tolist()
            parent, weight = _scores(s, node.sums, scales, node)[0], _weight_of(node.sums, scales)
            threshold = max(1e-6, 2.0**-44 * parent)
            node.gain, best = -math.inf, (-math.inf, 0, 0, 0)  # rank of the gain, −feature, −bin, default_left: larger is better
            node.listed = None
            for f in self._features(i):
                own = hist[:, cuts.offsets[f] : cuts.offsets[f + 1]]
                missing, last = _minus(node.sums, _pairs(own.sum(axis=1))), own.shape[1] - 1
                if cuts.n_categories[f]:
                    for place, (gain, listed, default_left, left) in enumerate(self._sets(node, own, missing, scales, f)):
                        if gain > threshold and (_rank(gain), -f, -place, 0) > best:
                            best = (_rank(gain), -f, -place, default_left)
                            node.gain, node.left_sums, node.listed = gain, left, frozenset(listed)
                    continue
                for b in range(last + 1):
                    if not proposed[cuts.offsets[f] + b] and b < last:
                        continue
                    present = _pairs(own[:, : b + 1].sum(axis=1))
                    for default_left in (0, 1) if b < last and _weight_of(present, scales) > 0 else (0,):
                        left = _plus(present, missing) if default_left else present
                        right = _minus(node.sums, left)
                        lighter = min(_weight_of(left, scales), weight - _weight_of(left, scales))
                        if lighter <= 0 or lighter < s.min_child_weight * len(scales):
                            continue
                        sign, gain = s.monotone_constraints[f] if s.monotone_constraints else 0, -parent
                        for k, sides in enumerate(zip(left, right)):
                            low, high = (_weight(s, side, scales[k], node, k) for side in sides)
                            if sign * low <= sign * high:
                                gain += sum(_score(s, side, scales[k], node, k) for side in sides)
                            elif len(scales) > 1:
                                shared = _weight(_doubled(s), node.sums[k], scales[k], node, k)
                                gain += sum(_score_at(s, side, scales[k], shared) for side in sides)
                            else:
                                gain = -math.inf
                        if self.gain.function is not None:
                            gain = _own_gain(self.gain, s, left[0], right[0], scales[0], node, f)
                        if gain > threshold and (_rank(gain), -f, -b, default_left) > best:
                            best = (_rank(gain), -f, -b, default_left)
                            node.gain, node.left_sums, node.listed = gain, left, None
            node.feature, node.bin, node.default_left = -best[1], -best[2], best[3]
            if node.default_left and node.listed is None:
                node.bin = self._last_tied(node, hist[:, cuts.offsets[node.feature] : cuts.offsets[node.feature + 1]], proposed)

    def _last_tied(self, node, own, proposed):
        """The highest bin for the split's, whose side the missing rows are on: a candidate of the same sums."""
        last, first = node.bin, self.rows.binned.cuts.offsets[node.feature]
        if not any(map(any, _minus(node.sums, _pairs(own.sum(axis=1))))):
            return last
        for b in range(last + 1, own.shape[1] - 1):
            if proposed[first + b]:
                if own[:, last + 1 : b + 1].sum(axis=1).any():
                    break
                last = b
        return last

    def _sets(self, node, own, missing, scales, f):
        """(gain, categories on the right, default_left, sums of the left child) of every candidate of a feature of categories;
        the first of equals comes first."""
        s, n_outputs, noise = self.settings, len(own), 0.0
        weights = [_weight_of(_pairs(own[:, c]), scales) for c in range(own.shape[1])]
        held = [c for c, weight in enumerate(weights) if weight > 0]
        parent, children, lightest = _scores(s, node.sums, scales, node)[0], s, s.min_child_weight
        if own.shape[1] - 1 < s.max_cat_to_onehot:
            lists = [[c] for c in held]
        else:
            noise = self.noise
            held = take_part(own, held, weights, node.sums, scales, noise, self.spread, self.step)
            keys = self._keys_of_categories(own, weights, held, node.sums, scales, s.reg_lambda + s.cat_smooth)
            held.sort(key=lambda c: (keys[c], c))
            lists = [part for m in range(1, min(len(held), s.max_cat_threshold) + 1) for part in (held[:m], held[-m:])]
            children, lightest = replace(s, reg_lambda=s.reg_lambda + s.cat_l2), max(lightest, s.min_data_per_group)
        for listed in lists:
            of_listed = _pairs(own[:, listed].sum(axis=1))
            by_chance = noise and _chance(own[:, held, 1].tolist(), [h for _, h in of_listed], scales, noise)
            for default_left in (1, 0):
                right = _plus(of_listed, [tuple((1 - default_left) * value for value in pair) for pair in missing])
                left = _minus(node.sums, right)
                weight, total = _weight_of(left, scales), _weight_of(node.sums, scales)
                if min(weight, total - weight) > 0 and min(weight, total - weight) >= lightest * n_outputs:
                    gain = -parent
                    for scores in zip(_scores(children, left, scales, node)[1], _scores(children, right, scales, node)[1]):
                        gain += sum(scores)
                    gain -= by_chance
                    if self.gain.function is not None:
                        gain = _own_gain(self.gain, children, left[0], right[0], scales[0], node, f)
                    yield gain, listed, default_left, left

    def _keys_of_categories(self, own, weights, held, sums, scales, smooth):
        """By category, for several outputs along the direction in which they lie farthest apart (kernels/category_vectors.py)."""
        values = [[(g / a) / (h / b + smooth) if h else 0.0 for g, h in one] for one, (a, b) in zip(own.tolist(), scales)]
        if len(own) == 1:
            return values[0]
        outputs, total = range(len(own)), reduce(add, (weights[c] for c in held), 0.0)
        hess = [h / b for (_, h), (_, b) in zip(sums, scales)]
        middle = [reduce(add, (weights[c] * values[k][c] for c in held), 0.0) / total for k in outputs] if held else []
        apart = [hess[k] * reduce(add, (weights[c] * (values[k][c] - middle[k]) ** 2 for c in held), 0.0) for k in outputs]
        direction = [float(k == apart.index(max(apart))) for k in outputs]

        def project():
            return {c: reduce(add, (direction[k] * (values[k][c] - middle[k]) for k in outputs), 0.0) for c in held}

        for _ in range(STEPS):
            keys = project()
            direction = [hess[k] * reduce(add, (weights[c] * keys[c] * values[k][c] for c in held), 0.0) for k in outputs]
            largest = max(map(abs, direction))
            direction = [a / largest for a in direction] if largest > 0 else direction
        return project()

    def _features(self, i: int) -> list[int]:
        """What a node may split on: drawn for the round, of those for its level, then for itself; and allowed below its path."""
        s, node = self.settings, self.nodes[i]
        path, sides, child = set(), [], i
        while (parent := self.nodes[child].parent) >= 0:
            path.add(self.nodes[parent].feature)
            sides.append(child - self.nodes[parent].left)
            child = parent
        drawn = list(range(self.rows.binned.cuts.n_features))
        for share, *words in (
            (s.colsample_bytree, TREE_DRAW), (s.colsample_bylevel, LEVEL_DRAW, node.tree, node.depth),
            (s.colsample_bynode, NODE_DRAW, node.tree, *sides),
        ):  # fmt: skip
            key = round_key(s.seed, self.round_number, *words)
            drawn.sort(key=lambda f: _draw_order(f, key, s.feature_weights))  # noqa: B023 - used at once
            drawn = drawn[: max(1, int(share * len(drawn) + 1e-6))]
        if s.interaction_constraints and path:
            met = set(path).union(*(group for group in s.interaction_constraints if path <= set(group)))
            drawn = [f for f in drawn if f in met]
        return sorted(drawn)

    def select_level(self, max_depth: int, max_leaves: int) -> None:
        self._select(max_depth, max_leaves, is_depthwise=True)

    def select_best(self, max_depth: int, max_leaves: int) -> None:
        self._select(max_depth, max_leaves, is_depthwise=False)

    def _select(self, max_depth: int, max_leaves: int, is_depthwise: bool) -> None:
        candidates = self.frontier if is_depthwise else range(len(self.nodes))
        self.selected = []
        for tree in range(len(self.outputs)):
            room = max_leaves - self.n_leaves[tree] if max_leaves else len(self.nodes)
            own = [i for i in candidates if self.nodes[i].tree == tree and self.nodes[i].left < 0]
            own = [i for i in own if self.nodes[i].gain > -math.inf and (not max_depth or self.nodes[i].depth < max_depth)]
            if not is_depthwise:
                own = sorted(own, key=lambda i: (-_rank(self.nodes[i].gain), i))[:1]
            self.selected += own[: max(room, 0)]
            self.n_leaves[tree] += len(own[: max(room, 0)])
        self.selected.sort(key=lambda i: i if is_depthwise else self.nodes[i].tree)

    def apply_splits(self) -> None:
        self.frontier = []
        for i in self.selected:
            node = self.nodes[i]
            node.left = len(self.nodes)
            for sums in (node.left_sums, _minus(node.sums, node.left_sums)):
                self.frontier.append(len(self.nodes))
                bounds = node.lower.copy(), node.upper.copy()
                self.nodes.append(_Node(node.tree, i, node.depth + 1, node.rows[:0], sums, *bounds))
            sign = self.settings.monotone_constraints[node.feature] if self.settings.monotone_constraints else 0
            children, scales = self.nodes[-2:], self.scales[self.searched[node.tree]].tolist()
            for k, own in enumerate(scales if sign else ()):
                low, high = children[::sign]
                weights = [_weight(self.settings, child.sums[k], own, node, k) for child in (low, high)]
                low.upper[k] = high.lower[k] = (weights[0] + weights[1]) / 2
                if weights[0] > weights[1]:  # of several outputs
                    low.upper[k] = high.lower[k] = _weight(_doubled(self.settings), node.sums[k], own, node, k)

    def partition_rows(self):
        counts = []
        for node in [self.nodes[i] for i in self.selected]:
            codes = self.codes[node.feature, node.rows]
            is_missing = codes == self.rows.binned.cuts.n_bins[node.feature]
            goes_left = codes <= node.bin if node.listed is None else ~np.isin(codes, list(node.listed))
            is_left = np.where(is_missing, node.default_left == 1, goes_left)
            for child, goes_there in enumerate((is_left, ~is_left)):
                self.nodes[node.left + child].rows = node.rows[goes_there]
                counts.append(goes_there.sum())
        return np.array(counts, np.int64)

    def sum_leaves(self):
        self.leaf_sums = np.zeros((len(self.nodes), len(self.outputs[0]), 2), np.int64)
        for sums, node in zip(self.leaf_sums, self.nodes):
            if node.left < 0:
                for own, output in zip(sums, self.outputs[node.tree]):
                    for k, values in enumerate((self.grad, self.hess)):
                        scaled = values[output, node.rows].astype(np.float64) * self.leaf_scales[output, k]
                        own[k] = np.floor(scaled + 0.5).astype(np.int64).sum()
        return self.leaf_sums

    def _is_light(self, hess: float) -> bool:
        return hess < self.settings.min_child_weight * len(self.outputs[0]) * (1 - 2.0**-21)

    def _cover(self, node: int) -> float:
        return _weight_of(self.leaf_sums[node].tolist(), self.leaf_scales[self.outputs[self.nodes[node].tree]].tolist())

    def _prune(self) -> None:
        for i, node in reversed(list(enumerate(self.nodes))):  # children come after their parents
            if node.left >= 0:
                self.leaf_sums[i] = self.leaf_sums[node.left] + self.leaf_sums[node.left + 1]
                children = range(node.left, node.left + 2)
                is_last = all(self.nodes[child].left < 0 for child in children)
                hess = min(map(self._cover, children))
                if (is_last and node.gain < self.settings.gamma) or self._is_light(hess):
                    node.left = -1
        for i, node in enumerate(self.nodes):
            is_cut_off = node.parent >= 0 and (self.nodes[node.parent].left < 0 or self.nodes[node.parent].leaf != node.parent)
            node.leaf = self.nodes[node.parent].leaf if is_cut_off else i

    def weigh_leaves(self) -> None:
        self._prune()
        s = self.settings
        for i, node in enumerate(self.nodes):
            node.cover = self._cover(i)
            scales = self.leaf_scales[self.outputs[node.tree]].tolist()
            node.weight = [_weight(s, *pair, node, k) for k, pair in enumerate(zip(self.leaf_sums[i].tolist(), scales))]
            node.value = [F(weight * self.learning_rate) for weight in node.weight]

    def update_margin(self, margin) -> None:
        leaf_of_rows = np.full((len(self.outputs), self.rows.label.shape[1]), -1, np.int32)
        for node in self.nodes:  # children after their parents
            leaf_of_rows[node.tree, node.rows] = node.leaf
        for tree, leaf in enumerate(leaf_of_rows):
            for row in np.flatnonzero(leaf >= 0):
                margin[self.outputs[tree], row] += self.nodes[leaf[row]].value
        is_idle = np.ones(margin.shape[1], bool)  # not drawn, or of zero weight
        is_idle[self._kept() if self.drawn is None else self.drawn] = False
        others = np.zeros_like(margin)
        NaivePredictor().predict_codes(self.rows.binned, self.flat(), others, None)
        margin += np.where(is_idle, others, F(0))

    def fetch_trees(self, pending: list[list[Tree]]) -> list[Tree]:
        return [tree for trees in pending for tree in trees]

    def flat(self):
        return self.finish_trees(), [own[0] for own in self.outputs], self.rows.binned.cuts

    def finish_trees(self) -> list[Tree]:
        trees = []
        for t in range(len(self.outputs)):
            kept = [i for i, node in enumerate(self.nodes) if node.tree == t and node.leaf == i]
            new = {-1: -1, **{i: n for n, i in enumerate(kept)}}
            own = [self.nodes[i] for i in kept]
            split = np.array([node.left >= 0 for node in own])
            values, weights = (np.array([getattr(node, name) for node in own], F) for name in ("value", "weight"))
            values[split] = 0
            threshold = [self.rows.binned.cuts.of(node.feature)[node.bin] if node.listed is None else 0 for node in own]
            sets = {i: sorted(node.listed) for i, node in enumerate(own) if node.left >= 0 and node.listed is not None}
            trees.append(
                Tree(
                    left_child=np.array([new[node.left] for node in own], np.int32),
                    parent=np.array([new[node.parent] for node in own], np.int32),
                    feature=np.where(split, [node.feature for node in own], 0).astype(np.int32),
                    threshold=np.where(split, threshold, 0).astype(F),
                    default_left=np.where(split, [node.default_left for node in own], 0).astype(np.uint8),
                    leaf_value=values if values.shape[1] > 1 else values[:, 0],
                    gain=np.where(split, [node.gain for node in own], 0).astype(F),
                    cover=np.array([node.cover for node in own], F),
                    weight=weights if weights.shape[1] > 1 else weights[:, 0],
                    sets=CategorySets(
                        np.array(list(sets), np.int32), np.cumsum([0, *map(len, sets.values())]),
                        np.concatenate(list(sets.values())).astype(np.int32),
                    ) if sets else None,
                )
            )
        return trees


class NaivePredictor(Predictor):
    """Laid out are (trees, output of each, cuts)."""

    def flatten(self, trees, outputs, cuts=None):
        return trees, outputs, cuts

    def predict_values(self, batch, missing, flat, first_row, margin, leaves) -> None:
        def goes_left(tree, node, row):
            x, listed = F(batch[row, tree.feature[node]]), _listed(tree, node)
            if np.isnan(x) or x == F(missing):
                return tree.default_left[node]
            return x < tree.threshold[node] if listed is None else x < 0 or int(x) not in listed

        own = slice(first_row, first_row + len(batch))
        self._predict(flat, goes_left, margin[:, own], None if leaves is None else leaves[own])

    def predict_codes(self, binned, flat, margin, leaves) -> None:
        codes, cuts = np.concatenate([page.columns for page in binned.pages], axis=1), flat[2]

        def goes_left(tree, node, row):
            f = tree.feature[node]
            if codes[f, row] == cuts.n_bins[f]:
                return tree.default_left[node]
            if (listed := _listed(tree, node)) is not None:
                return codes[f, row] not in listed
            return codes[f, row] <= cuts.of(f).tolist().index(tree.threshold[node])

        self._predict(flat, goes_left, margin, leaves)

    def _predict(self, flat, goes_left, margin, leaves) -> None:
        for t, (tree, group) in enumerate(zip(flat[0], flat[1])):
            for row in range(margin.shape[1]):
                node = 0
                while tree.left_child[node] >= 0:
                    node = tree.left_child[node] + (not goes_left(tree, node, row))
                margin[group : group + tree.leaf_size, row] += tree.leaf_value[node]
                if leaves is not None:
                    leaves[row, t] = node

    def reweigh(self, leaves, outputs, before, after, sums) -> None:
        for tree, output in enumerate(outputs):
            for row, leaf in enumerate(leaves[tree].tolist()):
                sums[output, row] += math.floor(leaf * after[tree] + 0.5) - math.floor(leaf * before[tree] + 0.5)

    def write_margins(self, base, sums, unit, margin) -> None:
        for output, row in np.ndindex(*base.shape):
            margin[output, row] = F(float(base[output, row]) + float(sums[output, row]) * unit)

    def map_rows(self, margin, row_map):
        out = np.empty_like(margin)
        for i in range(margin.shape[1]):
            row_map(margin, i, out)
        return out


class NaiveReducer(RowReducer):
    def largest_term(self, prediction, label, weight, row_term, parameters):
        terms = [0.0, *(abs(t) for t in _terms(prediction, label, weight, row_term, parameters))]
        return np.array([max(np.array(terms).view(np.int64))])

    def sum_terms(self, prediction, label, weight, row_term, parameters, scale: float):
        terms = _terms(prediction, label, weight, row_term, parameters)
        return np.array([sum(math.floor(t * scale + 0.5) for t in terms)], np.int64)


class NaiveRanker(Ranker):
    """One pair of documents after another, in lists."""

    def order(self, rows, values):
        of_queries = pairwise(rows.queries.first.tolist())
        return np.array([i for q in of_queries for i in sorted(range(*q), key=lambda i: -float(values[i]))], np.int32)

    def terms(self, rows, kind, order, top, is_exponential):
        terms = []
        for begin, end in pairwise(rows.queries.first.tolist()):
            labels, found, parts = [float(rows.label[i]) for i in order[begin:end]], 0, []
            for place, label in enumerate(labels):
                found += label > 0 and (kind == AVERAGE_PRECISION or place < top)
                gain = 2.0 ** int(label) - 1 if is_exponential else label
                part = gain * rows.discounts[place] if kind == DCG else found / (place + 1) if label > 0 else 0.0
                parts.append(part if place < top else 0.0)
            precision = _sum_in_lanes(parts) / min(found, top) if found else -1.0
            share = found / min(top, end - begin)
            terms.append({DCG: _sum_in_lanes(parts), AVERAGE_PRECISION: precision, PRECISION: share}[kind])
        return np.array(terms)

    def lambdas(self, rows, margin, pairs):
        order, grad, hess = self.order(rows, margin), np.zeros(len(margin), F), np.zeros(len(margin), F)
        losses = np.zeros((2, len(margin) if pairs.bias.shape[1] else 0))
        for query, (begin, end) in enumerate(pairwise(rows.queries.first.tolist())):
            ranked = order[begin:end].tolist()
            if pairs.key is None:
                sums, total = self._top(rows, margin, pairs, query, begin, ranked)
            else:
                sums, total = self._sampled(rows, margin, pairs, query, begin, ranked)
            norm = log_double(1 + 2 * total) * 1.4426950408889634 / (2 * total) if pairs.is_normalised and total > 0 else 1.0
            factor = norm * pairs.factor[query]
            for row, (g, h, plus, minus) in zip(ranked, zip(*sums)):
                grad[row], hess[row] = g * factor, h * factor
                if losses.size:
                    losses[:, row] = plus, minus
        return grad, hess, losses

    def _top(self, rows, margin, pairs, query, begin, ranked):
        """Sums of the documents by place: one after another of those above, in lanes of those below; and Σ |g|."""
        n, total = len(ranked), 0.0
        sums = [[0.0] * n for _ in range(4)]
        for i in range(min(pairs.n_pairs, n)):
            below = [[0.0] * (i + 1) for _ in range(5)]  # by place
            for j in range(i + 1, n):
                g, h, *losses = _pair(rows, margin, pairs, query, begin, ranked, i, j)
                for own, value in zip(below, (g, h, *losses[:2], abs(g))):
                    own.append(value)
                for own, value in zip(sums, (-g, h, *losses[2:])):
                    own[j] += value
            for own, values in zip(sums, below):
                own[i] += _sum_in_lanes(values)
            total += _sum_in_lanes(below[4])
        return sums, total

    def _sampled(self, rows, margin, pairs, query, begin, ranked):
        n, drawn = len(ranked), []
        listed = sorted(ranked, key=lambda row: (-float(rows.label[row]), row))
        for row in listed:
            others = [other for other in listed if rows.label[other] != rows.label[row]]
            number = int(pairs.ids[query]) + row - begin
            for sample in range(pairs.n_pairs if others else 0):
                random = pairs.key
                for word in (number & 0xFFFFFFFF, number >> 32, sample):
                    random = (int(_mix(np.array([random ^ word], np.uint32))[0]) + 0x9E3779B9) & 0xFFFFFFFF
                i, j = sorted((ranked.index(row), ranked.index(others[random * len(others) >> 32])))
                drawn.append((i, j, *_pair(rows, margin, pairs, query, begin, ranked, i, j)))
        sums = [[0] * n for _ in range(4)]
        parts = [[(i, g) for i, _, g, *_ in drawn] + [(j, -g) for _, j, g, *_ in drawn]]
        parts += [[(k, h) for i, j, _, h, *_ in drawn for k in (i, j)]]
        parts += [[(p[0], p[4 + m]) for p in drawn] + [(p[1], p[6 + m]) for p in drawn] for m in range(2)]
        for own, values in zip(sums, parts):
            scale = sum_scale(max((abs(x) for _, x in values), default=0.0), n * pairs.n_pairs)
            for k, x in values:
                own[k] += math.floor(x * scale + 0.5)
            own[:] = [units / scale for units in own]
        return sums, 0.0


def _pair(rows, margin, pairs, query, begin, ranked, i, j):
    """(g, H, losses by t⁺ and t⁻ of the document at place i and of that at place j > i), of kernels/lambdarank.py."""
    y = [float(rows.label[row]) for row in ranked]
    s, s_j = float(margin[ranked[i]]), float(margin[ranked[j]])
    e, e_j = (exp_double(max(x - float(margin[ranked[0]]), -300.0)) for x in (s, s_j))
    if y[i] == y[j]:
        c = 0.0
    elif pairs.kind == NDCG:
        gain, gain_j = (2.0 ** int(label) - 1 if pairs.is_exponential else label for label in (y[i], y[j]))
        c = abs((gain - gain_j) * (rows.discounts[i] - rows.discounts[j])) * pairs.unit[query]
    elif pairs.kind == MAP:
        up_to = [0.0]
        for place, label in enumerate(y):
            up_to.append(up_to[-1] + label / (place + 1))
        between, here, there = up_to[j] - up_to[i + 1], sum(y[: i + 1]) / (i + 1), sum(y[: j + 1]) / (j + 1)
        c = abs(there - (here + 1 / (i + 1)) - between if y[i] < y[j] else here - there + between) * pairs.unit[query]
    else:
        c = 1.0
    is_flat = margin[ranked[0]] == margin[ranked[-1]]
    divisor = 0.01 + abs(s - s_j) if pairs.divides and not is_flat else 1.0
    total = e + e_j
    q = c / (total * total * divisor)
    g, h = -e_j * total * q if y[i] > y[j] else e * total * q, max(e * e_j, 1e-16 * total * total) * q * 2
    if not pairs.bias.shape[1]:
        return g, h, 0.0, 0.0, 0.0, 0.0
    high, low = (ranked[i], ranked[j]) if y[i] > y[j] else (ranked[j], ranked[i])
    plus, minus = (float(b[row - begin]) if row - begin < len(b) else 0.0 for b, row in zip(pairs.bias, (high, low)))
    loss = log_double(total / (e_j if y[i] > y[j] else e)) * c / divisor
    losses = (loss * minus, 0.0, 0.0, loss * plus) if y[i] > y[j] else (0.0, loss * plus, loss * minus, 0.0)
    weight = plus * minus if plus * minus > 0 else 1.0
    return g * weight, h * weight, *losses


def _sum_in_lanes(values):
    """Those at places ≡ 0, 1, … 31 modulo 32 one after another, then the sums in halves."""
    lanes = [reduce(add, values[lane::32], 0.0) for lane in range(32)]  # sum() of floats compensates since Python 3.12
    for step in (16, 8, 4, 2, 1):
        lanes = [lanes[lane] + lanes[lane + step] for lane in range(step)]
    return lanes[0]


class NaiveBackend(Backend):
    name = "naive"
    memory, coder, predictor, reducer, ranker = NaiveMemory(), NaiveCoder(), NaivePredictor(), NaiveReducer(), NaiveRanker()

    def describe(self) -> str:
        return "plain loops"

    def start_training(
        self, rows: TrainingRows, params: Params, n_trees: int, leaf_size: int = 1, leaf_alphas: tuple[float, ...] = ()
    ) -> NaiveTraining:
        training = NaiveTraining(rows, params, n_trees, leaf_size)
        if leaf_alphas:
            training.leaf_quantiles = NaiveLeafQuantiles(training, leaf_alphas)
        return training


def _permuted(row: int, n_rows: int, keys: list[int]) -> int:
    """The place of a row in the permutation of a round (the rule of kernels/row_sampling.py, in Python's integers)."""
    bits = max(8, (n_rows - 1).bit_length())
    while True:
        for i in range(4):
            row = (row + keys[2 * i]) * (keys[2 * i + 1] | 1) % 2**bits
            row ^= row >> (bits + 1) // 2
        if row < n_rows:
            return row


def _threshold(counts: list[list[int]], n_drawn: int) -> float:
    """μ: rows below its bin count ĝ/μ, rows above it one each."""

    def edge(b: int) -> float:
        return float(np.uint32(b << 20).view(F))

    total = 0.0
    for b in range(2047):
        n_here, digits = counts[b]
        total += n_here * edge(b) + digits * (float(np.uint32(max(b >> 3, 1) << 23).view(F)) * 2.0**-15)
        n_above = sum(n for n, _ in counts[b + 1 :])
        if n_above < n_drawn and total <= (n_drawn - n_above) * edge(b + 1):
            return total / (n_drawn - n_above)
    return 0.0


def proposed_bins(hess: list[int], n_candidates: int) -> list[bool]:
    """Which bins of a feature with these hessians are candidates (the rule of kernels/proposals.py, in Python's integers)."""
    filled = [b for b, h in enumerate(hess) if h > 0]
    if len(filled) <= n_candidates:
        return [True] * len(hess)
    shift = max(0, sum(hess).bit_length() - 46)
    weight = {b: hess[b] >> shift for b in filled}
    heavy: set[int] = set()
    while True:
        light, left = sum(weight[b] for b in filled if b not in heavy), n_candidates - 2 * len(heavy)
        new = {b for b in filled if b not in heavy and light > 0 and weight[b] * left >= 2 * light}
        if not new:
            break
        heavy |= new
    chosen: set[int | None] = set()
    sums = [0]
    for previous, b in zip([None, *filled], filled):
        sums.append(sums[-1] + (0 if b in heavy else weight[b]))
        steps = sums[-1] * left // light - sums[-2] * left // light if light else 0
        if b in heavy or steps:
            chosen.add(b)
        if b in heavy or steps > 1:
            chosen.add(previous)
    return [b in chosen for b in range(len(hess))]


def _listed(tree: Tree, node: int) -> list[int] | None:
    """The categories that go right, where a split is by categories."""
    return None if tree.sets is None else {i: categories.tolist() for i, categories in tree.sets.items()}.get(node)


def _terms(prediction, label, weight, row_term, parameters) -> list[float]:
    terms = [row_term(prediction, label, i, parameters) for i in range(prediction.shape[1])]
    return [t * float(w) for t, w in zip(terms, weight)] if len(weight) else terms


def _cut(x: np.float32) -> np.float32:
    """Without the last four bits."""
    return (x.view(np.uint32) & np.uint32(0xFFFFFFF0)).view(F)


def _mix(x: np.ndarray) -> np.ndarray:
    """MurmurHash3's finaliser of uint32."""
    x = (x ^ x >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    x = (x ^ x >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return x ^ x >> np.uint32(16)


def _draw_order(feature: int, key: int, weights: tuple[float, ...]) -> tuple[float, int]:
    """When a draw takes a feature: by a hash, or by −ln(u)/weight to a precision of 21 bits, and last of all where that is 0."""
    random = int(_mix(np.array([key ^ feature], np.uint32))[0])
    if not weights:
        return random, feature
    weight = float(F(weights[feature]))
    if weight == 0:
        return math.inf, random // 2 << 32 | feature
    mantissa, exponent = math.frexp(-log_double(1.0 - (random + 0.5) * 2.0**-32) / weight)
    return math.ldexp(math.trunc(mantissa * 2**21), exponent - 21), feature


def _doubled(s: Params) -> Params:
    """The penalties of two leaves of one weight."""
    return replace(s, reg_lambda=2 * s.reg_lambda, reg_alpha=2 * s.reg_alpha)


def _weight(s: Params, sums: tuple[int, int], scales: list[float], node: _Node, k: int = 0) -> float:
    """The optimal weight within the bounds of a node."""
    grad, hess = sums[0] / scales[0], sums[1] / scales[1]
    return optimal_weight(grad, hess, s.reg_lambda, s.reg_alpha, s.max_delta_step, node.lower[k], node.upper[k])


def _scores(s: Params, sums: list[tuple[int, int]], scales: list[list[float]], node: _Node) -> tuple[float, list[float]]:
    """(the sum, the scores by output)."""
    scores = [_score(s, pair, own, node, k) for k, (pair, own) in enumerate(zip(sums, scales))]
    return reduce(add, scores, 0.0), scores  # sum() of floats compensates since Python 3.12


def _score_at(s: Params, sums: tuple[int, int], scales: list[float], weight: float) -> float:
    return node_score_at(sums[0] / scales[0], sums[1] / scales[1], weight, s.reg_lambda, s.reg_alpha)


def _score(s: Params, sums: tuple[int, int], scales: list[float], node: _Node, k: int = 0) -> float:
    grad, hess = sums[0] / scales[0], sums[1] / scales[1]
    if hess <= 0:
        return 0.0
    if s.max_delta_step > 0 or node.lower[k] > -math.inf or node.upper[k] < math.inf:
        return _score_at(s, sums, scales, _weight(s, sums, scales, node, k))
    return node_score(grad, hess, s.reg_lambda, s.reg_alpha)


def take_part(own, present, weights, sums, scales, noise, spread, step):
    """Which of the categories that are present take part where sets are ordered. own : int (n_outputs, ≥ n, 2). weights : of each
    the hessians of all outputs."""
    light = [c for c in present if weights[c] < noise * len(own)]
    n, apart, steps, evident = 0, 0, 0, set()
    for of_output, (grad, hess), (grad_scale, hess_scale) in zip(own.tolist(), sums, scales):
        mean = (grad / grad_scale) / (hess / hess_scale) if hess > 0 else 0.0
        for c in light:
            g, h = of_output[c][0] / grad_scale, of_output[c][1] / hess_scale
            if h > 0:
                d = g - h * mean
                n, steps = n + 1, steps + int(min(step * step / (spread * h), 2.0**20) * 65536.0)
                apart += int(min(d * d / (spread * h), 2.0**20) * 65536.0)
                if d * d >= 8.0 * (spread * h + 2.0 / 3.0 * step * abs(d)):
                    evident.add(c)
    if n and apart / 65536.0 >= n + 6.0 * math.sqrt(2.0 * (n + steps / 65536.0)):
        return present
    return [c for c in present if c not in light or c in evident]


def _chance(held: list[list[int]], listed: list[int], scales: list[list[float]], noise: float) -> float:
    """What chance adds to the gain of a set. held : hessians by output and category. listed : sums by output."""
    if len(held) == 1:
        return noise_gain(listed[0], sum(held[0]), sum(map(root_of, held[0])), noise)
    weight, all_held = (reduce(add, (h / own[1] for h, own in zip(sums, scales)), 0.0) for sums in (listed, map(sum, held)))
    n_equal = reduce(add, (equal_categories(sum(map(root_of, hess)), sum(hess)) for hess in held), 0.0) / len(held)
    return noise_gain_of_outputs(weight, all_held, n_equal, float(len(held)), noise)


def _own_gain(gain: SplitGain, s: Params, left: tuple[int, int], right: tuple[int, int], scales, node: _Node, f: int) -> float:
    sums = [value / scale for pair in (left, right, node.sums[0]) for value, scale in zip(pair, scales)]
    penalties = s.reg_lambda, s.reg_alpha, s.max_delta_step, node.lower[0], node.upper[0]
    return gain.function(*sums, *map(float, penalties), np.int32(f), np.array(gain.parameters, np.float64))


def _pairs(sums: np.ndarray) -> list[tuple[int, int]]:
    """One for each output."""
    return [(g, h) for g, h in sums.tolist()]


def _weight_of(sums: list[tuple[int, int]], scales: list[list[float]]) -> float:
    """The sum of hessians over the outputs."""
    return reduce(add, (hess / own[1] for (_, hess), own in zip(sums, scales)), 0.0)


def _rank(gain: float) -> float:
    """The gain in 16 significant bits, cut."""
    mantissa, exponent = math.frexp(gain)
    return math.ldexp(math.trunc(mantissa * 2**16), exponent - 16) if math.isfinite(gain) else gain


def _total(pairs: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(g for g, _ in pairs), sum(h for _, h in pairs)


def _plus(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(g + more_g, h + more_h) for (g, h), (more_g, more_h) in zip(a, b)]


def _minus(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(g - less_g, h - less_h) for (g, h), (less_g, less_h) in zip(a, b)]
