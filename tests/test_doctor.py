"""gpuboost doctor: what it says of this machine, and of machines that are pretended."""

import ctypes
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from simulator import SimulatedDevice

from gpuboost import doctor
from gpuboost.backend.cuda import device as device_module
from gpuboost.cli import main

pytestmark = pytest.mark.long

GPU = (13000, 1, "")  # what doctor.ask_driver answers
NO_GPU = (0, 0, "")


class PretendedGpu(SimulatedDevice):
    name, capability = "Pretended", (9, 0)
    xp = SimpleNamespace(**vars(np), cuda=SimpleNamespace(runtime=SimpleNamespace(memGetInfo=lambda: (2**31, 2**32))))


@pytest.fixture
def pretend(monkeypatch, tmp_path):
    """Function (driver, cupy, **patches): a machine whose driver answers that, and whose CuPy is for that CUDA version.

    Other names are patched in gpuboost.doctor. Without ``train_on`` nothing is trained.
    """

    def make(driver, cupy=13020, **patches):
        monkeypatch.setenv("GPUBOOST_CACHE_DIR", str(tmp_path / "cache"))
        runtime = SimpleNamespace(runtimeGetVersion=lambda: cupy)
        module = SimpleNamespace(__version__="14.2.0", cuda=SimpleNamespace(runtime=runtime)) if cupy else None
        monkeypatch.setitem(sys.modules, "cupy", module)
        if driver[1] and cupy:
            monkeypatch.setattr(device_module, "find_device", lambda number: PretendedGpu())
        for name, value in {"ask_driver": lambda: driver, "train_on": lambda device: "digest", **patches}.items():
            monkeypatch.setattr(doctor, name, value)

    return make


def states():
    return {finding.check: finding.state for finding in doctor.examine()}


def raising(error):
    def function(*args):
        raise error

    return function


def wrong_digest(device):
    return f"of {device}"


@pytest.mark.parametrize(
    "driver, options, check, state, found, fix",
    [
        (NO_GPU, {}, "gpu", "missing", "no GPU: training runs on the CPU", ""),
        (NO_GPU, {}, "gpu", "missing", "no NVIDIA driver", ""),
        ((13000, 0, "error 999"), {"cupy": None}, "cupy", "missing", "not installed", ""),
        ((13000, 0, "error 999"), {"installed_version": lambda package: None}, "compiler", "missing", "not installed", ""),
        ((13000, 0, "error 999"), {}, "training", "missing", "not tried", ""),
        (NO_GPU, {}, "package", "ok", "gpuboost-trees", ""),
        (NO_GPU, {"installed_version": {"gpuboost": "0.2.0"}.get}, "package", "wrong", "gpuboost 0.2.0", "uninstall"),
        (NO_GPU, {"train_on": raising(ValueError("of\nnumba"))}, "cpu", "wrong", "ValueError: of numba", "pip install"),
        (GPU, {}, "gpu", "ok", "Pretended, compute capability 9.0, 2.0 of 4.0 GiB free", ""),
        ((13000, 3, ""), {}, "gpu", "ok", "and 2 more", ""),
        (GPU, {"cupy": None}, "cupy", "wrong", "cupy", "pip install 'gpuboost-trees[cuda13]'"),
        ((12080, 1, ""), {"cupy": None}, "cupy", "wrong", "cupy", "pip install 'gpuboost-trees[cuda12]'"),
        ((12080, 1, ""), {}, "cupy", "wrong", "CUDA 13.2, but the driver knows CUDA 12.8", "gpuboost-trees[cuda12]'"),
        ((13000, 0, "error 999"), {}, "driver", "wrong", "error 999", "nvidia-smi"),
        (GPU, {"train_on": wrong_digest}, "training", "wrong", "of cuda is not the CPU's, of cpu", "device='cpu'"),
    ],
)
def test_what_is_said(driver, options, check, state, found, fix, pretend):
    pretend(driver, **options)
    (finding,) = (finding for finding in doctor.examine() if finding.check == check)
    assert finding.state == state and found in finding.found and fix in finding.fix and bool(fix) == bool(finding.fix)


