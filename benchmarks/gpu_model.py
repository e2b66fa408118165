"""A model of a GPU: what each kernel of a tree should take there, by its machine code and its addresses. Nothing is measured.

    python benchmarks/gpu_model.py                        # all tasks on an H200, to results/gpu-model.json and gpu-model.md
    python benchmarks/gpu_model.py --label after          # the same, beside what another commit said as "today"
    python benchmarks/gpu_model.py --ceilings FILE        # with what gpu.py has measured (results/gpu-ceilings.json)
    python benchmarks/gpu_model.py --set pass_clocks=2    # with another number of gpu_machine.Machine

No GPU is needed, but a compiler and a disassembler (sass.py). The operations of a tree are those that a small training makes in
the simulator. What the larger kernels do is in gpu_model_kernels.py: instructions of their loops, counted in the machine code;
bank passes, lines and sectors of their addresses, replayed (replay.py). A kernel takes as long as what it needs longest
(gpu_machine.py); one that nobody describes is one of few dependent steps.
Operations take launch_us each beside, or graph_us in a CUDA graph, as most of a tree are from the second one on; one by one, they
also keep the host busy.

Each figure is a range: with the numbers of Machine, and with the cautious ones. Beside a tree stands its floor (gpu_floors.py).
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gpu_floors
import numpy as np
from gpu_floors import NEEDS, floors
from gpu_machine import CAUTIOUS, Machine
from gpu_model_kernels import Task, description_of
from measure import RESULTS, describe_commit
from replay import KINDS
from report import table
from sass import disassemble

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from simulator import SimulatedDevice  # noqa: E402 - found through the line above

import gpuboost as gb  # noqa: E402
from gpuboost.backend.contract import Array  # noqa: E402
from gpuboost.backend.cuda import CudaBackend  # noqa: E402
from gpuboost.backend.cuda.device import PendingCopy  # noqa: E402
from gpuboost.kernels.cuda_common import CudaKernel  # noqa: E402
from gpuboost.kernels.histogram_tiles import TILE_CODES  # noqa: E402

HIGGS = Task(11_000_000, 28, 8)
TASKS = {
    **{f"11M × 28, depth 8, {kind}": replace(HIGGS, kind=kind) for kind in KINDS},
    "100k × 28, depth 6, random": Task(100_000, 28, 6),
    "400k × 2000, depth 6, random": Task(400_000, 2000, 6),
}
PARTS = {"histogram": "histograms", "partition": "partition"}  # of a tree, by how names of kernels begin; all others: rest


# --- The operations of a tree ---


@dataclass
class Operations:
    """kernels : how often each is launched for a tree. others : clears and copies to the host. in_graph : of all of these."""

    kernels: Counter[CudaKernel]
    others: int = 0
    in_graph: int = 0

    @property
    def n(self) -> int:
        return self.kernels.total() + self.others


class CountingDevice(SimulatedDevice):
    """A simulated GPU that counts what it is asked to do."""

    def __init__(self) -> None:
        super().__init__(shared_limit=Machine().shared_limit)
        self.counted = Operations(Counter())

    def _launch(self, kernel: CudaKernel, *launch: Any) -> None:
        self.counted.kernels[kernel] += 1
        super()._launch(kernel, *launch)

    def _clear(self, array: Array) -> None:
        self.counted.others += 1
        super()._clear(array)

    def start_copy(self, array: Array) -> PendingCopy:
        self.counted.others += 1
        return super().start_copy(array)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        again = super().record(work)

        def counted() -> None:
            before = self.counted.n
            again()
            self.counted.in_graph += self.counted.n - before

        return counted


def operations_of(task: Task) -> Operations:
    """Those of a tree of few features; records of more than a sector have a kernel of their own."""
    return operations(task.max_depth, 2 if task.n_features <= TILE_CODES else TILE_CODES + 1)


@cache
def operations(max_depth: int, n_features: int = 2) -> Operations:
    """Those of the third tree of a small training: the device is never asked how far a tree has grown."""
    device, rng = CountingDevice(), np.random.default_rng(0)
    with patch("gpuboost.backend.choose_backend", lambda *args, **table: CudaBackend(device)):
        n_rows = max(60, 2 ** (max_depth - 1))  # fewer leaves a level would have room for fewer histograms
        matrix = gb.QuantileDMatrix(rng.normal(size=(n_rows, n_features)).astype(np.float32), rng.integers(0, 2, n_rows))
        booster = gb.Booster({"objective": "binary:logistic", "max_depth": max_depth, "device": "cuda"}, [matrix])
        for _ in range(3):
            device.counted = Operations(Counter())
            booster.update(matrix)
    return device.counted


# --- What they take ---


@dataclass(frozen=True)
class KernelTime:
    """ms of a tree beside its launches. bound : what most of it is spent for. add_passes : of its first launch (Work)."""

    kernel: CudaKernel
    launches: int
    ms: float
    bound: str
    add_passes: float = 0.0


def kernel_times(task: Task, machine: Machine) -> list[KernelTime]:
    """The kernel that takes longest first."""
    times = []
    for kernel, n in operations_of(task).kernels.items():
        describe = description_of(kernel)
        if describe is None:
            times.append(KernelTime(kernel, n, 1e-3 * n * machine.small_us, "few dependent steps"))
            continue
        works = describe(kernel, task, machine)
        launches = [work.us(machine) for work in works]
        us = sum(max(resources.values()) for resources in launches)
        busiest = Counter[str]()
        for resources in launches:
            busiest[max(resources, key=lambda name: resources[name])] += max(resources.values())
        times.append(KernelTime(kernel, n, 1e-3 * us, busiest.most_common(1)[0][0], works[0].add_passes))
    return sorted(times, key=lambda t: -t.ms)


def figures(task: Task, machine: Machine) -> dict[str, float]:
    """ms of a tree by part, and of all of it, launched one by one and as a graph."""
    parts = {"histograms": 0.0, "partition": 0.0, "rest": 0.0}
    for time in kernel_times(task, machine):
        part = next((part for begin, part in PARTS.items() if time.kernel.name.startswith(begin)), "rest")
        parts[part] += time.ms
    counted, work = operations_of(task), sum(parts.values())
    launched = counted.n - counted.in_graph + 1  # beside the graph, and the graph itself
    graph_us = counted.in_graph * machine.graph_us + launched * machine.launch_us
    parts |= {"launches": 1e-3 * counted.n * machine.launch_us, "host": 1e-3 * counted.n * machine.host_us}
    return parts | {
        "tree": max(work + parts["launches"], parts["host"]),
        "tree as a graph": max(work + 1e-3 * graph_us, 1e-3 * launched * machine.host_us),
    }


def model(machine: Machine) -> dict[str, Any]:
    """All that a run writes down, for JSON."""
    cautious, found = machine.cautious(), {}
    for name, task in TASKS.items():
        both = figures(task, machine), figures(task, cautious)
        for part, each in zip(both, (machine, cautious)):
            part["histograms, 2 clocks a pass"] = figures(task, replace(each, pass_clocks=2 * each.pass_clocks))["histograms"]
        times = kernel_times(task, machine)
        floor = floors(task, machine)
        kernels = [
            {"kernel": t.kernel.name, "launches": t.launches, "ms": t.ms, "floor_ms": floor_of(t.kernel.name, floor),
             "bound": t.bound, "registers": disassemble(t.kernel, machine.capability).registers}
            for t in times
        ]  # fmt: skip
        ranges = {part: sorted((both[0][part], both[1][part])) for part in both[0]}
        passes = max(t.add_passes for t in times)
        over = [ms / sum(floor.values()) for ms in ranges["tree as a graph"]]
        found[name] = {
            "operations": operations_of(task).n, "passes_of_an_add": passes, "ms": ranges, "floor_ms": floor,
            "over_floor": over, "kernels": kernels,
        }  # fmt: skip
    return {**describe_commit(), "machine": asdict(machine), "tasks": found}


def floor_of(kernel: str, floor: dict[str, float]) -> float:
    """ms of what a kernel does for a tree; 0 for what need not be done in a step of its own."""
    return next((floor[need.what] for need in NEEDS if re.fullmatch(need.kernel, kernel)), 0.0)


# --- The page ---


def page(runs: dict[str, dict[str, Any]]) -> str:
    parts = [
        "# A tree on a GPU: modelled, not measured",
        "Written by `python benchmarks/gpu_model.py`, which says how. **No time on this page was measured on a GPU.** A range "
        "is that of the numbers at the end, of which some were measured, and of cautious ones.",
    ]
    for label, run in runs.items():
        changes = " and changes" if run["uncommitted_changes"] else ""
        title = f"## {label[:1].upper()}{label[1:]}: commit {run['commit'][:10]}{changes}, {run['machine']['name']}"
        parts += [title, *tables(run)]
    parts += floors_page(list(runs.values())[-1])
    return "\n\n".join([*parts, "## The numbers", numbers(list(runs.values())[-1]["machine"])]) + "\n"


def tables(run: dict[str, Any]) -> list[str]:
    """ms of a tree by part for each task, and the kernels of some."""
    columns = ["histograms", "histograms, 2 clocks a pass", "partition", "rest", "launches", "host", "tree", "tree as a graph"]
    rows = [
        [name, f"{task['passes_of_an_add']:.2f}", *(span(task["ms"][c]) for c in columns), *beside_floor(task),
         str(task["operations"])]
        for name, task in run["tasks"].items()
    ]  # fmt: skip
    columns = ["table", "bank passes of an add", *columns, "floor", "× floor", "operations"]
    parts = ["Milliseconds of a tree:", table(columns, rows)]
    for name in shown(run):
        kernels = [
            [k["kernel"], f"{k['launches']}", f"{k['ms']:.3f}", f"{k['floor_ms']:.3f}" if k.get("floor_ms") else "", k["bound"],
             f"{k['registers']}"]
            for k in run["tasks"][name]["kernels"]
        ]  # fmt: skip
        columns = ["kernel", "launches", "ms", "floor", "bound by", "registers"]
        parts += [f"Its kernels, of {name}, beside their launches:", table(columns, kernels)]
    return parts


def shown(run: dict[str, Any]) -> list[str]:
    """The tasks whose kernels are shown: of a run without floors the first one, else those that differ in more than the codes."""
    names = [name for name in run["tasks"] if not name.endswith(KINDS[1:])]
    return names if "floor_ms" in run["tasks"][names[0]] else names[:1]


def beside_floor(task: dict[str, Any]) -> tuple[str, str]:
    """The floor of a tree, and how many times as long it takes as a graph; empty where a run was made without."""
    return (f"{sum(task['floor_ms'].values()):.2f}", span(task["over_floor"])) if "floor_ms" in task else ("", "")


def floors_page(run: dict[str, Any]) -> list[str]:
    """What the floors are made of."""
    found = {name: run["tasks"][name]["floor_ms"] for name in shown(run)}
    rows = [[what, *(f"{floor[what]:.3f}" for floor in found.values())] for what in next(iter(found.values()))]
    rows.append(["all", *(f"{sum(floor.values()):.3f}" for floor in found.values())])
    return ["## The floors", str(gpu_floors.__doc__).strip(), table(["ms of a tree, at least", *found], rows)]


def span(limits: Sequence[float]) -> str:
    low, high = (f"{x:.2f}" for x in limits)
    return low if low == high else f"{low}–{high}"


def numbers(machine: dict[str, float]) -> str:
    rows = []
    for f in Machine.assumptions():
        by = f"{f.metadata['item']}: {f.metadata['figure']}" if f.metadata["figure"] else f"gpu.py's {f.metadata['item']}"
        rows.append([f.name, f"{machine[f.name]:g}", f"{CAUTIOUS.get(f.name, '')}", f.metadata["unit"], f.metadata["what"], by])
    return table(["number", "here", "cautious", "", "what", "what measures it"], rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--label", default="today", help="of this run; the page keeps those of others")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of gpu-model.json and gpu-model.md")
    parser.add_argument("--ceilings", type=Path, help="gpu-ceilings.json of gpu.py")
    parser.add_argument("--set", nargs="*", default=[], metavar="NUMBER=VALUE")
    options = parser.parse_args(arguments)
    machine = Machine()
    if options.ceilings:
        machine = machine.measured(json.loads(options.ceilings.read_text())["items"])
    machine = replace(machine, **{name: float(value) for name, _, value in (text.partition("=") for text in options.set)})
    file = options.out / "gpu-model.json"
    runs = json.loads(file.read_text()) if file.exists() else {}
    try:
        runs[options.label] = model(machine)
    except ImportError as error:
        print(error, file=sys.stderr)
        return 2
    file.write_text(json.dumps(runs, indent=1) + "\n")
    text = page(runs)
    (options.out / "gpu-model.md").write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
