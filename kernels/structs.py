"""The struct of a growing tree's node: the one that every growth kernel reads and writes, on either device.

All trees of a round share one array of these structs; a node's children are adjacent (right = left + 1). What is as long as
the output axis lies beside it in plain arrays, indexed by node:

    sums, left_sums : int64 (n_nodes, n_outputs, 2). Fixed-point gradient and hessian of the node and of its best left child.
        Where monotone constraints hold for several outputs, the sums have the bits of two float64 behind them: the bounds on the
        weight of this output in every leaf below.
    cats : uint32 (n_nodes, n_words). For how many categories there are bits, then these bits, 1 for those that go right: a set as
        scalar.is_in_set reads it. Unused where kind is NUMERIC.
    counts : int64 (n_nodes,). Rows over all pages and workers.
    segments : int64 (n_pages, n_nodes, 3). Rows of a node in a page: begin, end, and which of the two row buffers holds them.
"""

import numpy as np

NUMERIC, CATEGORICAL = 0, 1

# What a split is, the same in every struct that holds one; scalar.split_goes_left says which side a row goes to while trees
# grow. The categories of a set that go right are words beside the struct.
SPLIT = [
    ("feature", np.int32),  # −1 at a leaf of a finished tree
    ("bin", np.int32),  # codes up to this one go left; −1 in a finished tree where the cuts do not hold its threshold
    ("kind", np.int32),
    ("default_left", np.int32),  # where missing values go
]

NODE = np.dtype(
    [
        ("gain", np.float64),  # of the best split found, Eq. 7 without its ½; −inf when there is none
        ("lower", np.float64),  # bounds on the weight of every leaf below (monotone constraints); of one output
        ("upper", np.float64),
        ("tree", np.int32),
        ("parent", np.int32),  # −1 at a root
        ("left", np.int32),  # −1 while the node is a leaf
        ("depth", np.int32),
        ("slot", np.int32),  # where its histogram lies; −1 before it has one
        *SPLIT,  # the best that was found
        ("leaf", np.int32),  # after pruning: the leaf that the node's rows end in
    ],
    align=True,
)

# A node of a finished tree, as prediction walks it (kernels/predict.py).
FLAT_NODE = np.dtype(
    [
        ("threshold", np.float32),  # of a numeric split; the leaf values lie beside the nodes: float32 (n_nodes, leaf_size)
        *SPLIT,  # of a categorical one, bin says where its set begins (scalar.is_in_set)
        ("left", np.int32),  # within the tree; right = left + 1
    ],
    align=True,
)

# Where a training on a GPU stands. It lies on the device, one struct: kernels read it, so that the host need not.
PROGRESS = np.dtype(
    [
        ("learning_rate", np.float64),
        ("seed", np.uint64),
        ("round", np.int64),
        ("non_finite", np.int64),  # 1 once a gradient or hessian was NaN or infinite
        ("n_nodes", np.int64),  # of all trees of the round
        ("frontier", np.int64),  # first of the nodes that wait for evaluation; the last is n_nodes − 1
        ("n_selected", np.int64),  # nodes to split now
        ("n_built", np.int64),  # nodes whose histograms are built from rows
        ("n_items", np.int64),  # work items of the launch to come
        ("depth", np.int64),  # of the deepest nodes
    ],
    align=True,
)

# Rows of one node that a block adds up together: a place of a row list from begin to end, in one of its two buffers.
SLICE = np.dtype([(name, np.int32) for name in ("slot", "output", "side", "begin", "end")], align=True)

# The regularisation that split finding and leaf weights read, one struct on the device; names as XGBoost's parameters.
PENALTY = np.dtype(
    [(name, np.float64) for name in ("reg_lambda", "reg_alpha", "max_delta_step", "min_child_weight", "gamma")], align=True
)

# How features of categories are split (kernels/category_splits.py); names as the parameters. cat_spread : cat_noise, or
# more where gradients vary more in a round. cat_step : no less than the gradient of any row (kernels/gradient_noise.py).
CATEGORY_RULES = np.dtype(
    [("max_cat_to_onehot", np.int64), ("max_cat_threshold", np.int64)]
    + [(name, np.float64) for name in ("cat_smooth", "cat_l2", "min_data_per_group", "cat_noise", "cat_spread", "cat_step")],
    align=True,
)

# A step of the walk over all paths of a tree (kernels/path_steps.py).
STEP = np.dtype(
    [
        ("cold", np.float64),  # what is left of a path's weight below, where the row has left the path at this feature before
        ("first", np.int64),  # of the step's coefficients
        ("first_partner", np.int64),
        ("n_partners", np.int32),
        ("kind", np.int32),  # SPLIT, LEAVES, DOWN, UP or FIRST_UP
        ("node", np.int32),  # of all trees together
        ("level", np.int32),  # of the node
        ("column", np.int32),  # of the sums that the step adds to
        ("above", np.int32),  # level of the last split above by the same feature; −1: none
        ("side", np.int32),  # of that split to which the path goes
        ("own_side", np.int32),  # of the node, where the step goes down or comes up
    ],
    align=True,
)

NO_GAIN = -np.inf
EMPTY_WORDS = 1  # a numeric-only training keeps one unused word of categories per node
