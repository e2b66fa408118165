"""Kernels broken on purpose: a barrier, an atomic operation, a cast or a width taken away, each at one place of the text.

The rungs (rungs.py) are worth what they catch of these. A mutant names a test of tests/kernels that runs the broken kernel, and
a rung on which that test fails; one that no rung can catch says why its results are those of the original. Of
the 88 that change a result 61 show in the simulator, 25 in what the race checker sees, and 2 in IR: where Python's numbers have
no width, numba's have.

A mutant is made of the kernel's compiled text: functions whose code the change touches are replaced, all others stay.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from inspect import getsource
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import test_cuda_binning
import test_cuda_common
import test_cuda_gradients
import test_cuda_growth
import test_cuda_histogram
import test_cuda_leaves
import test_cuda_nodes
import test_cuda_output_sketch
import test_cuda_partition
import test_cuda_predict
import test_cuda_proposals
import test_cuda_quantise
import test_cuda_ranks
import test_cuda_row_leaves
import test_cuda_row_sampling
import test_cuda_sketch
import test_cuda_splits
from numba.extending import is_jitted

from gpuboost.kernels import (
    addresses,
    binning,
    candidates,
    cuda_common,
    gradients,
    growth,
    histogram,
    histogram_tiles,
    leaves,
    nodes,
    output_sketch,
    partition,
    predict_words,
    proposals,
    quantise,
    ranks,
    row_leaves,
    row_sampling,
    sketch,
    splits,
)
from gpuboost.kernels.cuda_common import CudaKernel, DeviceFunction, bind
from gpuboost.kernels.jit import scalar


@dataclass(frozen=True, eq=False)
class Mutant:
    """``old`` becomes ``new`` where it first stands behind ``def within`` in a kernel file.

    check : function of a runner (cuda_runners.SimulatorRunner) that calls the kernel and compares.
    caught_by : "simulator", "ir" or "races"; or, where results do not change, the reason why.
    """

    module: ModuleType
    within: str
    old: str
    new: str
    check: Callable[[Any], None]
    caught_by: str

    @property
    def name(self) -> str:
        return f"{self.module.__name__.rpartition('.')[2]}.{self.within}: {self.new.removeprefix('pass  # no barrier: ')}"

    @cached_property
    def _codes(self) -> dict[str, CodeType]:
        """The changed file's code by qualified name."""
        text = getsource(self.module)
        at = text.index(self.old, text.index(f"def {self.within}("))
        assert at < (text + "\ndef ").index("\ndef ", text.index(f"def {self.within}("))
        changed = text[:at] + self.new + text[at + len(self.old) :]
        return dict(_nested(compile(changed, self.module.__file__, "exec")))

    @cache  # noqa: B019 - mutants are few, and live as long as the process
    def kernel(self, original: CudaKernel) -> CudaKernel:
        """The kernel with the change; the original where it does not come by it."""
        function = self._function(original.function)
        if function is original.function:
            return original
        function.__module__ = __name__
        return replace(original, function=function)

    def _function(self, function: FunctionType) -> FunctionType:
        code, changed = function.__code__, False
        if function.__module__ == self.module.__name__ and self._codes[code.co_qualname] != code:
            code, changed = self._codes[code.co_qualname], True

        def mutated(value: Any) -> Any:
            nonlocal changed
            if not isinstance(value, DeviceFunction) and not is_jitted(value):
                return value
            other = self._function(value.py_func)
            if other is value.py_func:
                return value
            changed = True
            return DeviceFunction(other) if isinstance(value, DeviceFunction) else scalar(other)

        closure = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        cells = tuple(closure[name] for name in code.co_freevars)
        bound = bind(FunctionType(code, function.__globals__, function.__name__, function.__defaults__, cells), mutated)
        return bound if changed else function


def _nested(code):
    yield code.co_qualname, code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


# ---- The tests that run them, each with a case that needs what the mutants lack


def quantise_rows(run):
    test_cuda_quantise.test_rows_beyond_the_grid(run, 1)


def quantise_rows_finely(run):
    test_cuda_quantise.test_rows_beyond_the_grid(run, 2)


def choose_outputs(run):
    squares = list(range(100))  # more than a warp
    outputs, _ = test_cuda_output_sketch.chosen_by(run, "top_outputs", squares, 70)
    assert outputs[:, 0].tolist() == squares[30:]


