"""A GPU's figures in one command of a few minutes: what it can do, each kernel beside its floor, digests, and trainings.

    python benchmarks/gpu.py                          # all parts; again: what is missing
    python benchmarks/gpu.py --parts digests training --out FOLDER --minutes 8
    python benchmarks/gpu.py --parts                  # no part: the page once more

    ceilings    bandwidth, adds per bank pass, gathered records, launches, graph replay, latencies (gpu_ceilings.py)
    digests     CPU = GPU: models, scores, predictions of every objective and most options (gpu_digests.py)
    kernels     each CUDA kernel of some trainings, by events, beside its floor (gpu_kernels.py)
    training    ms per tree, seconds to bin, memory and quality, of XGBoost too where it is installed (gpu_tasks.py)
    others      prediction, and training by pages that come from the host each time (gpu_others.py)

Beside what is measured stands what gpu_model.py says a tree and its kernels should take, where it has written gpu-model.json.
Each item is written to results/gpu-PART.json as soon as it is done, so that a run may be stopped and continued; an item is
measured anew where it failed, or on another commit or device; parts that are not named stay. gpu.md is written from these files.
Exit code 2 where there is no GPU, 1 where an item is missing, failed or differs. ``gpuboost doctor`` says what keeps a GPU from
being used, sanitize.sh looks for races.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gpu_digests
import gpu_kernels
import gpu_others
import gpu_tasks
import numpy as np
from gpu_ceilings import CEILINGS, Sizes
from measure import RESULTS, describe_machine
from report import table
from tasks import SEED

import gpuboost as gb
from gpuboost.backend.cuda.device import find_device, has_gpu, usable_device
from gpuboost.doctor import ask_driver, driver_name, installed_version

Items = dict[str, Callable[[], Any]]  # what one part measures, by name; each result goes to JSON


# --- Parts: (device, names of what is to be measured, scale of the numbers of rows) -> what measures each ---


def ceilings(device: Any, names: list[str], scale: float) -> Items:
    return {name: lambda run=CEILINGS[name]: run(device, sizes_of(scale)) for name in names}


def sizes_of(scale: float) -> Sizes:
    return Sizes() if scale == 1 else Sizes(copied=2**14, adds=16, records=2**6, launches=3, steps=16, threads=32)


def digests(device: Any, names: list[str], scale: float) -> Items:
    n_rows = gpu_tasks.scaled(gpu_digests.N_ROWS, scale)
    on_cpu = gpu_digests.OnCpu(names, n_rows)  # begins
    return {name: lambda name=name: gpu_digests.compare(name, on_cpu, n_rows) for name in names}


def kernels(device: Any, names: list[str], scale: float) -> Items:
    task = gpu_tasks.TASKS["11M × 28, depth 8"].task

    @cache
    def values() -> tuple[Any, np.ndarray]:
        x, y = task.make(np.random.default_rng(SEED), gpu_tasks.scaled(task.n_rows, scale))
        return device.put(x), y

    def bins() -> Any:
        return gb.QuantileDMatrix(*values(), max_bin=256)

    matrix = cache(bins)
    common = {"objective": task.objective, "device": "cuda"}
    trained = common | {"max_depth": task.max_depth}
    workloads = {
        "binning": gpu_kernels.binning(bins),
        "prediction": gpu_kernels.prediction(matrix, lambda: values()[0], trained, gpu_others.TREES if scale == 1 else 2),
        **{name: gpu_kernels.training(matrix, common | params, n_rounds=2) for name, params in TRAININGS.items()},
    }
    return {name: lambda name=name: gpu_kernels.measure(device, workloads[name], sizes_of(scale)) for name in names}


def training(device: Any, names: list[str], scale: float) -> Items:
    trainer = gpu_tasks.Trainer(device, gpu_tasks.libraries(), scale)
    return {name: lambda name=name: trainer.measure(name) for name in names}


def others(device: Any, names: list[str], scale: float) -> Items:
    trainer = gpu_tasks.Trainer(device, gpu_tasks.libraries(), scale)
    return {name: lambda name=name: gpu_others.OTHERS[name](trainer) for name in names}


TRAININGS = {
    "depth 8": {"max_depth": 8},
    "255 leaves": {"max_depth": 0, "max_leaves": 255, "grow_policy": "lossguide"},
    "depth 8, half of rows and columns": {"max_depth": 8, **gpu_tasks.HALF},
}
PARTS: dict[str, tuple[Callable[[Any, list[str], float], Items], list[str]]] = {
    "ceilings": (ceilings, list(CEILINGS)),
    "digests": (digests, list(gpu_digests.CASES)),
    "training": (training, list(gpu_tasks.TASKS)),
    "others": (others, list(gpu_others.OTHERS)),
    "kernels": (kernels, ["binning", "prediction", *TRAININGS]),
}


# --- Running and keeping ---


def describe(device: Any, commit: str) -> dict[str, Any]:
    cuda, _, _ = ask_driver()
    packages = ("cupy-cuda13x", "cupy-cuda12x", "numba-cuda", "cuda-core")
    machine = describe_machine()
    return machine | {
        "commit": commit or machine["commit"], "device": device.name, "multiprocessors": device.n_multiprocessors,
        "driver": driver_name(), "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
        "versions": machine["versions"] | {name: found for name in packages if (found := installed_version(name))},
    }  # fmt: skip


def read(file: Path, machine: dict[str, Any], is_measured: bool) -> dict[str, Any]:
    """What a part has measured. is_measured : again now, so nothing of another commit or device."""
    known = json.loads(file.read_text()) if file.exists() else {"machine": machine, "items": {}}
    same = all(known["machine"].get(key) == machine[key] for key in ("commit", "device", "scale"))
    return known if same or not is_measured else {"machine": machine, "items": {}}


def failed(result: Any) -> bool:
    """Also a digest that differs."""
    return isinstance(result, dict) and bool(result.get("failed") or result.get("differs"))


def run(device: Any, parts: list[str], folder: Path, minutes: float = 8.0, scale: float = 1.0, commit: str = "") -> bool:
    """Measure what is missing of these parts, and write the page; whether all is there and well."""
    folder.mkdir(parents=True, exist_ok=True)
    machine, end = describe(device, commit) | {"scale": scale}, time.perf_counter() + 60 * minutes
    files = {part: folder / f"gpu-{part}.json" for part in PARTS}
    documents = {part: read(file, machine, part in parts) for part, file in files.items()}
    missing = {part: [x for x in PARTS[part][1] if failed(documents[part]["items"].get(x, {"failed": True}))] for part in parts}
    items = {part: PARTS[part][0](device, names, scale) for part, names in missing.items() if names}
    for part in list(items):
        document = documents[part]
        for name, measure in items.pop(part).items():  # a part's tables go when it is done
            if time.perf_counter() > end:
                print(f"{minutes:g} minutes are over: the same command goes on", file=sys.stderr)
                break
            begin = time.perf_counter()
            try:
                result = measure()
            except Exception as error:  # the others count, too
                result = {"failed": f"{type(error).__name__}: {error}"}
            document["items"][name], document["machine"] = result, machine
            document.setdefault("seconds", {})[name] = round(time.perf_counter() - begin, 2)
            files[part].write_text(json.dumps(document, indent=1) + "\n")
            print(f"{part}, {name}: {document['seconds'][name]} s {summary(result)}", file=sys.stderr, flush=True)
    (folder / "gpu.md").write_text(page(documents, read_model(folder)))
    return not any(failed(documents[part]["items"].get(x, {"failed": True})) for part in parts for x in PARTS[part][1])


def summary(result: Any) -> str:
    return f"failed or differs: {json.dumps(result)[:300]}" if failed(result) else ""


# --- The page ---


@dataclass(frozen=True)
class Modelled:
    """ms of a tree, least and most, and of its kernels by name."""

    tree: list[float]
    kernels: dict[str, float]


def read_model(folder: Path) -> dict[str, Modelled]:
    """What gpu_model.py has said last, by table; nothing where it has not been run."""
    file = folder / "gpu-model.json"
    runs = json.loads(file.read_text()) if file.exists() else {"none": {"tasks": {}}}
    tasks = list(runs.values())[-1]["tasks"]
    return {
        name.removesuffix(", random"): Modelled(task["ms"]["tree"], {k["kernel"]: k["ms"] for k in task["kernels"]})
        for name, task in tasks.items()
    }  # fmt: skip


def page(documents: dict[str, Any], model: dict[str, Modelled]) -> str:
    machines = [document["machine"] for document in documents.values() if document["items"]]
    lines = sorted({f"{m['date'][:10]}: {m['device']}, {m['driver']}, CUDA {m['cuda']}; {m['cpu']}, {m['cores']} cores; "
                    f"Python {m['python']}, " + ", ".join(f"{k} {v}" for k, v in m["versions"].items())
                    + f". Commit {m['commit'][:10] or 'unknown'}{' and changes' if m['uncommitted_changes'] else ''}."
                    for m in machines})  # fmt: skip
    parts = ["# gpuboost on a GPU", "Written by `python benchmarks/gpu.py`, which says what the figures are.", *lines]
    for part, section in SECTIONS.items():
        done = documents[part]["items"]
        parts += [f"## {part.capitalize()}", section(done, model) if done else "Not measured."]
        parts += [f"{name} failed: {result['failed']}" for name, result in done.items() if failed(result) and "failed" in result]
    return "\n\n".join(parts) + "\n"


def training_section(items: dict[str, Any], model: dict[str, Modelled]) -> str:
    rows = []
    for name, result in items.items():
        said = "–".join(f"{ms:.2f}" for ms in model[name].tree) if name in model else ""
        for library in ("gpuboost", "xgboost"):
            r = result.get(library, {"failed": ""})
            if "failed" in r:
                rows += [[name, library, r["failed"].replace("|", "/")[:100]] + [""] * 7] if r["failed"] else []
                continue
            quality = ", ".join(f"{metric} {value:.4f}" for metric, value in r["quality"].items())
            figures = [f"{r['ms_per_tree']:.3f}", said * (library == "gpuboost"), f"{r['rounds_timed']}", f"{r['bin_s']:.3f}",
                       f"{r['bin_memory_mb']:.0f}", f"{r['copy_s']:.3f}", f"{r['memory_mb']:.0f}"]  # fmt: skip
            rows.append([name, library, *figures, quality])
    columns = "ms per tree", "modelled", "rounds timed", "binning s", "its MB", "copy s", "MB in all", "quality"
    return table(["table", "", *columns], rows)


def digests_section(items: dict[str, Any]) -> str:
    compared = {name: result for name, result in items.items() if "failed" not in result}
    different = [[name, ", ".join(result["differs"])] for name, result in compared.items() if result["differs"]]
    text = f"{len(compared) - len(different)} of {len(items)} trainings are the CPU's: model, scores and predictions."
    return text + ("\n\n" + table(["training", "differs in"], different) if different else "")


def kernels_section(items: dict[str, Any], model: dict[str, Modelled]) -> str:
    rows = []
    for name, records in items.items():
        said = model[table_name].kernels if (table_name := f"11M × 28, {name}") in model else {}
        for r in records if isinstance(records, list) else []:
            floor = [f"{r['floor_ms']:.4f}", f"{r['ms'] / r['floor_ms']:.1f}"] if r["floor_ms"] else ["", ""]
            modelled = f"{said[r['kernel']]:.4f}" if r["kernel"] in said else ""
            rows.append([f"{name}, a {r['per']}", r["kernel"], f"{r['calls']:g}", f"{r['ms']:.4f}", modelled, *floor])
    return table(["workload", "kernel", "calls", "ms", "modelled", "floor ms", "×"], rows)


def ceilings_section(items: dict[str, Any]) -> str:
    done = {name: figures for name, figures in items.items() if not failed(figures)}
    rows = [[name, what, f"{value:.4g}"] for name, figures in done.items() for what, value in figures.items()]
    return table(["", "", ""], rows)


def others_section(items: dict[str, Any]) -> str:
    rows = [
        [name, library, what, f"{value:.4g}"]
        for name, result in items.items() if not failed(result)
        for library, figures in result.items() for what, value in figures.items()
    ]  # fmt: skip
    return table(["", "", "", ""], rows)


SECTIONS = {
    "training": training_section, "others": lambda items, _: others_section(items),
    "digests": lambda items, _: digests_section(items), "kernels": kernels_section,
    "ceilings": lambda items, _: ceilings_section(items),
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of gpu-PART.json and gpu.md")
    parser.add_argument("--minutes", type=float, default=8.0, help="nothing new is begun after so many (8)")
    parser.add_argument("--scale", type=float, default=1.0, help="of all numbers of rows; other than 1 only to try this file")
    parser.add_argument("--commit", default="", help="where git cannot tell it")
    options = parser.parse_args(arguments)
    problem = usable_device() if has_gpu() else "no GPU"
    if problem is not None:
        print(f"{problem}: nothing can be measured. gpuboost doctor says more.", file=sys.stderr)
        return 2
    device = find_device(0)
    with device.current():
        is_well = run(device, options.parts, options.out, options.minutes, options.scale, options.commit)
    print((options.out / "gpu.md").read_text(), end="")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
