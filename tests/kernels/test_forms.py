"""Kernels that have a form for some processors: their tests, compiled for the lower levels that this one runs, too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_compile_cache import levels_of_this_processor

HERE = Path(__file__).resolve().parent
WITH_FORMS = [
    "test_binning_kernel.py", "test_compressing.py", "test_conversions.py", "test_leaf_masks.py", "test_packed_candidates.py",
    "test_register_search.py", "test_top_codes.py", "test_top_levels.py", "test_turning.py",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
def test_kernels_compiled_for_lower_levels(level, tmp_path):
    if level not in levels_of_this_processor():
        pytest.skip(f"this processor does not run {level}")
    env = os.environ | {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": "", "GPUBOOST_KERNELS": "native"}
    env["NUMBA_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(str(HERE / name) for name in WITH_FORMS)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1800, cwd=HERE.parent.parent)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
