"""benchmarks/gpu.py without a GPU: its parts on the simulator with tiny tables, what it keeps, and its page."""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from simulator import SimulatedDevice

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import gpu  # noqa: E402 - found through the line above
import gpu_ceilings  # noqa: E402
import gpu_digests  # noqa: E402
import gpu_kernels  # noqa: E402
import gpu_others  # noqa: E402
import gpu_tasks  # noqa: E402
from tasks import Task, higgs_like, small  # noqa: E402

from gpuboost.backend.cuda import CudaBackend  # noqa: E402
from gpuboost.backend.cuda.compiler import compile_kernel  # noqa: E402

pytestmark = pytest.mark.long

DEPTH_8 = "11M × 28, depth 8"


@pytest.fixture
def device(use_backend, monkeypatch):
    """A simulated GPU that all matrices and boosters use, and few and small items of each part."""
    device = SimulatedDevice(block=64, n_multiprocessors=2)
    use_backend(CudaBackend(device))
    task = Task("small", 100, 10, partial(higgs_like, n_features=10), n_rounds=7, max_depth=1, test_rows=100)
    monkeypatch.setattr(gpu_tasks, "TASKS", {DEPTH_8: gpu_tasks.GpuTask("small", task)})
    monkeypatch.setattr(gpu, "TRAININGS", {"one split": {"max_depth": 1}})
    monkeypatch.setattr(gpu_others, "FREE_MB", (4000,))
    items = {"ceilings": ["copy", "gather"], "digests": ["depth 1"], "training": [DEPTH_8], "others": list(gpu_others.OTHERS),
             "kernels": ["binning", "prediction", "one split"]}  # fmt: skip
    monkeypatch.setattr(gpu, "PARTS", {part: (gpu.PARTS[part][0], names) for part, names in items.items()})
    return device


@pytest.mark.slow
def test_all_parts_are_measured_kept_and_told(device, tmp_path):
    assert gpu.run(device, list(gpu.PARTS), tmp_path, scale=3e-4)
    found = {part: json.loads((tmp_path / f"gpu-{part}.json").read_text()) for part in gpu.PARTS}
    assert all(list(found[part]["items"]) == names for part, (_, names) in gpu.PARTS.items())
    assert found["digests"]["items"]["depth 1"]["differs"] == []
    ours = found["training"]["items"][DEPTH_8]["gpuboost"]
    assert ours["rounds"] == 7 and ours["ms_per_tree"] > 0 and 0.4 < ours["quality"]["auc"] <= 1
    records = {r["kernel"]: r for r in found["kernels"]["items"]["prediction"]}
    assert records["predict_words.predict_values_by_words_and_cells_kernel"]["MB"] == pytest.approx(1e-6 * (4 * 10 + 8) * 100)
    records = {r["kernel"]: r for r in found["kernels"]["items"]["one split"]}
    assert records["row_leaves.find_leaves_kernel"]["MB"] == pytest.approx(3e-6 * 100)
    adds = 2 * 10 * 2 * 100  # two for each feature of a row, of two limbs: so are few rows
    assert records["histogram_tiles.build_histograms_kernel_8"]["million_adds"] == pytest.approx(1e-6 * adds)
    text = (tmp_path / "gpu.md").read_text()
    assert "1 of 1 trainings are the CPU's" in text and f"| {DEPTH_8} | gpuboost |" in text and "not measured" not in text.lower()


def test_a_run_goes_on_where_it_was_stopped(device, tmp_path, monkeypatch):
    calls = []

    def part(device, names, scale):
        def measure(name):
            calls.append(name)
            if name == "ill" and calls.count("ill") == 1:
                raise ValueError("of nothing")
            return {"figure": 1.0}

        return {name: lambda name=name: measure(name) for name in names}

    monkeypatch.setattr(gpu, "PARTS", {p: (part, ["well", "ill"] if p == "ceilings" else []) for p in gpu.PARTS})
    assert not gpu.run(device, ["ceilings"], tmp_path, minutes=0) and calls == []
    assert not gpu.run(device, ["ceilings"], tmp_path) and calls == ["well", "ill"]
    assert "ill failed: ValueError: of nothing" in (tmp_path / "gpu.md").read_text()
    assert gpu.run(device, ["ceilings"], tmp_path) and calls == ["well", "ill", "ill"]
    assert gpu.run(device, ["ceilings"], tmp_path, commit="another") and len(calls) == 5  # nothing of an older commit
    assert gpu.run(device, [], tmp_path, commit="a third") and len(calls) == 5
    page = (tmp_path / "gpu.md").read_text()
    assert "| well | figure | 1 |" in page and "Commit another" in page and "Not measured." in page


