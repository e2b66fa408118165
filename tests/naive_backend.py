"""The backend contract in plain NumPy and Python loops: slow, and short enough to be checked by reading.

It has no sibling subtraction, no limbs, no packed sums, no work lists and one row list per node. It shares with CpuBackend the
scalar formulas (kernels/scalar.py, those of objectives and metrics) and the choice of scales (backend/fixed_point.py), so equal
model bytes say that all the rest of the kernels computes what the contract asks. Scalar leaves only.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuboost.backend.base import Backend, GrowthSettings, TrainingRows
from gpuboost.backend.fixed_point import check_finite, leaf_scales, needs_refinement, plane_keys, round_key, scales_16
from gpuboost.kernels.features import LEVEL_DRAW, NODE_DRAW, TREE_DRAW
from gpuboost.kernels.quantise import SMALL_UNITS
from gpuboost.kernels.scalar import log_double, node_score, node_score_at, optimal_weight
from gpuboost.kernels.sketch import DIGITS, MISSING, NON_FINITE
from gpuboost.model.tree import Tree

__all__ = ["NaiveBackend", "proposed_bins"]

F = np.float32


@dataclass
class _Node:
    tree: int
    parent: int
    depth: int
    rows: np.ndarray  # numbers of the worker's rows in it
    sums: tuple[int, int]  # of all workers
    lower: float = -math.inf
    upper: float = math.inf
    gain: float = -math.inf
    feature: int = 0
    bin: int = 0
    default_left: int = 0
    left_sums: tuple[int, int] = (0, 0)
    left: int = -1
    leaf: int = -1
    cover: float = 0.0
    weight: float = 0.0
    value: np.float32 = F(0)


@dataclass
class _State:
    rows: TrainingRows
    settings: GrowthSettings
    planes: list[int]  # output of each tree
    codes: np.ndarray  # int64 (n_features, n_rows), all pages
    margin: np.ndarray
    grad: np.ndarray
    hess: np.ndarray
    q: np.ndarray  # int64 (n_planes, n_rows, 2): fixed point
    drawn: Any = None  # bool (n_rows,): the rows of this round, where they are drawn
    scales: Any = None
    leaf_scales: Any = None
    nodes: list[_Node] = field(default_factory=list)
    n_leaves: list[int] = field(default_factory=list)
    frontier: list[int] = field(default_factory=list)
    selected: list[int] = field(default_factory=list)
    hist: Any = None
    proposed: dict[int, np.ndarray] = field(default_factory=dict)  # by tree or by node: bool (total_bins,)
    leaf_sums: Any = None


class NaiveBackend(Backend):
    name = "naive"

    def describe(self) -> str:
        return "plain loops"

    # -- Memory -----------------------------------------------------------------------------------------------------

    memory = "host"

    def zeros(self, shape, dtype):
        return np.zeros(shape, dtype)

    def put(self, array):
        return np.array(array)

    def fetch(self, array):
        return array

    # -- Table to codes ---------------------------------------------------------------------------------------------

    def count_digits(self, block, missing, weights, features, level, slots0, slots1, counts) -> None:
        for i, f in enumerate(features):
            for row, x in enumerate(np.asarray(block[:, f], F)):
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

    def bin_rows(self, block, missing, cuts, first_row, page) -> int:
        n_lost = 0
        own = slice(first_row, first_row + len(block))
        for f in range(cuts.n_features):
            values = np.asarray(block[:, f], F)
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

    # -- A training -------------------------------------------------------------------------------------------------

    def start_training(self, rows: TrainingRows, settings: GrowthSettings, tree_outputs: list[int], n_outputs: int) -> _State:
        assert n_outputs == 1
        codes = np.concatenate([page.columns for page in rows.binned.pages], axis=1).astype(np.int64)
        empty = np.zeros(rows.margin.shape, F)
        pairs = np.zeros((*rows.margin.shape, 2), np.int64)
        return _State(rows, settings, tree_outputs, codes, rows.margin.copy(), empty, empty.copy(), pairs)

    def compute_gradients(self, state: _State, objective, margin=None):
        label, weight = state.rows.label, state.rows.weight
        margin = state.margin if margin is None else margin
        for i in range(label.shape[1]):
            w = weight[i] if len(weight) else F(1)
            if objective.row_gradient is not None:
                objective.row_gradient(margin, label, w, i, objective.parameters, state.grad, state.hess)
                continue
            labels = label[:, i] if objective.label_rows == 1 else label[:, i].reshape(-1, objective.label_rows)
            for plane, m in enumerate(margin[:, i]):
                y = labels[plane if len(labels) > 1 else 0]  # one for all outputs, or one each
                g, h = objective.gradient(m, y if objective.label_rows == 1 else tuple(y), w, plane, objective.parameters)
                state.grad[plane, i], state.hess[plane, i] = _cut(F(g)) * w, _cut(max(F(h), F(0))) * w
        return self._largest(state)

    def set_gradients(self, state: _State, grad, hess):
        state.grad[...], state.hess[...] = grad, np.maximum(hess, F(0))
        return self._largest(state)

    def _largest(self, state: _State):
        largest = [np.abs(state.grad).max(axis=1, initial=0), state.hess.max(axis=1, initial=0)]
        return np.stack(largest, axis=-1).astype(F).view(np.int32).astype(np.int64)

    def start_round(self, state: _State, round_number: int, learning_rate: float) -> None:
        state.round_number, state.learning_rate = round_number, learning_rate

    def count_magnitudes(self, state: _State):
        """By exponent and 3 bits, and the 12 bits after them, of ĝ as float32."""
        counts = np.zeros((2048, 2), np.int64)
        for bits in self._magnitudes(state)[self._kept(state)].view(np.uint32).tolist():
            counts[bits >> 20] += 1, bits >> 8 & 0xFFF
        return counts

    def _magnitudes(self, state: _State):
        squares = np.zeros(state.grad.shape[1])
        for g, h in zip(state.grad.astype(np.float64), state.hess.astype(np.float64)):
            squares += g * g + 0.1 * (h * h)
        return np.fmin(np.sqrt(squares), 3e38).astype(F)

    def _kept(self, state: _State):
        weight = state.rows.weight
        return np.flatnonzero(weight) if len(weight) else np.arange(state.rows.label.shape[1])

    def draw_rows(self, state: _State, counts):
        n, s = state.rows.global_rows, state.settings
        n_drawn = max(1, int(s.subsample * n + 1e-6))
        if counts is not None:
            mu, magnitudes = _threshold(counts.tolist(), n_drawn), self._magnitudes(state).tolist()
        keys = [round_key(s.seed, state.round_number, 2**31 + i) for i in range(16)]
        keys = [high << 32 | low for high, low in zip(keys[::2], keys[1::2])]
        state.drawn = np.zeros(state.grad.shape[1], bool)
        largest = np.zeros((len(state.grad), 2), np.int64)
        for i, row in enumerate(self._kept(state).tolist()):
            place, p = _permuted(state.rows.first_row + i, n, keys), n_drawn / n
            if counts is not None:
                p = 1.0 if magnitudes[row] >= mu and magnitudes[row] > 0 else magnitudes[row] / mu if mu > 0 else 0.0
            state.drawn[row] = place < n_drawn if counts is None else p == 1 or place + 0.5 < n * float(p)
            for plane in range(len(state.grad)):
                for k, values in enumerate((state.grad, state.hess)):
                    bits = int(np.abs(values[plane, row]).view(np.uint32))
                    if counts is not None and state.drawn[row]:
                        values[plane, row] = F(float(values[plane, row]) / float(p))
                        bits = int(np.abs(values[plane, row]).view(np.uint32))
                    if state.drawn[row] or bits >= 0x7F800000:
                        largest[plane, k] = max(largest[plane, k], bits)
        state.grad[:, ~state.drawn], state.hess[:, ~state.drawn] = 0, 0
        return largest

    def quantise(self, state: _State, maxima):
        check_finite(maxima)
        state.leaf_scales = leaf_scales(maxima, state.rows.global_rows)
        state.scales = scales_16(maxima)
        return self._round(state, np.zeros(len(maxima), bool))

    def refine_fixed_point(self, state: _State, sums):
        refined = needs_refinement(sums, max(1, int(state.settings.subsample * state.rows.global_rows + 1e-6)))
        if not refined.any():
            return None
        state.scales = state.scales * np.where(refined, 65536.0, 1.0)[:, None]
        return self._round(state, refined)

    def _round(self, state: _State, refined):
        """⌊value · scale + u⌋ in 16 bits, or 32 where refined, u from a hash of round, output and the bits of the pair."""
        sums = np.zeros((len(refined), 3), np.int64)
        for plane, key in enumerate(plane_keys(state.settings.seed, state.round_number, len(refined))):
            random = _mix(_mix(key ^ state.grad[plane].view(np.uint32)) + state.hess[plane].view(np.uint32))
            uniforms = random, _mix(random ^ np.uint32(0x9E3779B9))
            limits = (2**31 - 2**16, 2**32 - 1) if refined[plane] else (2**15 - 1, 2**16 - 1)
            is_small = np.zeros(state.grad.shape[1], bool)
            for k, values in enumerate((state.grad[plane], state.hess[plane])):
                scaled = values.astype(np.float64) * state.scales[plane, k]
                rounded = np.floor(scaled + uniforms[k] * 2.0**-32)
                state.q[plane, :, k] = np.clip(rounded, -limits[k] if k == 0 else 0, limits[k])
                is_small |= (0 < abs(scaled)) & (abs(scaled) < SMALL_UNITS)
            sums[plane] = *state.q[plane].sum(axis=0), is_small.sum()
        return sums

    # -- Trees ------------------------------------------------------------------------------------------------------

    def start_trees(self, state: _State, sums) -> None:
        kept = self._kept(state)
        kept = kept if state.drawn is None else kept[state.drawn[kept]]
        state.nodes = [_Node(t, -1, 0, kept, (int(sums[p, 0]), int(sums[p, 1]))) for t, p in enumerate(state.planes)]
        state.n_leaves = [1 for _ in state.planes]
        state.frontier = list(range(len(state.planes)))

    def histogram_capacity(self, state: _State) -> int:
        return 2**31

    def frontier_size(self, state: _State) -> int:
        return len(state.frontier)

    def held_histograms(self, state: _State) -> int:
        return 0

    def build_histograms(self, state: _State, begin: int, end: int, subtract: bool, hold: bool):
        """Every node's from its rows, whatever is asked for."""
        cuts = state.rows.binned.cuts
        state.hist = np.zeros((end - begin, cuts.total_bins, 2), np.int64)
        for hist, node in zip(state.hist, [state.nodes[i] for i in state.frontier[begin:end]]):
            for f in range(cuts.n_features):
                present = node.rows[state.codes[f, node.rows] < cuts.n_bins[f]]
                np.add.at(hist, cuts.offsets[f] + state.codes[f, present], state.q[state.planes[node.tree], present])
        return state.hist

    def subtract_histograms(self, state: _State) -> None:
        pass

    def propose_candidates(self, state: _State, begin: int, end: int) -> None:
        cuts, s = state.rows.binned.cuts, state.settings
        for hist, i in zip(state.hist, state.frontier[begin:end]):
            own = [hist[cuts.offsets[f] : cuts.offsets[f + 1], 1].tolist() for f in range(cuts.n_features)]
            key = state.nodes[i].tree if s.proposals == "global" else i
            state.proposed[key] = np.concatenate([proposed_bins(hess, s.max_bin) for hess in own])

    def evaluate_splits(self, state: _State, begin: int, end: int) -> None:
        cuts, s = state.rows.binned.cuts, state.settings
        for i, hist in zip(state.frontier[begin:end], state.hist):
            node = state.nodes[i]
            proposed = np.ones(cuts.total_bins, bool)
            if s.proposals is not None:
                proposed = state.proposed[node.tree if s.proposals == "global" else i]
            scales = state.scales[state.planes[node.tree]].tolist()
            parent = _score(s, node.sums, scales, node)
            threshold = max(1e-6, 2.0**-44 * parent)
            node.gain, best = -math.inf, (-math.inf, 0, 0, 0)  # rank of the gain, −feature, −bin, default_left: larger is better
            for f in self._features(state, i):
                own = [(int(g), int(h)) for g, h in hist[cuts.offsets[f] : cuts.offsets[f + 1]]]
                missing = _minus(node.sums, _total(own))
                for b in range(len(own)):
                    if not proposed[cuts.offsets[f] + b] and b < len(own) - 1:
                        continue
                    present = _total(own[: b + 1])
                    for default_left in (0, 1) if b < len(own) - 1 and present[1] > 0 else (0,):
                        left = _total([present] + [missing] * default_left)
                        right = _minus(node.sums, left)
                        smaller_hess = min(left[1], right[1])
                        if smaller_hess <= 0 or smaller_hess / scales[1] < s.min_child_weight:
                            continue
                        low, high = _weight(s, left, scales, node), _weight(s, right, scales, node)
                        if s.monotone_constraints and s.monotone_constraints[f] * low > s.monotone_constraints[f] * high:
                            continue
                        gain = -parent + (_score(s, left, scales, node) + _score(s, right, scales, node))
                        if gain > threshold and (_rank(gain), -f, -b, default_left) > best:
                            best = (_rank(gain), -f, -b, default_left)
                            node.gain, node.left_sums = gain, left
            node.feature, node.bin, node.default_left = -best[1], -best[2], best[3]

    def _features(self, state: _State, i: int) -> list[int]:
        """What a node may split on: drawn for the round, of those for its level, then for itself; and allowed below its path."""
        s, node = state.settings, state.nodes[i]
        path, sides, child = set(), [], i
        while (parent := state.nodes[child].parent) >= 0:
            path.add(state.nodes[parent].feature)
            sides.append(child - state.nodes[parent].left)
            child = parent
        drawn = list(range(state.rows.binned.cuts.n_features))
        for share, *words in (
            (s.colsample_bytree, TREE_DRAW), (s.colsample_bylevel, LEVEL_DRAW, node.tree, node.depth),
            (s.colsample_bynode, NODE_DRAW, node.tree, *sides),
        ):  # fmt: skip
            key = round_key(s.seed, state.round_number, *words)
            drawn.sort(key=lambda f: _draw_order(f, key, s.feature_weights))  # noqa: B023 - used at once
            drawn = drawn[: max(1, int(share * len(drawn) + 1e-6))]
        if s.interaction_constraints and path:
            met = set(path).union(*(group for group in s.interaction_constraints if path <= set(group)))
            drawn = [f for f in drawn if f in met]
        return sorted(drawn)

    def select_splits(self, state: _State) -> None:
        s = state.settings
        is_depthwise = s.grow_policy == "depthwise"
        candidates = state.frontier if is_depthwise else range(len(state.nodes))
        state.selected = []
        for tree in range(len(state.planes)):
            room = s.max_leaves - state.n_leaves[tree] if s.max_leaves else len(state.nodes)
            own = [i for i in candidates if state.nodes[i].tree == tree and state.nodes[i].left < 0]
            own = [i for i in own if state.nodes[i].gain > -math.inf and (not s.max_depth or state.nodes[i].depth < s.max_depth)]
            if not is_depthwise:
                own = sorted(own, key=lambda i: (-_rank(state.nodes[i].gain), i))[:1]
            state.selected += own[: max(room, 0)]
            state.n_leaves[tree] += len(own[: max(room, 0)])
        state.selected.sort(key=lambda i: i if is_depthwise else state.nodes[i].tree)

    def apply_splits(self, state: _State) -> None:
        state.frontier, is_lossguide = [], state.settings.grow_policy == "lossguide"
        for i in state.selected:
            node = state.nodes[i]
            node.left = len(state.nodes)
            for sums in (node.left_sums, _minus(node.sums, node.left_sums)):
                if is_lossguide or not state.settings.max_depth or node.depth + 1 < state.settings.max_depth:
                    state.frontier.append(len(state.nodes))
                state.nodes.append(_Node(node.tree, i, node.depth + 1, node.rows[:0], sums, node.lower, node.upper))
            sign = state.settings.monotone_constraints[node.feature] if state.settings.monotone_constraints else 0
            children, scales = state.nodes[-2:], state.scales[state.planes[node.tree]].tolist()
            if sign:
                low, high = children[::sign]
                low.upper = high.lower = sum(_weight(state.settings, child.sums, scales, node) for child in children) / 2

    def partition_rows(self, state: _State):
        counts = []
        for node in [state.nodes[i] for i in state.selected]:
            codes = state.codes[node.feature, node.rows]
            is_missing = codes == state.rows.binned.cuts.n_bins[node.feature]
            is_left = np.where(is_missing, node.default_left == 1, codes <= node.bin)
            for child, goes_there in enumerate((is_left, ~is_left)):
                state.nodes[node.left + child].rows = node.rows[goes_there]
                counts.append(goes_there.sum())
        return np.array(counts, np.int64)

    def sum_leaves(self, state: _State):
        state.leaf_sums = np.zeros((len(state.nodes), 2), np.int64)
        for i, node in enumerate(state.nodes):
            if node.left < 0:
                plane = state.planes[node.tree]
                for k, values in enumerate((state.grad, state.hess)):
                    scaled = values[plane, node.rows].astype(np.float64) * state.leaf_scales[plane, k]
                    state.leaf_sums[i, k] = np.floor(scaled + 0.5).astype(np.int64).sum()
        return state.leaf_sums

    def prune(self, state: _State) -> None:
        for i, node in reversed(list(enumerate(state.nodes))):  # children come after their parents
            if node.left >= 0:
                state.leaf_sums[i] = state.leaf_sums[node.left] + state.leaf_sums[node.left + 1]
                if all(state.nodes[node.left + side].left < 0 for side in (0, 1)) and node.gain < state.settings.gamma:
                    node.left = -1
        for i, node in enumerate(state.nodes):
            is_cut_off = node.parent >= 0 and state.nodes[node.parent].left < 0
            node.leaf = state.nodes[node.parent].leaf if is_cut_off else i

    def weigh_leaves(self, state: _State) -> None:
        s = state.settings
        for node, sums in zip(state.nodes, state.leaf_sums):
            grad, node.cover = (float(v) for v in sums / state.leaf_scales[state.planes[node.tree]])
            weight = optimal_weight(grad, node.cover, s.reg_lambda, s.reg_alpha, s.max_delta_step, node.lower, node.upper)
            node.weight, node.value = weight, F(weight * state.learning_rate)

    def leaf_of_rows(self, state: _State):
        leaf = np.full((len(state.planes), state.rows.label.shape[1]), -1, np.int32)
        for node in state.nodes:  # children after their parents
            leaf[node.tree, node.rows] = node.leaf
        return leaf

    def set_leaves(self, state: _State, nodes, values) -> None:
        for i, value in zip(nodes, values):
            state.nodes[i].value = value[0]

    def update_margin(self, state: _State) -> None:
        for tree, leaf in enumerate(self.leaf_of_rows(state)):
            for row in np.flatnonzero(leaf >= 0):
                state.margin[state.planes[tree], row] += state.nodes[leaf[row]].value
        is_idle = np.ones(state.margin.shape[1], bool)  # not drawn, or of zero weight
        is_idle[self._kept(state) if state.drawn is None else state.drawn] = False
        trees, planes, cuts = self.grown_trees(state)
        others = np.zeros_like(state.margin)
        self.predict_codes(state.rows.binned, (trees, [state.planes[t] for t in planes], cuts), others, None)
        state.margin += np.where(is_idle, others, F(0))

    def fetch_trees(self, state: _State, finished: list[Tree]) -> list[Tree]:
        return finished

    def grown_trees(self, state: _State):
        return self.finish_trees(state), list(range(len(state.planes))), state.rows.binned.cuts

    def finish_trees(self, state: _State) -> list[Tree]:
        trees = []
        for t in range(len(state.planes)):
            kept = [i for i, node in enumerate(state.nodes) if node.tree == t and node.leaf == i]
            new = {-1: -1, **{i: n for n, i in enumerate(kept)}}
            own = [state.nodes[i] for i in kept]
            split = np.array([node.left >= 0 for node in own])
            threshold = [state.rows.binned.cuts.of(node.feature)[node.bin] for node in own]
            trees.append(
                Tree(
                    left_child=np.array([new[node.left] for node in own], np.int32),
                    parent=np.array([new[node.parent] for node in own], np.int32),
                    feature=np.where(split, [node.feature for node in own], 0).astype(np.int32),
                    threshold=np.where(split, threshold, 0).astype(F),
                    default_left=np.where(split, [node.default_left for node in own], 0).astype(np.uint8),
                    leaf_value=np.where(split, 0, [node.value for node in own]).astype(F),
                    gain=np.where(split, [node.gain for node in own], 0).astype(F),
                    cover=np.array([node.cover for node in own], F),
                    weight=np.array([node.weight for node in own], F),
                )
            )
        return trees

    # -- Margins, predictions, sums ----------------------------------------------------------------------------------

    def training_margin(self, state: _State):
        return state.margin

    def flatten_trees(self, trees, groups, cuts=None):
        return trees, groups, cuts

    def predict_values(self, block, missing, flat, first_row, margin, leaves) -> None:
        def goes_left(tree, node, row):
            x = F(block[row, tree.feature[node]])
            return tree.default_left[node] if np.isnan(x) or x == F(missing) else x < tree.threshold[node]

        own = slice(first_row, first_row + len(block))
        self._predict(flat, goes_left, margin[:, own], None if leaves is None else leaves[own])

    def predict_codes(self, binned, flat, margin, leaves) -> None:
        codes, cuts = np.concatenate([page.columns for page in binned.pages], axis=1), flat[2]

        def goes_left(tree, node, row):
            f = tree.feature[node]
            if codes[f, row] == cuts.n_bins[f]:
                return tree.default_left[node]
            return codes[f, row] <= cuts.of(f).tolist().index(tree.threshold[node])

        self._predict(flat, goes_left, margin, leaves)

    def _predict(self, flat, goes_left, margin, leaves) -> None:
        for t, (tree, group) in enumerate(zip(flat[0], flat[1])):
            for row in range(margin.shape[1]):
                node = 0
                while tree.left_child[node] >= 0:
                    node = tree.left_child[node] + (not goes_left(tree, node, row))
                margin[group, row] += tree.leaf_value[node]
                if leaves is not None:
                    leaves[row, t] = node

    def map_rows(self, margin, row_map):
        out = np.empty_like(margin)
        for i in range(margin.shape[1]):
            row_map(margin, i, out)
        return out

    def largest_term(self, prediction, label, weight, row_term, parameters):
        terms = [0.0, *(abs(t) for t in _terms(prediction, label, weight, row_term, parameters))]
        return np.array([max(np.array(terms).view(np.int64))])

    def sum_terms(self, prediction, label, weight, row_term, parameters, scale: float):
        terms = _terms(prediction, label, weight, row_term, parameters)
        return np.array([sum(math.floor(t * scale + 0.5) for t in terms)], np.int64)


