"""Trees: how one is grown (grower), what a finished one and a whole model hold (tree, model)."""