def test_a_digest_that_differs_is_told(monkeypatch):
    outcome = {"model": "a", "scores": "b", "predictions": "c"}
    monkeypatch.setattr(gpu_digests, "outcome", lambda *args: outcome)
    result = gpu_digests.compare("depth 1", {"depth 1": {**outcome, "scores": "other"}})
    assert result["differs"] == ["scores"] and gpu.failed(result)
    text = gpu.digests_section({"depth 1": result, "depth 12": {**outcome, "differs": []}})
    assert "1 of 2 trainings" in text and "| depth 1 | scores |" in text


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", gpu_digests.CASES)
def test_every_case_trains(name):
    assert set(gpu_digests.outcome(name, "cpu", 300)) == {"model", "scores", "predictions"}


def test_what_is_modelled_stands_beside_what_is_measured(tmp_path):
    """The last run of gpu_model.py, of tables that are trained on; kernels of a tree of depth 8."""
    run = {"tasks": {f"{DEPTH_8}, random": {"ms": {"tree": [1.5, 2.25]}, "kernels": [{"kernel": "a.b_kernel", "ms": 0.5}]}}}
    (tmp_path / "gpu-model.json").write_text(json.dumps({"before": {"tasks": {}}, "after": run}))
    model = gpu.read_model(tmp_path)
    measured = {"ms_per_tree": 3.0, "rounds_timed": 7, "bin_s": 0.5, "bin_memory_mb": 7.0, "copy_s": 0.25, "memory_mb": 10.0,
                "quality": {"auc": 0.5}}  # fmt: skip
    text = gpu.training_section({DEPTH_8: {"gpuboost": measured, "xgboost": measured}}, model)
    assert f"| {DEPTH_8} | gpuboost | 3.000 | 1.50–2.25 | 7 |" in text and f"| {DEPTH_8} | xgboost | 3.000 |  | 7 |" in text
    record = {"per": "tree", "kernel": "a.b_kernel", "calls": 8.0, "ms": 1.0, "floor_ms": 0.0}
    text = gpu.kernels_section({"depth 8": [record, record | {"kernel": "a.c_kernel"}], "255 leaves": [record]}, model)
    assert text.count("| 1.0000 | 0.5000 |") == 1 and text.count("| 1.0000 |  |") == 2
    assert gpu.read_model(tmp_path / "nowhere") == {}


def test_kernels_that_no_case_launches_are_named(device):
    never = gpu_digests.launch_all(device, ["depth 1"], 60)
    assert "sparse.build_sparse_histograms_kernel" in never and "nodes.start_round_kernel" not in never
    assert "launch" not in vars(device)  # it is as it was


def test_without_a_gpu_it_says_so_in_a_line(capsys, monkeypatch):
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    assert gpu.main([]) == 2
    assert capsys.readouterr().err.splitlines() == ["no GPU: nothing can be measured. gpuboost doctor says more."]


@pytest.mark.parametrize("masks", [(1, 0, 1), (1, 31, 1), (0, 0, 0)])
def test_all_adds_of_the_ceiling_are_made(masks):
    """own banks, random banks, one address"""
    device, out = SimulatedDevice(block=64, n_multiprocessors=2), np.zeros(1, np.int64)
    device.launch(gpu_ceilings.shared_adds_kernel, 32, 3, *masks, out, blocks=3, shared=gpu_ceilings.adds_bytes(masks[0] + 1))
    assert out[0] == 3 * 64 * 32 * 3


def test_a_product_is_made_of_all_steps():
    device, out = SimulatedDevice(block=32), np.zeros(1)
    for is_double in (False, True):
        device.launch(gpu_ceilings.multiply_kernel(is_double), 32, 2.0, out, threads=64)
        assert out[0] == 2.0**32
        out[:] = 0


