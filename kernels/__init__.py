"""Every numerical operation of the booster, one file each: contract, formula, CPU twin and CUDA kernel.

Imports NumPy, numba and math only. Import it as ``gpuboost.kernels``.
"""