@pytest.mark.parametrize(
    "driver, options, code",
    [(NO_GPU, {}, 0), (NO_GPU, {"cupy": None}, 0), (GPU, {"cupy": None}, 1), (GPU, {"train_on": wrong_digest}, 1)],
)
def test_the_exit_code_and_json_tell_whether_all_can_work(driver, options, code, pretend, capsys):
    pretend(driver, **options)
    assert main(["doctor", "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] == (code == 0)
    assert main(["doctor"]) == code
    lines = [line for line in capsys.readouterr().out.splitlines() if "fix:" not in line]
    assert [line.split()[:2] for line in lines] == [[c["state"], c["check"]] for c in told["checks"]]


def test_without_a_gpu_one_line_says_so(pretend):
    pretend(NO_GPU, cupy=None, installed_version=lambda package: None)
    assert states() == {"versions": "ok", "package": "ok", "cpu": "ok", "gpu": "missing", "cache": "ok"}


def test_a_gpu_on_which_all_works_trains_the_cpus_model(pretend):
    pytest.importorskip("numba.cuda.np.numpy_support", reason="needs numba-cuda", exc_type=ImportError)
    pretend(GPU, train_on=doctor.train_on)
    assert set(states().values()) == {"ok"}


@pytest.mark.parametrize("check", [name for name, (_, needs_gpu, _) in doctor.CHECKS.items() if needs_gpu])
def test_nothing_is_tried_on_a_gpu_that_cannot_work(check, pretend):
    pretend(GPU, cupy=None)
    assert states()[check] == "missing"


@pytest.mark.parametrize("check", doctor.CHECKS)
@pytest.mark.parametrize("driver", [NO_GPU, GPU])
def test_no_error_gets_out(check, driver, pretend, monkeypatch):
    pretend(driver)
    _, needs_gpu, fix = doctor.CHECKS[check]
    failing = raising(OSError("broken"))
    monkeypatch.setitem(doctor.CHECKS, check, (failing, needs_gpu, fix))
    expected = "wrong" if driver == GPU or check in doctor.ON_CPU else None if needs_gpu else "missing"
    assert states().get(check) == expected


def test_a_kernel_that_does_nothing_is_noticed(pretend, monkeypatch):
    pretend(GPU)
    monkeypatch.setattr(PretendedGpu, "_launch", lambda *launch: None)
    assert states()["launch"] == "wrong"


def test_a_cache_that_cannot_be_written_is_no_obstacle(pretend, tmp_path, monkeypatch):
    pretend(GPU)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("GPUBOOST_CACHE_DIR", str(tmp_path / "file" / "cache"))
    (finding,) = (finding for finding in doctor.examine() if finding.check == "cache")
    assert finding.state == "missing" and "GPUBOOST_CACHE_DIR" in finding.fix
    assert states()["training"] == "ok"


def test_kernels_of_the_cpu_that_cannot_be_kept_are_told(pretend, monkeypatch):
    from gpuboost.kernels import leaves

    pretend(NO_GPU)
    monkeypatch.setattr(leaves.update_margin_cpu.dispatcher._cache, "_folder", None)
    (finding,) = (finding for finding in doctor.examine() if finding.check == "cache")
    assert finding.state == "missing" and "NUMBA_CACHE_DIR" in finding.fix


def test_a_user_without_a_home_trains(pretend, monkeypatch):
    pretend(GPU)
    for variable in ("GPUBOOST_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(doctor.Path, "home", raising(RuntimeError("Could not determine home directory.")))
    assert states()["cache"] == "missing" and states()["training"] == "ok"


def test_without_a_gpu_its_cache_does_not_matter(pretend, monkeypatch):
    pretend(NO_GPU)
    monkeypatch.setenv("GPUBOOST_CACHE_DIR", "/proc/nothing")
    assert states()["cache"] == "ok"


def test_a_cupy_that_lacks_something_is_not_called_absent(pretend, monkeypatch):
    pretend(NO_GPU)
    monkeypatch.delitem(sys.modules, "cupy")
    finder = SimpleNamespace(find_spec=raising(ModuleNotFoundError("No module named 'fastrlock'", name="fastrlock")))
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    (finding,) = (finding for finding in doctor.examine() if finding.check == "cupy")
    assert "fastrlock" in finding.found


def test_sums_that_are_wrong_are_noticed(pretend, monkeypatch):
    pretend(GPU)
    monkeypatch.setattr(PretendedGpu, "fetch", lambda device, array: 5049)
    assert states()["arrays"] == "wrong"


@pytest.mark.parametrize(
    "init, count, expected",
    [
        (0, 2, (13000, 2, "")),
        (100, 0, (13000, 0, "")),
        (34, 0, (13000, 0, "")),
        (999, 0, (13000, 0, "the driver answers with error 999")),
    ],
)
def test_the_driver_is_asked(init, count, expected, monkeypatch):
    def answer(value):
        return lambda pointer: ctypes.memmove(pointer, ctypes.byref(ctypes.c_int(value)), 4) and 0

    library = SimpleNamespace(cuDriverGetVersion=answer(13000), cuInit=lambda flags: init, cuDeviceGetCount=answer(count))
    monkeypatch.setattr(doctor.ctypes, "CDLL", lambda name: library)
    assert doctor.ask_driver() == expected


@pytest.mark.parametrize("module, problem", [("", False), ("NVIDIA driver 580.1", True)])
def test_a_machine_without_the_drivers_library(module, problem, monkeypatch):
    monkeypatch.setattr(doctor.ctypes, "CDLL", raising(OSError("no library")))
    monkeypatch.setattr(doctor, "driver_name", lambda: module)
    assert doctor.ask_driver()[:2] == (0, 0) and bool(doctor.ask_driver()[2]) == problem