def test_a_chase_goes_through_all_lines_and_on_where_it_was():
    device, place, following = SimulatedDevice(block=32), np.zeros(1, np.int32), gpu_ceilings.cycle(10)
    seen = []
    for _ in range(10):
        device.launch(gpu_ceilings.chase_kernel, 3, following, place, threads=1)
        seen.append(int(place[0]))
    assert sorted(seen) == [32 * line for line in range(10)] and seen[-1] == 0


def test_loads_and_global_adds_of_the_ceilings_are_all_made():
    device, out, bins = SimulatedDevice(block=64), np.zeros(1, np.int64), np.zeros((96, 2), np.int64)
    device.launch(gpu_ceilings.lines_kernel, 32, 8, np.ones(256, np.uint32), out, threads=64)
    assert out[0] == 32
    device.launch(gpu_ceilings.global_adds_kernel, 5, bins, threads=64)
    assert bins.sum() == 5 * 64 and (bins.reshape(3, 32, 2) == bins.reshape(3, 32, 2)[:, :1]).all()  # whole lines


def test_random_banks_take_as_many_passes_as_computed():
    """The largest of 32 numbers of balls in 32 boxes: between 3 and 4 on average, never 1."""
    assert 3.4 < gpu_ceilings.random_passes() < 3.7


@pytest.mark.parametrize(
    "kernel",
    [
        gpu_ceilings.nothing_kernel, gpu_ceilings.shared_adds_kernel, gpu_ceilings.gather_kernel, gpu_ceilings.chase_kernel,
        gpu_ceilings.lines_kernel, gpu_ceilings.global_adds_kernel, *map(gpu_ceilings.multiply_kernel, (False, True)),
    ],
)  # fmt: skip
def test_the_kernels_of_the_ceilings_compile(kernel):
    pytest.importorskip("numba.cuda.np.numpy_support", reason="needs numba-cuda", exc_type=ImportError)
    compiled = compile_kernel(kernel, {}, (9, 0), use_cache=False)
    assert not compiled.is_ptx and compiled.spill_bytes == 0


def test_cupy_has_the_names_that_are_used():
    """The calls that only a GPU makes."""
    cupy = pytest.importorskip("cupy")
    assert {"record", "synchronize"} <= set(dir(cupy.cuda.Event)) and callable(cupy.cuda.get_elapsed_time)
    assert {"begin_capture", "end_capture", "__enter__"} <= set(dir(cupy.cuda.Stream))
    assert {"launch", "upload"} <= set(dir(cupy.cuda.graph.Graph)) and "synchronize" in dir(cupy.cuda.Device)
    assert all(map(callable, (cupy.copyto, cupy.RawKernel, cupy.cuda.set_allocator, cupy.cuda.runtime.memGetInfo)))


def test_a_table_drawn_in_blocks_does_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(gpu_tasks, "BLOCK_VALUES", 300)
    x, y = gpu_tasks.in_blocks(small, 10)(np.random.default_rng(0), 95)
    again, _ = gpu_tasks.in_blocks(small, 10)(np.random.default_rng(0), 95)
    assert x.shape == (95, 10) and set(y) == {0.0, 1.0} and np.array_equal(x, again)
    assert len(np.unique(x[:, 0])) == 95  # no block is another one's


def test_floors_are_found_by_the_plain_name():
    from gpuboost.kernels import gradients, histogram, histogram_tiles, leaves, row_leaves, splits
    from gpuboost.objectives.binary import logistic_gradient
    from gpuboost.objectives.multiclass import softmax_gradient

    known = [
        histogram_tiles.build_histograms_kernel(1, 1), histogram.build_strided_histograms_kernel,
        splits.evaluate_splits_kernel(True, None), splits.evaluate_plain_splits_kernel, leaves.update_margin_kernel,
        row_leaves.find_leaves_kernel, row_leaves.add_found_kernel,
        gradients.elementwise_gradients_kernel(logistic_gradient), gradients.rowwise_gradients_kernel(softmax_gradient),
    ]  # fmt: skip
    assert all(gpu_kernels.floor_of(kernel) for kernel in known)
    assert gpu_kernels.floor_of(leaves.list_leaf_chunks_kernel) is None
