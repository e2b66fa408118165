"""The name by which columns.py and sketch.py still import data/tables/device.py."""

from gpuboost.data.tables.device import host_array as host_array