def sum_squares(run):
    test_cuda_output_sketch.test_squares_are_the_cpus(run, 1.0)


def find_gradients(run):
    test_cuda_gradients.test_rows_beyond_the_grid_and_none(run, "binary:logistic", 301)


def bin_wide_rows(run):
    test_cuda_binning.test_tiles_that_rows_and_features_do_not_fill(run, 65, 3)


def bin_rows(run):
    test_cuda_binning.test_tiles_that_rows_and_features_do_not_fill(run, 33, 70)


def predict_by_words(run):
    test_cuda_predict.check(run, np.random.default_rng(5), 130, [4, 3, 6], 6, 2, missing=-999.0)


def bin_into_two_bytes(run):
    test_cuda_binning.test_every_number_of_bins(run, 256)


def build_in_shared_memory(run):
    test_cuda_histogram.test_nodes_cut_into_slices_equal_the_cpu(run, test_cuda_histogram.SHARED)


def build_wide(run):
    test_cuda_histogram.test_two_tiles_at_a_time_equal_the_cpu(run, [3] * 70, 1)


def build_copies(run):
    test_cuda_histogram.test_any_number_of_features_and_tiles_equals_the_cpu(run, 8, np.uint8, "sector")


def build_two_bytes(run):
    test_cuda_histogram.test_any_number_of_features_and_tiles_equals_the_cpu(run, 28, np.uint16, "sector")


def build_strided(run):
    test_cuda_histogram.test_any_number_of_features_and_tiles_equals_the_cpu(run, 28, np.uint16, 3)


def build_two_limbs(run):
    test_cuda_histogram.test_the_largest_pairs_in_one_bin(run, test_cuda_histogram.SHARED, -(2**31) + 2**16, 2**32 - 1, 2)


def find_splits(run):
    test_cuda_splits.test_more_bins_and_features_than_lanes_equal_the_cpu(run, [33, 64], 2, 0.1)


def find_splits_of_many_outputs(run):
    test_cuda_splits.test_more_bins_and_features_than_lanes_equal_the_cpu(run, [3] * 33, 2, 0.0)


def find_splits_of_whole_columns(run):
    test_cuda_splits.test_two_bins_by_hand(run, (0, 0), 30, 0, 1, [-6, 2])


def find_splits_of_many_features(run):
    test_cuda_splits.test_ties_go_to_the_lower_feature(run)


def select_level(run):
    test_cuda_nodes.test_a_selected_level_equals_the_cpu.hypothesis.inner_test(run, 3, 100, 3, 0, 0)


def select_some_of_a_level(run):
    test_cuda_nodes.test_a_selected_level_equals_the_cpu.hypothesis.inner_test(run, 3, 100, 3, 0, 5)


def select_leaves(run):
    test_cuda_nodes.test_selected_leaves_are_the_best_of_their_trees.hypothesis.inner_test(run, 3, 50, 3, 0, 0)


def sum_upwards(run):
    test_cuda_nodes.test_sums_upwards_equal_the_cpu.hypothesis.inner_test(run, 3, 50, 2, 1)


def prune(run):
    test_cuda_nodes.test_pruned_trees_equal_the_cpu.hypothesis.inner_test(run, 3, 50, 2, 3.0, 1, False)


def count_digits_of_the_largest(run):
    values = np.float32([[test_cuda_sketch.LARGEST, 1.0]])
    test_cuda_sketch.check_passes(run, values, 0.0, test_cuda_sketch.NO_WEIGHTS, 0)


def find_owners(run):
    test_cuda_common.test_owners_of_items(run, [0, 1, 3] * 11)


def propose(run):
    test_cuda_proposals.test_the_bin_before_a_heavy_one_may_lie_tiles_back(run, 30)


def count_magnitudes(run):
    test_cuda_row_sampling.test_what_is_not_finite(run, np.inf, True)


def draw_rows(run):
    test_cuda_row_sampling.test_uniform_draws(run, 257, 256)


def count_values(run):
    test_cuda_ranks.check(run, np.array([[3.0, 1.0, np.nan, 1.0]], np.float32), np.nan, None, 0)


def choose_built(run):
    test_cuda_growth.test_the_nodes_to_build_and_their_slices(run, 1)


def find_leaves(run):
    test_cuda_row_leaves.test_around_the_rows_of_a_warp(run, 33)


