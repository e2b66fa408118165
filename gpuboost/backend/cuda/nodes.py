"""The nodes of growing trees on a GPU."""

import numpy as np

from gpuboost.backend.contract import Array
from gpuboost.backend.cuda.device import Device
from gpuboost.backend.cuda.plan import arrays_by_node

__all__ = ["NodeArrays"]


class NodeArrays:
    """Arrays by node, of all trees of a round together (kernels/structs.py), with room for ``capacity`` of them.

    segments : int64 (capacity, 3) of each page. The others as plan.arrays_by_node.
    """

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

    def __init__(self, device: Device, n_pages: int, leaf_size: int) -> None:
        self._device, self._leaf_size = device, leaf_size
        self.capacity = 0
        self.segments: list[Array] = [device.empty((0, 3), np.int64)] * n_pages

    def reserve(self, n_nodes: int) -> bool:
        """Make room for n_nodes nodes, keeping what is there; whether arrays were replaced."""
        if n_nodes <= self.capacity:
            return False
        n = max(n_nodes, 2 * self.capacity)
        for name, (shape, dtype) in arrays_by_node(n, self._leaf_size).items():
            setattr(self, name, self._grown(getattr(self, name, None), shape, dtype))
        self.segments = [self._grown(segments, (n, 3), np.int64) for segments in self.segments]
        self.capacity = n
        return True

    def _grown(self, old: Array | None, shape: tuple[int, ...], dtype: np.dtype | type) -> Array:
        new = self._device.empty(shape, dtype)
        if old is not None:
            new[: len(old)] = old
        return new
