"""The least that a tree takes on a GPU by these steps, however their kernels are written: what they must read, write and add, at
the rates of a copy and of adds to shared memory. Other steps might need less: rows without numbers at the root, packed sums.

Assumed, and nothing beside it:

- A step reads and writes each byte that it needs once, at memory_gb_s: no sector is read for a part of it, nothing is found in a
  cache or kept in one from step to step.
- A histogram's updates, two for a row and feature, are adds to shared memory, 32 a pass of pass_clocks, on all multiprocessors.
  Rows, codes and pairs are read meanwhile: the longer of the two counts.
- Of siblings the smaller one is built, the other one is their parent less this one.
- Arithmetic takes no time.
- A step waits for the one before, graph_us each.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gpu_machine import Machine
from gpu_model_kernels import Level, Task, built_levels, split_levels

ROW, LEAF, PAIR, FLOAT, BIN = 4, 2, 4, 4, 16  # bytes: a row, a leaf, a row's gradients in fixed point, a float, a bin's two sums
STEPS_OF_A_LEVEL = 3  # histograms, splits and partition; siblings and the choice among features could be parts of these
STEPS_OF_A_TREE = 4  # gradients, fixed point, leaves with their sums, margins


@dataclass(frozen=True)
class Need:
    """A step of a tree. kernel : regular expression of names of those that do it. what : in words. ms : (task, machine) -> of all
    its launches in a tree."""

    kernel: str
    what: str
    ms: Callable[[Task, Machine], float]


def moved(row_bytes: float) -> Callable[[Task, Machine], float]:
    return lambda task, machine: 1e-6 * task.n_rows * row_bytes / machine.memory_gb_s


def histogram_bytes(task: Task, level: Level) -> float:
    return level.nodes * BIN * task.n_features * task.n_bins


def histograms(task: Task, machine: Machine) -> float:
    ms = 0.0
    for level in built_levels(task, machine):
        clocks = level.rows * task.n_features * 2 / 32 * machine.pass_clocks / machine.multiprocessors
        n_bytes = level.rows * (ROW + PAIR + task.n_features) + histogram_bytes(task, level)
        ms += 1e-6 * max(clocks / machine.clock_ghz, n_bytes / machine.memory_gb_s)
    return ms


def siblings(task: Task, machine: Machine) -> float:
    return 1e-6 * sum(3 * histogram_bytes(task, level) for level in built_levels(task, machine)[1:]) / machine.memory_gb_s


def splits(task: Task, machine: Machine) -> float:
    return 1e-6 * sum(histogram_bytes(task, level) for level in split_levels(task)) / machine.memory_gb_s


NEEDS = (
    Need(r"gradients\..*", "gradients: margin and label read, gradient and hessian written", moved(4 * FLOAT)),
    Need(r"quantise\.quantise_kernel", "fixed point: both read, a pair written", moved(2 * FLOAT + PAIR)),
    Need(r"growth\.start_trees_kernel", "rows of the root: written", moved(ROW)),
    Need(r"histogram\w*\.build_\w+", "histograms: number, pair and codes of a row read, updates added, sums written", histograms),
    Need(r"histogram\.subtract_\w+", "siblings: parent and child read, the other child written", siblings),
    Need(r"splits\.evaluate_\w+", "splits: all histograms read", splits),
    Need(r"partition\.move_rows_kernel", "partition: number and code of a row read, number written, at each level but the last",
         lambda task, machine: (task.max_depth - 1) * moved(2 * ROW + 1)(task, machine)),
    Need(r"row_leaves\.find_\w+", "leaves: a code of a row at each level read, a leaf written",
         lambda task, machine: moved(task.max_depth + LEAF)(task, machine)),
    Need(r"row_leaves\.sum_\w+", "their sums: leaf, gradient and hessian of a row read", moved(LEAF + 2 * FLOAT)),
    Need(r"row_leaves\.add_\w+", "margins: leaf of a row read, margin read and written", moved(LEAF + 2 * FLOAT)),
    Need("", "steps that wait for one another",
         lambda task, machine: 1e-3 * machine.graph_us * (STEPS_OF_A_TREE + STEPS_OF_A_LEVEL * task.max_depth)),
)  # fmt: skip


def floors(task: Task, machine: Machine) -> dict[str, float]:
    """ms of a tree of each of NEEDS, by what it says."""
    return {need.what: need.ms(task, machine) for need in NEEDS}
