"""How the trees of a round are grown: the algorithm (grower), once for every device, and the constraints on it."""
