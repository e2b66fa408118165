"""The trees of a model once more, on other rows or parameters (process_type="update"). On the CPU.

    boosting    one round after another, in the place of new trees
    trees       what is done to a tree: refreshed, pruned
"""
