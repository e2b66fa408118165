"""All kernels of the CPU, each beside its floor on this machine; kernel_bench.py says how they are measured.

    python benchmarks/bench_kernels.py
    python benchmarks/bench_kernels.py --workloads "training 450k" --threads 1 2

"other kernels" are those without a benchmark, and "all else" is what no parallel kernel takes.
"""

from importlib import import_module

from kernel_bench import main

FILES = ("quantiles", "sketch", "binning", "records", "gradients", "quantise", "histogram", "splits", "partition", "leaves",
         "predict", "exact", "sparse", "compaction")  # fmt: skip

if __name__ == "__main__":
    main("kernels", __doc__, [kernel for name in FILES for kernel in import_module(f"bench_{name}").KERNELS])