def sum_parts(run):
    test_cuda_row_leaves.test_sums_are_those_of_the_rows.hypothesis.inner_test(run, test_cuda_row_leaves.Rows(300, 7, 2, 2), 5)


def add_values(run):
    case = test_cuda_row_leaves.Rows(300, 7, 2, 2)
    test_cuda_row_leaves.test_margins_get_the_values_of_their_leaves.hypothesis.inner_test(run, case, False)


sum_largest = test_cuda_row_leaves.test_the_largest_and_the_smallest_sums
find_splits_of_many_bins = test_cuda_splits.test_the_left_child_of_many_bins_has_the_sums_of_all_of_them
find_splits_of_missing_alone = test_cuda_splits.test_missing_alone_goes_right_whichever_bins_are_empty
find_whole_splits = test_cuda_splits.test_ties_go_to_the_lower_bin_before_they_go_to_missing_left
split_level = test_cuda_growth.test_a_level_is_selected_split_and_cut_into_chunks
split_leaves = test_cuda_growth.test_the_best_leaves_are_selected_split_and_cut_into_chunks
list_slices = test_cuda_histogram.test_slices_are_those_found_row_by_row
list_few_slices = test_cuda_histogram.test_parts_are_fewer_where_each_flushes_much
find_values = test_cuda_ranks.test_ranks_by_hand
move_rows = test_cuda_partition.test_nodes_around_the_size_of_a_chunk_equal_the_cpu
list_some_chunks = test_cuda_partition.test_the_chunks_of_each_node
list_chunks = test_cuda_partition.test_more_nodes_than_threads
count_digits = test_cuda_sketch.test_a_hand_sized_case
sum_leaves = test_cuda_leaves.test_leaves_of_several_chunks_equal_the_cpu
count_lost_codes = test_cuda_binning.test_missing_codes_that_do_not_fit_in_a_byte_are_counted


def move_pages(run):
    test_cuda_partition.test_pages_add_up(run)


def move_by_set(run):
    test_cuda_partition.test_sets_of_many_categories_equal_the_cpu(run, np.uint8)


# ---- The mutants


def without_barrier(module, within, comment, check, caught_by, barrier="syncthreads"):
    """A mutant that lacks the barrier with this comment."""
    return Mutant(module, within, f"cuda.{barrier}()  # {comment}", f"pass  # no barrier: {comment}", check, caught_by)


def without_warp_barrier(module, within, comment, check, caught_by):
    return without_barrier(module, within, comment, check, caught_by, "syncwarp")


