"""Linear models (booster="gblinear"), trained on the CPU: a table as lists of columns (data/column_lists.py), rounds of descent
along them (descent), and what makes rounds a training (boosting)."""
