"""Functions of a user's own inside the kernels of either device: losses, metrics and gains as scalar Python functions."""
