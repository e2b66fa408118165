"""The nodes of growing trees on the CPU."""

import numpy as np

from gpuboost.kernels.structs import NODE

__all__ = ["NodeArrays"]


class NodeArrays:
    """Arrays by node, of all trees of a round together (kernels/structs.py); n_nodes of them are in use.

    nodes : NODE. sums, left_sums : int64 (…, leaf_size, 2), the sums with room for ``bounds`` of each output behind them.
    cats : uint32 (…, n_words). counts : int64. segments : int64 (n_pages, …, 3).
    """

    def __init__(self, n_pages: int, leaf_size: int, n_words: int, bounds: bool) -> None:
        self.n_nodes = 0
        self.nodes = np.empty(0, NODE)
        self.sums = np.empty((0, leaf_size, 4 if bounds else 2), np.int64)
        self.left_sums = np.empty((0, leaf_size, 2), np.int64)
        self.cats = np.empty((0, n_words), np.uint32)
        self.counts = np.empty(0, np.int64)
        self.segments = np.empty((n_pages, 0, 3), np.int64)

    def reserve(self, n_nodes: int) -> None:
        """Make room for n_nodes nodes. Trees to come use the same arrays, and each node is written before it is read; the arrays
        double, so the copies cost no more than the nodes."""
        if n_nodes <= len(self.nodes):
            return
        for name in ("nodes", "sums", "left_sums", "cats", "counts"):
            array = getattr(self, name)
            grown = np.zeros((2 * n_nodes, *array.shape[1:]), array.dtype)
            grown[: self.n_nodes] = array[: self.n_nodes]
            setattr(self, name, grown)
        segments = np.zeros((len(self.segments), 2 * n_nodes, 3), np.int64)
        segments[:, : self.n_nodes] = self.segments[:, : self.n_nodes]
        self.segments = segments

    def renumber(self, order: np.ndarray) -> None:
        """Let node order[i] be node i. order : int32 (n_nodes,), parents before their children, siblings side by side. Of what is
        not read any more once trees are grown, numbers are the old ones."""
        n = self.n_nodes
        new = np.empty(n + 1, np.int32)
        new[order], new[-1] = np.arange(n), -1  # that of none
        self.nodes[:n], self.cats[:n], self.segments[:, :n] = self.nodes[order], self.cats[order], self.segments[:, order]
        if self.sums.shape[2] > 2:
            self.sums[:n] = self.sums[order]
        for field in ("parent", "left"):
            self.nodes[field][:n] = new[self.nodes[field][:n]]
