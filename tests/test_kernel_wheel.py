"""The wheel with compiled kernels: the pure one, a folder of machine code for each level, a name that says for whom."""

import importlib.util
import platform
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpuboost.kernels import compile_cache

ROOT = Path(__file__).parents[1]
ONE_KERNEL = """
import numpy as np
from gpuboost.kernels.scalar import log_on_host
assert log_on_host(1.0) == 0.0
"""


def load_tool():
    spec = importlib.util.spec_from_file_location("kernel_wheel", ROOT / "tools" / "kernel_wheel.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@pytest.mark.parametrize(
    "features, expected",
    [(compile_cache.LEVELS["x86-64-v4"], ["x86-64-v3", "x86-64-v4"]), ("avx512f", ["x86-64-v3"])],
)
def test_levels_are_those_that_the_processor_runs(features, expected, monkeypatch, capsys):
    """A level of which a feature is missing, as on processors with AVX2 alone, is left out, and the one below built."""
    below = [*compile_cache.LEVELS["x86-64-v2"].split(), *compile_cache.LEVELS["x86-64-v3"].split()]
    monkeypatch.setattr(compile_cache, "own_features", lambda: ",".join(f"+{name}" for name in [*below, *features.split()]))
    assert load_tool().own_levels() == expected
    assert ("x86-64-v4 is left out" in capsys.readouterr().err) == (len(expected) == 1)


@pytest.mark.slow
@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason="for Linux on x86-64 only")
@pytest.mark.skipif(not (find_spec("build") and find_spec("wheel")), reason="needs the packages build and wheel")
def test_two_builds_give_the_same_wheel_for_this_python(tmp_path, monkeypatch):
    """One kernel stands for all; .ci/run builds those of the usual uses and tries them."""
    tool = load_tool()
    monkeypatch.setattr(tool, "PLACE", tmp_path / "place")
    wheels = []
    for folder in ("first", "second"):
        tool.PLACE.mkdir()
        wheels.append(tool.build(["x86-64-v3"], ["-c", ONE_KERNEL], [], tmp_path / folder))
        tool.shutil.rmtree(tool.PLACE)
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheels[0].name.endswith(f"-{version}-{version}{getattr(sys, 'abiflags', '')}-manylinux_2_17_x86_64.whl")
    with zipfile.ZipFile(wheels[0]) as wheel:
        assert wheel.testzip() is None
        names = wheel.namelist()
    compiled = [name for name in names if name.startswith("gpuboost/kernels/compiled/")]
    assert len(compiled) == 2 and all("/x86-64-v3/scalar.log_on_host-" in name for name in compiled)
    assert "gpuboost/kernels/histogram.py" in names and not [name for name in names if "__pycache__" in name]
