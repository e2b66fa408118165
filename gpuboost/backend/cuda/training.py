"""One training on a GPU."""

from collections.abc import Callable, Sequence

import numpy as np

from gpuboost.backend.contract import Array, Training, TrainingRows
from gpuboost.backend.cuda.device import Device, PendingCopy, side_by_side
from gpuboost.backend.cuda.gradients import CudaGradients
from gpuboost.backend.cuda.leaf_quantiles import CudaLeafQuantiles
from gpuboost.backend.cuda.memory import Launcher, on_device
from gpuboost.backend.cuda.plan import TrainingSize, finished_arrays, plan_memory
from gpuboost.backend.cuda.rows import list_page_rows
from gpuboost.backend.cuda.staging import StagedPages, split_features
from gpuboost.backend.cuda.tables import bytes_copied, open_table
from gpuboost.backend.cuda.trees import CudaTrees
from gpuboost.backend.draws import most_bins
from gpuboost.backend.fixed_point import check_finite
from gpuboost.backend.plans import Round
from gpuboost.backend.trees import Grown, collect_trees
from gpuboost.kernels import nodes
from gpuboost.kernels.category_splits import count_words
from gpuboost.kernels.gradients import NON_FINITE_BITS
from gpuboost.kernels.structs import PROGRESS
from gpuboost.model.tree import Tree
from gpuboost.params import Params

__all__ = ["CudaTraining"]


HELD_SHARE = 3, 4  # of the memory that a training leaves free, for pages: evaluation needs some, too
Leaving = tuple[PendingCopy, int]  # finished trees on their way to the host, and for how many nodes there is room


@on_device(Training)
class CudaTraining(Training[Leaving]):
    """Device arrays, and launches by upper bounds."""

    gradients: CudaGradients
    trees: CudaTrees

    def __init__(
        self, device: Device, rows: TrainingRows, params: Params, n_trees: int, leaf_size: int, leaf_alphas: tuple[float, ...]
    ) -> None:
        binned, pages = rows.binned, rows.binned.pages
        if isinstance(pages, StagedPages):
            pages.hold(0)  # a training before this one may have left no room
        plan = plan_memory(training_size(rows, params, n_trees, leaf_size, bool(leaf_alphas)), params, device.free_bytes())
        self.device, self._binned, self._n_trees, self._leaf_size = device, binned, n_trees, leaf_size
        self._first_outputs = range(0, n_trees * leaf_size, leaf_size)
        self._seed = params.seed & (2**64 - 1)
        self._launch = launch = Launcher(device)
        self._progress = device.zeros(1, PROGRESS)
        first_output = device.put(np.arange(n_trees, dtype=np.int32) * leaf_size)
        self.margin = device.put(rows.margin)
        n_searched = n_trees * params.searched_outputs(leaf_size)
        self._pages = list_page_rows(device, rows, n_trees, n_searched, draws_rows=params.sampling is not None)
        self._table = open_table(launch, binned, params, self._pages, first_output, self._progress)
        self.gradients = CudaGradients(launch, rows, params, n_searched, self.margin, self._pages, self._progress)
        self.trees = CudaTrees(
            launch, binned.cuts, params, plan, first_output, leaf_size, self.gradients, self._table, self._pages, self._progress,
            needs_lists=bool(leaf_alphas),
        )  # fmt: skip
        if leaf_alphas:
            self.leaf_quantiles = CudaLeafQuantiles(
                launch, rows.global_rows, leaf_alphas, self.margin, self.gradients, self.trees, self._pages, self._progress
            )
        if isinstance(pages, StagedPages):
            pages.hold(device.free_bytes() // HELD_SHARE[1] * HELD_SHARE[0])

    def start_round(self, plan: Round) -> None:
        plan.require_outputs(self._first_outputs, self._leaf_size)
        self.gradients.take_plan(plan)
        self.device.launch(
            nodes.start_round_kernel, plan.number, self._seed, plan.learning_rate, self._progress, threads=1
        )
        self.trees.take_plan(plan)

    def grow(self, plan: Round, margin: Array | None, steps: Callable[[], None]) -> None:
        """One launch, from the second tree on, where the host need not know how far a tree has grown. What changes from round to
        round has been written where kernels read it."""
        if self.trees.runs_ahead:
            self._launch.repeat(plan.alike, steps, margin)
        else:
            steps()

    def update_margin(self, margin: Array) -> None:
        draws = self.trees.plan.rows is not None and not self.trees.finds_all
        for p in range(len(self._pages)):
            self.trees.add_to_margin(p, margin)
        if not draws and not any(len(page.idle) for page in self._pages):
            return
        flat = self.trees.flat()
        for p, codes in self._table.walk(split_features(self.device, flat, self._binned)):
            page = self._pages[p]
            if len(page.idle):
                self._table.predict(p, codes, flat, (page.idle, page.n_idle), margin)
            if draws:
                self._table.predict(p, codes, flat, (page.drawn, page.n_listed), margin)

    def finish_trees(self) -> Leaving:
        return self.trees.start_copy(), self.trees.arrays.capacity

    def fetch_trees(self, pending: Sequence[Leaving]) -> list[Tree]:
        return collect_trees([self._arrived(*leaving) for leaving in pending], self._binned.cuts)

    def _arrived(self, copy: PendingCopy, capacity: int) -> Grown:
        shapes, memory = finished_arrays(capacity, self._leaf_size, count_words(self._binned.cuts.n_categories)), copy.wait()
        places = side_by_side(shapes)
        finished = {name: memory[places[name]].view(dtype).reshape(shape) for name, (shape, dtype) in shapes.items()}
        n, non_finite = finished["state"]
        check_finite(non_finite * NON_FINITE_BITS)
        own_nodes, leaf_values, weights, covers = (finished[name][:n] for name in ("nodes", "leaf_values", "weights", "covers"))
        cats = finished["cats"][:n] if "cats" in finished else None
        return Grown(self._n_trees, own_nodes, leaf_values, weights, covers, cats)


def training_size(
    rows: TrainingRows, params: Params, n_trees: int, leaf_size: int, has_quantiles: bool = False
) -> TrainingSize:
    """What a training has to hold, as plan.plan_memory asks."""
    binned = rows.binned
    n_outputs, n_rows = rows.margin.shape
    return TrainingSize(
        n_rows=n_rows, n_outputs=n_outputs, n_targets=len(rows.label), n_trees=n_trees, leaf_size=leaf_size,
        searched_size=params.searched_outputs(leaf_size),
        n_features=binned.cuts.n_features, n_bins=most_bins(params, binned.cuts),
        n_packed=0 if binned.packing is None else int(binned.packing.offsets[-1]), n_pages=len(binned.pages),
        largest_page=max(binned.pages.page_rows), copied_bytes=bytes_copied(binned, params), has_quantiles=has_quantiles,
        staged_bytes=binned.pages.staging_bytes if isinstance(binned.pages, StagedPages) else 0,
        n_categories=int(binned.cuts.n_categories.max()), n_words=count_words(binned.cuts.n_categories),
    )  # fmt: skip