def _permuted(row: int, n_rows: int, keys: list[int]) -> int:
    """The place of a row in the permutation of a round (the rule of kernels/sampling.py, in Python's integers)."""
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


def _weight(s: GrowthSettings, sums: tuple[int, int], scales: list[float], node: _Node) -> float:
    """The optimal weight within the bounds of a node."""
    grad, hess = sums[0] / scales[0], sums[1] / scales[1]
    return optimal_weight(grad, hess, s.reg_lambda, s.reg_alpha, s.max_delta_step, node.lower, node.upper)


def _score(s: GrowthSettings, sums: tuple[int, int], scales: list[float], node: _Node) -> float:
    grad, hess = sums[0] / scales[0], sums[1] / scales[1]
    if s.max_delta_step > 0 or node.lower > -math.inf or node.upper < math.inf:
        return node_score_at(grad, hess, _weight(s, sums, scales, node), s.reg_lambda, s.reg_alpha)
    return node_score(grad, hess, s.reg_lambda, s.reg_alpha) if hess > 0 else 0.0


def _total(pairs: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(g for g, _ in pairs), sum(h for _, h in pairs)


def _rank(gain: float) -> float:
    """The gain in 16 significant bits, cut."""
    mantissa, exponent = math.frexp(gain)
    return math.ldexp(math.trunc(mantissa * 2**16), exponent - 16) if math.isfinite(gain) else gain


def _minus(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] - b[0], a[1] - b[1]