MUTANTS = [
    # One of each kind: these run in the ordinary suite.
    Mutant(sketch, "count_digits_kernel", "abs(x) < float32(3.4028235e38)", "abs(x) < 3.4028235e38",
           count_digits_of_the_largest, "ir"),
    without_barrier(partition, "move_rows", "the room is taken", move_rows, "simulator"),
    without_warp_barrier(proposals, "propose_candidates_kernel", "every lane has written its own bin", propose, "races"),
    Mutant(addresses, "add_at_byte", "cuda.atomic.add(array, int(offset + more) >> 2, value)",
           "array[int(offset + more) >> 2] += value", build_in_shared_memory, "races"),
    Mutant(leaves, "sum_leaves_kernel", "int64(math.floor(", "int32(math.floor(", sum_leaves, "ir"),
    # Barriers
    without_barrier(cuda_common, "block_sum", "an earlier call's sums have been read", quantise_rows, "races"),
    without_barrier(cuda_common, "block_sum", "all warps' sums are there", quantise_rows, "simulator"),
    without_barrier(output_sketch, "choose_outputs_kernel", "all that are chosen are listed", choose_outputs, "simulator"),
    without_barrier(cuda_common, "block_max", "an earlier call's maxima have been read", find_gradients, "races"),
    without_barrier(cuda_common, "block_max", "all warps' maxima are there", find_gradients, "simulator"),
    without_barrier(cuda_common, "block_prefix", "an earlier call's sums have been read", list_chunks, "races"),
    without_barrier(cuda_common, "block_prefix", "all warps' sums are there", list_chunks, "simulator"),
    without_barrier(cuda_common, "owner_by_block", "what lay in partial has been read", find_owners, "races"),
    without_barrier(cuda_common, "owner_by_block", "the owner's part is known", find_owners, "simulator"),
    without_barrier(binning, "bin_rows_kernel", "the tile is complete", bin_rows, "simulator"),
    without_barrier(binning, "bin_rows_kernel", "the tile is read", bin_wide_rows, "simulator"),
    without_barrier(predict_words, "predict_by_words_kernel", "the words are there", predict_by_words, "simulator"),
    without_barrier(histogram, "list_build_items_kernel", "every node knows its first row and slice", list_slices, "simulator"),
    without_barrier(histogram_tiles, "build_histograms_kernel", "the planes are zero", build_in_shared_memory, "races"),
    without_barrier(histogram_tiles, "build_histograms_kernel", "all rows are in the planes", build_in_shared_memory,
                    "simulator"),
    without_barrier(histogram_tiles, "build_histograms_kernel", "all lines are turned", build_in_shared_memory, "races"),
    without_barrier(histogram_tiles, "build_histograms_kernel", "the planes are zero again", build_two_limbs, "simulator"),
    without_barrier(histogram_tiles, "turn_lines", "the lines have been read", build_in_shared_memory, "simulator"),
    without_barrier(histogram, "build_strided_histograms_kernel", "the planes are zero", build_strided, "races"),
    without_barrier(histogram, "build_strided_histograms_kernel", "all rows are in the planes", build_strided, "simulator"),
    without_barrier(histogram, "build_strided_histograms_kernel", "the planes are zero again", build_strided, "simulator"),
    without_barrier(nodes, "select_depthwise_step", "ranks are written", select_some_of_a_level, "simulator"),
    without_barrier(nodes, "select_depthwise_step", "all that are selected are written", select_level, "simulator"),
    without_barrier(candidates, "block_best", "an earlier call's values have been read", select_leaves, "races"),
    without_barrier(candidates, "block_best", "all warps' values are there", select_leaves, "races"),
    without_barrier(nodes, "sum_upwards_step", "this level's sums are there for the one above", sum_upwards, "simulator"),
    without_barrier(nodes, "prune_step", "this level is pruned", prune, "simulator"),
    without_barrier(nodes, "prune_step", "this level's leaves are known to the one below", prune, "simulator"),
    without_barrier(growth, "choose_built_kernel", "what is built is known", choose_built, "simulator"),
    without_barrier(growth, "split_depthwise_kernel", "the level's nodes are selected", split_level, "simulator"),
    without_barrier(growth, "split_lossguide_kernel", "the best leaves are selected", split_leaves, "simulator"),
    without_barrier(partition, "move_rows", "all warps have counted", move_rows, "simulator"),
    without_barrier(row_leaves, "find_leaves_kernel", "all splits are there", find_leaves, "simulator"),
    without_barrier(row_leaves, "sum_found_kernel", "the planes are zero", sum_parts, "races"),
    without_barrier(row_leaves, "sum_found_kernel", "all rows are in the planes", sum_parts, "simulator"),
    without_barrier(row_leaves, "sum_found_kernel", "the planes are zero again", sum_parts, "simulator"),
    without_barrier(row_leaves, "add_found_kernel", "the output's before have been read", add_values, "simulator"),
    without_barrier(row_leaves, "add_found_kernel", "all values are there", add_values, "simulator"),
    without_barrier(row_sampling, "count_magnitudes_kernel", "the planes are zero", count_magnitudes, "races"),
    without_barrier(row_sampling, "count_magnitudes_kernel", "the chunk is counted", count_magnitudes, "simulator"),
    without_barrier(row_sampling, "list_and_clear", "the room is reserved", draw_rows, "simulator"),
    without_barrier(row_sampling, "keys_of_round", "the keys are there", draw_rows, "simulator"),
    # Barriers of a warp
    without_warp_barrier(splits, "evaluate_splits_kernel", "the sums before are written", find_splits, "races"),
    without_warp_barrier(splits, "evaluate_splits_kernel", "lane 31 has written the sums of all bins", find_splits, "races"),
    Mutant(splits, "evaluate_splits_kernel", "int64(-1) if is_whole else goes_right - 1", "goes_right - 1", find_whole_splits,
           "both directions are the same candidates"),
    Mutant(splits, "evaluate_splits_kernel", "best_choice = int32(best_choice & int32(-2))", "pass",
           find_splits_of_whole_columns, "simulator"),
    Mutant(splits, "evaluate_plain_splits_kernel", "choice & int32(-2) if is_whole else choice", "choice",
           find_splits_of_whole_columns, "simulator"),
    Mutant(splits, "evaluate_plain_splits_kernel", "uint32(n_items + uint32(n_warps()) - uint32(1))", "n_items",
           find_splits_of_many_features, "simulator"),
    Mutant(splits, "evaluate_plain_splits_kernel", "(grad + upto_grad - lane_grad)", "(upto_grad - lane_grad)",
           find_splits_of_many_bins, "simulator"),
    Mutant(splits, "evaluate_plain_splits_kernel", "best = warp_max(best_key)", "best = best_key", find_splits_of_many_bins,
           "simulator"),
    Mutant(splits, "better_bin", "(left_hess > missing_hess)", "(left_hess > 0)", find_splits_of_missing_alone, "simulator"),
    Mutant(splits, "split_key", "uint64(37)", "uint64(33)", test_cuda_splits.test_gains_of_the_same_16_bits_are_a_tie,
           "simulator"),
    Mutant(splits, "best_column", "min(column + 32, n - 1)", "column", find_splits_of_many_features, "simulator"),
    Mutant(splits, "sum_bins", "uint32(96)", "uint32(64)", find_splits_of_many_bins, "simulator"),
    without_warp_barrier(splits, "evaluate_splits_kernel", "all lanes have read them", find_splits, "simulator"),
    without_warp_barrier(splits, "evaluate_splits_kernel", "the carry may be written anew", find_splits_of_many_outputs,
                         "races"),
    # Atomic operations
    Mutant(histogram_tiles, "flush_tile",
           "add_at(hist, target, uint32(code * uint32(2)), amount << shift)",
           "hist[slot, own, first_bin + int64(code), int64(plane)] += amount << shift", build_in_shared_memory, "races"),
    Mutant(histogram, "build_strided_histograms_kernel",
           "add_at_byte(planes, uint32(bin_place * uint32(4)), uint32(0), int32(pair >> 16))",
           "planes[bin_place] += int32(pair >> 16)", build_strided, "races"),
    Mutant(sketch, "count_digits_kernel", "cuda.atomic.add(counts, (slot, digit), weight)", "counts[slot, digit] += weight",
           count_digits, "races"),
    Mutant(quantise, "quantise_kernel", "cuda.atomic.add(sums, (kind, output, 0), sum_grad)", "sums[kind, output, 0] += sum_grad",
           quantise_rows, "races"),
    Mutant(output_sketch, "sum_squares_kernel", "cuda.atomic.add(sums, output, total)", "sums[output] += total", sum_squares,
           "races"),
    Mutant(gradients, "keep_maxima", "cuda.atomic.max(maxima, (output, 0), largest_grad)",
           "maxima[output, 0] = max(maxima[output, 0], largest_grad)", find_gradients, "races"),
    Mutant(binning, "bin_rows_kernel", "cuda.atomic.add(n_lost, 0, int64(1))", "n_lost[0] += int64(1)", count_lost_codes,
           "races"),
    Mutant(nodes, "select_depthwise_step", "cuda.atomic.add(n_leaves, nodes[selected[i]].tree, int64(1))",
           "n_leaves[nodes[selected[i]].tree] += int64(1)", select_level, "races"),
    Mutant(row_leaves, "sum_found_kernel", "cuda.atomic.add(leaf_sums, (i >> 1, own, i & 1), total)",
           "leaf_sums[i >> 1, own, i & 1] += total", sum_parts, "races"),
    # Casts and widths
    Mutant(row_leaves, "add_sums", "uint32(place ^ uint32(16))", "uint32(place + uint32(16))", sum_largest, "simulator"),
    Mutant(row_leaves, "find_leaves_kernel", "if own < n_rows:", "if own <= n_rows:", find_leaves, "simulator"),
    Mutant(binning, "bin_rows_kernel", "= uint16(code)", "= uint16(code & uint32(255))", bin_into_two_bytes, "simulator"),
    Mutant(histogram_tiles, "add_one_byte_codes", "int32(pair >> 16)", "int32(uint32(pair) >> uint32(16))",
           build_in_shared_memory, "simulator"),
    Mutant(histogram_tiles, "add_two_byte_codes", "int32(pair & 0xFFFF)", "int32(pair) >> 31", build_two_bytes, "simulator"),
    Mutant(histogram_tiles, "add_one_byte_codes", "0xCC04", "0x4404", build_in_shared_memory, "simulator"),
    Mutant(histogram_tiles, "build_histograms_kernel", "uint32(row_words - uint32(width))", "row_words",
           test_cuda_histogram.test_the_last_record_is_not_read_beyond_its_end, "simulator"),
    Mutant(histogram_tiles, "flush_tile", "for k in range(1, 4):", "for k in range(1, 1):", build_copies, "simulator"),
    Mutant(histogram_tiles, "flush_tile", "uint32(uint32(feature // codes_of_word) * width)", "uint32(feature // codes_of_word)",
           build_wide, "simulator"),
    Mutant(partition, "move_rows", "uint32(uint32(1) << uint32(lane_number())) - uint32(1)",
           "uint32(uint32(2) << uint32(lane_number())) - uint32(1)", move_rows, "simulator"),
    Mutant(partition, "move_rows", "int64(2**32 + 1)", "int64(2**31 + 1)", move_rows, "simulator"),
    Mutant(partition, "move_rows", "int64(total) << 32 | int64(n_right)", "int64(n_right) << 32 | int64(total)", move_rows,
           "simulator"),
    Mutant(partition, "move_rows", "if uint32(k) < n_here:", "if uint32(k) <= n_here:", move_rows, "simulator"),
    Mutant(partition, "move_rows", "uint32(goes_left & uint32(uint32(uint32(1) << n_here) - uint32(1)))", "goes_left", move_rows,
           "simulator"),
    Mutant(partition, "rows_of_thread", "uint32(0) if first > last else", "", move_rows, "simulator"),
    Mutant(partition, "move_rows_kernel", "low >> uint64(16) | high << uint64(48)", "low >> uint64(16)", move_by_set,
           "simulator"),
    Mutant(partition, "list_chunks_kernel", "moved[selected[i]] = int64(0)", "moved[i] = int64(0)", list_some_chunks,
           "simulator"),
    Mutant(partition, "place_pair", "middle = begin + n_left", "middle = begin + counts[2 * i]", move_pages, "simulator"),
    Mutant(partition, "move_rows", "n_moved >> 32, nodes", "taken[0] >> 32, nodes", move_rows, "simulator"),
    Mutant(partition, "move_rows", "n_moved & int64(0xFFFFFFFF)", "own & int64(0xFFFFFFFF)", move_rows, "simulator"),
    Mutant(proposals, "propose_candidates_kernel", "uint32(uint32(1) << uint32(lane)) - uint32(1)",
           "uint32(uint32(1) << uint32(lane + 1)) - uint32(1)", propose, "simulator"),
    Mutant(row_sampling, "list_and_clear", "before = cuda.shfl_sync(FULL_WARP, before, 0)", "before = before", draw_rows,
           "simulator"),
    Mutant(row_sampling, "list_and_clear", "uint32((in_front if chosen else behind) & below)", "in_front if chosen else behind",
           draw_rows, "simulator"),
    Mutant(predict_words, "value_cell", "x != x or x == missing", "x != x", predict_by_words, "simulator"),
    Mutant(predict_words, "predict_by_words_kernel", "uint32(words.size) * uint32(2) + i", "uint32(words.size) + i",
           predict_by_words, "simulator"),
    Mutant(predict_words, "predict_by_words_kernel", "own_group != group", "group < own_group", predict_by_words, "simulator"),
    Mutant(ranks, "first_not_below", ">= key", "> key", find_values, "simulator"),
    Mutant(ranks, "count_values_kernel", "row + 1, shift) == uint32", "row + 1, shift) != uint32", count_values, "simulator"),
    Mutant(histogram, "list_build_items_kernel", "min(n_parts, n_best)", "n_best", list_few_slices, "simulator"),
    Mutant(histogram_tiles, "put_turned", "uint32(31)", "uint32(15)", build_in_shared_memory, "simulator"),
    Mutant(quantise, "quantise_kernel", "int64(((qg + int64(32768))", "int64(((int32(qg) + int32(32768))", quantise_rows_finely,
           "q_g fits in 32 bits, and numba adds int32 as int64"),
    Mutant(histogram_tiles, "flush_tile", "int64(int32(value))", "int32(value)", build_two_limbs,
           "shift is int64, and so is the result"),
]  # fmt: skip
