"""The name by which columns.py still imports data/tables/sparse.py."""

from gpuboost.data.tables.sparse import float32_values as float32_values
