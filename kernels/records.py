"""The record of a growing tree's node: the one structure that every growth kernel reads and writes, on either device.

All trees of a round share one array of these records; a node's children are adjacent (right = left + 1). What is as long as
the output axis lies beside it in plain arrays, indexed by node:

    sums, left_sums : int64 (n_nodes, n_outputs, 2). Fixed-point gradient and hessian of the node and of its best left child.
    cats : uint32 (n_nodes, n_words). Categories that go right, one bit each; unused while kind is NUMERIC.
    counts : int64 (n_nodes,). Rows over all pages and workers.
    segments : int64 (n_pages, n_nodes, 3). Rows of a node in a page: begin, end, and which of the two row buffers holds them.
"""

import numpy as np

NUMERIC, CATEGORICAL = 0, 1

NODE = np.dtype(
    [
        ("gain", np.float64),  # of the best split found, Eq. 7 without its ½; −inf when there is none
        ("lower", np.float64),  # bounds on the weight of every leaf below (monotone constraints)
        ("upper", np.float64),
        ("tree", np.int32),
        ("parent", np.int32),  # −1 at a root
        ("left", np.int32),  # −1 while the node is a leaf
        ("depth", np.int32),
        ("slot", np.int32),  # where its histogram lies; −1 before it has one
        ("feature", np.int32),  # of the best split, with bin, kind and default_left
        ("bin", np.int32),  # codes up to this one go left
        ("kind", np.int32),
        ("default_left", np.int32),
        ("leaf", np.int32),  # after pruning: the leaf that the node's rows end in
    ],
    align=True,
)

NO_GAIN = -np.inf
EMPTY_WORDS = 1  # a numeric-only training keeps one unused word of categories per node
