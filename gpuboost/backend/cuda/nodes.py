"""The nodes of growing trees on a GPU."""

import numpy as np

from gpuboost.backend.contract import Array
from gpuboost.backend.cuda.device import Device
from gpuboost.backend.cuda.plan import arrays_by_node, finished_arrays

__all__ = ["NodeArrays"]


class NodeArrays:
    """Arrays by node, of all trees of a round together (kernels/structs.py), with room for ``capacity`` of them.

    segments : int64 (capacity, 3) of each page. finished : uint8, the memory of the arrays of plan.finished_arrays. The others as
    plan.arrays_by_node.
    """

    state: Array
    nodes: Array
    sums: Array
    left_sums: Array
    cats: Array
    counts: Array
    selected: Array
    rank: Array
    build: Array
    parents: Array
    first_item: Array
    leaf_sums: Array
    weights: Array
    leaf_values: Array
    covers: Array
    flat: Array

    def __init__(
        self, device: Device, n_pages: int, leaf_size: int, searched_size: int, n_words: int, bounds: bool
    ) -> None:
        self._device, self._leaf_size, self._n_words = device, leaf_size, n_words
        self._of_growing = leaf_size, searched_size, n_words, bounds
        self.capacity = 0
        self.finished: Array = device.empty(0, np.uint8)
        self.segments: list[Array] = [device.empty((0, 3), np.int64)] * n_pages

    def reserve(self, n_nodes: int) -> bool:
        """Make room for n_nodes nodes, keeping what is there; whether arrays were replaced."""
        if n_nodes <= self.capacity:
            return False
        n, empty = max(n_nodes, 2 * self.capacity), self._device.empty
        growing = arrays_by_node(n, *self._of_growing)
        self.finished, arrays = self._device.empty_together(finished_arrays(n, self._leaf_size, self._n_words))
        arrays |= {name: empty(shape, dtype) for name, (shape, dtype) in growing.items()}
        for name, array in arrays.items():
            setattr(self, name, _with_content_of(getattr(self, name, None), array))
        self.segments = [_with_content_of(segments, empty((n, 3), np.int64)) for segments in self.segments]
        self.capacity = n
        return True


def _with_content_of(old: Array | None, array: Array) -> Array:
    """The array, which begins as the old one."""
    if old is not None:
        array[: len(old)] = old
    return array
