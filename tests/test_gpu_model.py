"""benchmarks/gpu_model.py: what it reads of machine code, replays of addresses, and makes of both; by hand where a reader can
check it, and beside the simulator."""

import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from greenlet import getcurrent
from simulator import Memory, SimulatedDevice, Watcher, simulate

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import gpu  # noqa: E402 - found through the line above
import gpu_floors  # noqa: E402
import gpu_model  # noqa: E402
from gpu_ceilings import CEILINGS  # noqa: E402
from gpu_machine import Machine, Work  # noqa: E402
from gpu_model_kernels import DESCRIPTIONS, Task, description_of, gathered, tile_adds  # noqa: E402
from replay import (  # noqa: E402
    IDLE,
    KINDS,
    LINE,
    SECTOR,
    add_passes,
    codes_of,
    load_passes,
    rows_of_a_node,
    sectors_in_all,
    touched,
)
from sass import disassemble, parse  # noqa: E402

import gpuboost as gb  # noqa: E402
from gpuboost.backend.cuda import CudaBackend  # noqa: E402

LANES = np.arange(32)


# ---- Shared memory: 32 banks of a word


@pytest.mark.parametrize(
    "words, of_a_load, of_an_add",
    [
        (LANES, 1, 1),  # a word of each bank
        (LANES[::-1] + 320, 1, 1),
        (2 * LANES, 2, 2),  # words 0, 32 of bank 0, 2, 34 of bank 2 …
        (32 * LANES, 32, 32),  # all in bank 0
        (0 * LANES, 1, 32),  # one word: a load reads it once
        (LANES // 2, 1, 2),  # 16 words, two lanes at each
        (np.where(LANES < 3, 5 + 32 * LANES, IDLE), 3, 3),  # words 5, 37 and 69 of bank 5, 29 lanes idle
        (np.full(32, IDLE), 0, 0),
    ],
)
def test_passes_of_a_bank_by_hand(words, of_a_load, of_an_add):
    assert load_passes(np.array([words])).tolist() == [of_a_load]
    assert add_passes(np.array([words])).tolist() == [of_an_add]


def test_each_instruction_has_its_own_passes():
    assert add_passes(np.array([LANES, 0 * LANES, 4 * LANES])).tolist() == [1, 32, 4]


# ---- Global memory: lines of 128 bytes, sectors of 32


@pytest.mark.parametrize(
    "addresses, lines, sectors",
    [
        (4 * LANES, 1, 4),  # 128 bytes side by side
        (4 * LANES + 64, 2, 4),  # the same, from the middle of a line
        (8 * LANES, 2, 8),
        (128 * LANES + 4, 32, 32),  # a line for each lane
        (0 * LANES + 77, 1, 1),
        (np.where(LANES % 2, IDLE, 32 * LANES), 8, 16),  # every second sector of 1024 bytes
    ],
)
def test_lines_and_sectors_by_hand(addresses, lines, sectors):
    assert touched(np.array([addresses]), LINE).tolist() == [lines]
    assert touched(np.array([addresses]), SECTOR).tolist() == [sectors]
    assert sectors_in_all(np.array([addresses, addresses])) == sectors


def test_all_rows_fill_their_sectors_and_few_rows_have_one_each():
    assert gathered(1.0, 1) == (1.0, pytest.approx(1 / 32))
    assert gathered(1.0, 4) == (1.0, pytest.approx(1 / 8))
    lines, sectors = gathered(1e-4, 4)
    assert 31.9 < lines <= 32 and 0.99 < sectors <= 1


def test_a_node_has_its_share_of_the_rows():
    rows = rows_of_a_node(np.random.default_rng(0), 5000, 0.25)
    assert (np.diff(rows) > 0).all() and rows[-1] == pytest.approx(4 * 5000, rel=0.05)


def test_kinds_of_codes():
    kinds = {kind: codes_of(kind, np.random.default_rng(0), 4000, 8, 256) for kind in KINDS}
    assert (kinds["random"] == 128).mean() < 0.01 and (kinds["90 % in one bin"] == 128).mean() == pytest.approx(0.9, abs=0.01)
    assert (kinds["one-hot"].sum(axis=1) == 1).all()
    assert kinds["sorted"].std() == pytest.approx(2, abs=0.1)


# ---- Machine code

TEXT = """
\t.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDG.E R2, desc[UR4][R2.64] ;
.L_x_1:
        /*0020*/                   ATOMS.ADD RZ, [R4], R2 ;
        /*0030*/              @!P0 BRA `(.L_x_2) ;
        /*0040*/                   IADD3 R0, R0, 0x1, RZ ;
.L_x_2:
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0070*/             @!UP0 BRA `(.L_x_0) ;
        /*0080*/                   EXIT ;
.L_x_3:
        /*0090*/                   BRA `(.L_x_3);
        /*00a0*/                   NOP;
"""


def test_loops_of_a_listing():
    listing = parse(TEXT, 17)
    names = ["LDC", "LDG.E", "ATOMS.ADD", "BRA", "IADD3", "BRA", "BAR.SYNC.DEFER_BLOCKING", "BRA", "EXIT", "BRA", "NOP"]
    assert [i.name for i in listing.instructions] == names and listing.registers == 17
    inner, outer = listing.loops  # neither the branch forwards nor the endless filler is a loop
    assert (len(inner), len(outer)) == (4, 7) and outer.holds(inner) and not inner.holds(outer)
    assert listing.inner_loops("ATOMS") == [inner] and listing.around(inner) == outer
    assert (outer.count("LDG"), outer.count("BRA|BAR"), inner.count("LDG")) == (1, 4, 0)
    with pytest.raises(LookupError, match="no inner loop has LDG; there are loops of 4 instructions"):
        listing.inner_loops("LDG")


# ---- Histograms


class Adds(Watcher):
    """words : by warp and lane, those of shared memory that it adds to."""

    def __init__(self):
        self.words = {}

    def memory(self, array):
        return Added(array, self.words)


class Added(Memory):
    __slots__ = ("words",)

    def __init__(self, array, words):
        super().__init__(array)
        self.words = words

    def add(self, index, value):
        if self.array.dtype == np.int32:
            thread = getcurrent().thread
            self.words.setdefault((thread.warp, thread.lane), []).append(int(index))
        return super().add(index, value)


class RecordingDevice(SimulatedDevice):
    """Keeps the adds of the first histogram, and the codes of its rows."""

    adds = None

    def _launch(self, kernel, choice, grid, block, shared, arguments):
        if self.adds is None and description_of(kernel) is DESCRIPTIONS[r"histogram_tiles\.build_histograms_kernel_8(_wide)?"]:
            watcher, of = Adds(), dict(zip(kernel.arguments, arguments))
            simulate(kernel, *arguments, grid=grid, block=block, shared=shared, watcher=watcher)
            begin, end, side = (of["slices"][0][name] for name in ("begin", "end", "side"))
            records = of["words"].view(np.uint8).reshape(len(of["words"]), -1)
            self.adds, self.codes = watcher.words, records[of["rows"][side, begin:end]].astype(np.int64)
            self.words, self.n_limbs = of["n_words"], int(of["n_limbs"][0])
        else:
            super()._launch(kernel, choice, grid, block, shared, arguments)


@pytest.mark.parametrize("n_features", [6, 12, 28, 40])
def test_replayed_adds_are_those_of_the_simulated_kernel(use_backend, n_features):
    """One, two and four words of a record, and two tiles of four; 53 rows, so that the last step is not full."""
    device, rng = RecordingDevice(block=96, shared_limit=2**17), np.random.default_rng(0)
    use_backend(CudaBackend(device))
    matrix = gb.QuantileDMatrix(rng.normal(size=(53, n_features)).astype(np.float32), rng.normal(size=53), max_bin=9)
    gb.Booster({"max_depth": 1, "max_bin": 9, "device": "cuda"}, [matrix]).update(matrix)
    width = 2 if n_features > 32 else 1
    replayed = tile_adds(device.codes[:, : 8 * device.words * width], device.words, 96, width)
    steps = np.stack(replayed, axis=1).reshape(-1, 3, 16 * width, 32)  # step, warp, add, lane
    for (warp, lane), words in device.adds.items():
        expected = steps[:, warp, :, lane].ravel()
        assert words == device.n_limbs * expected[expected != IDLE].tolist()
    assert sum(map(len, device.adds.values())) == device.n_limbs * 53 * device.words * 16 * width


def test_no_add_takes_a_second_pass():
    """Of a constant column: 8 rows of a warp, each at a column of its own."""
    for words in (1, 2, 4):
        assert all((passes == 1).all() for passes in map(add_passes, tile_adds(np.zeros((64, 8 * words), np.int64), words, 64)))
    assert all((passes == 1).all() for passes in map(add_passes, tile_adds(np.zeros((64, 64), np.int64), 4, 64, 2)))


# ---- What it makes of them


def test_a_launch_takes_as_long_as_what_it_keeps_busy():
    machine = Machine(
        multiprocessors=10, clock_ghz=2.0, issue_clocks=0.25, shared_add_clocks=3, pass_clocks=2, line_clocks=1,
        double_clocks=0.5, memory_gb_s=1000,
        add_ns=0.5, dependent_clocks=4, latency_ns=500, cached_ns=100, busy=0.5,
    )  # fmt: skip
    work = Work(
        items=4000, resident=400, instructions=100, doubles=8, others=50, shared_adds=4, passes=10, lines=8, waits=2,
        cached_waits=3, bytes=1e6, adds=80,
    )  # fmt: skip
    us = work.us(machine)  # 4000 items on 10 multiprocessors of 2 clocks a ns: 200 ns a clock of an item, at half the rate 400
    assert us == pytest.approx({"issue": 10.0, "float64": 1.6, "pipe": 16.0, "adds": 0.08, "memory": 2.0, "latency": 16.0})
    few = Work(items=40, resident=400, instructions=100)
    assert few.us(machine)["latency"] == pytest.approx(0.2)  # not a tenth of an item


def test_measured_numbers_replace_assumed_ones():
    items = {"shared adds": {"ns per bank pass, own banks": 1.5}, "launch": {"µs of the device, prepared": 3.25}}
    machine = Machine(clock_ghz=2.0).measured(items)
    assert (machine.shared_add_clocks, machine.launch_us, machine.latency_ns) == (3.0, 3.25, Machine().latency_ns)


def test_what_measures_a_number_is_there():
    device = SimulatedDevice(block=32)
    asked = {(f.metadata["item"], f.metadata["figure"]) for f in Machine.assumptions() if f.metadata["figure"]}
    found = {(item, figure) for item in {i for i, _ in asked} for figure in CEILINGS[item](device, gpu.sizes_of(1e-3))}
    assert asked - found == {("launch", "µs of the device, replayed in a graph")}  # the simulator has no graphs


def test_descriptions_are_of_kernels_that_a_tree_launches():
    launched = gpu_model.operations(2)
    described = {description_of(kernel) for kernel in launched.kernels}
    assert described >= set(DESCRIPTIONS.values())
    assert launched.n > sum(launched.kernels.values()) > len(launched.kernels)
    assert launched.n - launched.in_graph == 3  # the gradients, the round's number, and the tree's copy
    wide = gpu_model.operations_of(Task(1000, 500, 2))
    assert {kernel.name for kernel in wide.kernels} - {kernel.name for kernel in launched.kernels} == {
        "histogram_tiles.build_histograms_kernel_8_wide"
    }
    assert wide.n == launched.n


@dataclass(frozen=True)
class NamedKernel:
    name: str


def test_parts_of_a_tree_are_all_of_it(monkeypatch):
    """Three kernels of 2, 3 and 7 launches and 5 other operations, each 1 µs, 10 µs of the host; 2 µs of work a kernel. All but
    three are a graph, 0.5 µs each."""
    kernels = map(NamedKernel, ("histogram_files.a_kernel", "partition.b_kernel", "nodes.c_kernel"))
    operations = gpu_model.Operations(Counter(dict(zip(kernels, (2, 3, 7)))), 5, 14)
    monkeypatch.setattr(gpu_model, "operations", lambda max_depth, n_features: operations)
    figures = gpu_model.figures(Task(1000, 28, 3), Machine(launch_us=1, graph_us=0.5, host_us=10, small_us=2))
    parts = {"histograms": 0.004, "partition": 0.006, "rest": 0.014, "launches": 0.017, "host": 0.17}
    assert figures == pytest.approx({**parts, "tree": 0.17, "tree as a graph": 0.04})
    figures = gpu_model.figures(Task(1000, 28, 3), Machine(launch_us=1, graph_us=0.5, host_us=1, small_us=2))
    assert figures["tree as a graph"] == pytest.approx(0.024 + 14 * 0.0005 + 4 * 0.001)


def test_floors_by_hand():
    """3200 rows of 10 features of 256 bins and two levels, half of the rows in the smaller child."""
    machine = Machine(multiprocessors=10, clock_ghz=2, memory_gb_s=1000, pass_clocks=1, graph_us=3, smaller_child=0.5)
    task, hist = Task(3200, 10, 2), 16 * 2560
    passes = [1e-6 * rows * 20 / 32 / 10 / 2 for rows in (3200, 1600)]
    read = [1e-9 * (rows * 18 + hist) for rows in (3200, 1600)]
    assert passes[0] > read[0] and passes[1] < read[1]
    expected = [
        1e-9 * 3200 * 16, 1e-9 * 3200 * 12, 1e-9 * 3200 * 4, passes[0] + read[1], 3e-9 * hist, 3e-9 * hist, 1e-9 * 3200 * 9,
        1e-9 * 3200 * 4, 1e-9 * 3200 * 10, 1e-9 * 3200 * 10, 0.03,
    ]  # fmt: skip
    assert list(gpu_floors.floors(task, machine).values()) == pytest.approx(expected)


def test_each_floor_is_of_a_kernel_that_a_tree_launches():
    names = [kernel.name for kernel in gpu_model.operations(2).kernels]
    for need in gpu_floors.NEEDS[:-1]:
        assert any(map(re.compile(need.kernel).fullmatch, names)), need.what


@pytest.mark.slow
def test_the_page_says_that_nothing_is_measured(tmp_path, monkeypatch):
    pytest.importorskip("numba.cuda.np.numpy_support", reason="needs numba-cuda", exc_type=ImportError)
    try:
        disassemble(next(iter(gpu_model.operations(2).kernels)), (9, 0))
    except ImportError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(gpu_model, "TASKS", {"small": Task(10_000, 28, 2), "wide": Task(10_000, 200, 2, "one-hot")})
    assert gpu_model.main(["--out", str(tmp_path), "--label", "before", "--set", "pass_clocks=2"]) == 0
    monkeypatch.setattr(gpu_model, "model", lambda machine: json.loads((tmp_path / "gpu-model.json").read_text())["before"])
    assert gpu_model.main(["--out", str(tmp_path), "--label", "after"]) == 0
    runs, text = json.loads((tmp_path / "gpu-model.json").read_text()), (tmp_path / "gpu-model.md").read_text()
    assert list(runs) == ["before", "after"] and runs["after"]["machine"]["pass_clocks"] == 2
    for task in runs["after"]["tasks"].values():
        assert all(0 < low <= high for low, high in task["ms"].values()) and task["passes_of_an_add"] >= 1
        assert min(task["over_floor"]) > 1 and all(k["ms"] > k["floor_ms"] for k in task["kernels"])
    assert text.startswith("# A tree on a GPU: modelled, not measured") and "## Before" in text and "| pass_clocks | 2 |" in text
