"""Explaining predictions: which part of a margin each feature has. Nothing here is loaded before it is asked for.

Why integrals by points (kernels/path_steps.py), and as many as a tree's longest path needs. 1,000 trees of one long path each,
5 rows, the largest |sum of contributions − margin| relative to the largest margin:

    splits a path                                       6          16         32         60
    here                                                8.4e-7     3.6e-7     8.3e-7     4.1e-7      (float32 of the results)
    classic TreeSHAP (XGBoost 3.2)                      1.8e-6     9.4e-7     9.7e-7     stops: its path weights are NaN
    eight points in float32 (XGBoost 3.4.1)             9.6e-7     5.0e-7     1.3e-6     5.5e-7

Classic TreeSHAP takes leaves × depth² for a row, this nodes × points. Eight points are fewer than 60 features ask for, and come
close; here the points of each tree leave no error but rounding, and trees of depth 6 need three.
"""
