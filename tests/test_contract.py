"""What the source itself promises: which way imports point, what the algorithm may use, what an import costs, what is cached."""

import ast
import dataclasses
import importlib
import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from naive_backend import (
    NaiveBackend,
    NaiveCoder,
    NaiveLeafQuantiles,
    NaiveMemory,
    NaivePredictor,
    NaiveRanker,
    NaiveReducer,
    NaiveTraining,
)
from numpy_ranked import NumpyRanked

import gpuboost
from gpuboost.backend import CpuBackend, contract
from gpuboost.backend.cpu.coder import CpuCoder
from gpuboost.backend.cpu.explainer import CpuExplainer
from gpuboost.backend.cpu.gradients import CpuGradients
from gpuboost.backend.cpu.leaf_quantiles import CpuLeafQuantiles
from gpuboost.backend.cpu.memory import HostMemory
from gpuboost.backend.cpu.predictor import CpuPredictor
from gpuboost.backend.cpu.ranker import CpuRanker
from gpuboost.backend.cpu.reducer import CpuReducer
from gpuboost.backend.cpu.training import CpuTraining
from gpuboost.backend.cpu.trees import CpuTrees
from gpuboost.backend.cuda import CudaBackend
from gpuboost.backend.cuda.coder import CudaCoder, CudaRankedColumns
from gpuboost.backend.cuda.explainer import CudaExplainer
from gpuboost.backend.cuda.gradients import CudaGradients
from gpuboost.backend.cuda.leaf_quantiles import CudaLeafQuantiles
from gpuboost.backend.cuda.memory import DeviceMemory
from gpuboost.backend.cuda.predictor import CudaPredictor
from gpuboost.backend.cuda.ranker import CudaRanker
from gpuboost.backend.cuda.reducer import CudaReducer
from gpuboost.backend.cuda.training import CudaTraining
from gpuboost.backend.cuda.trees import CudaTrees
from gpuboost.backend.plans import Penalty
from gpuboost.kernels import compile_cache
from gpuboost.kernels.gradients import elementwise_gradients
from gpuboost.kernels.reduce import map_rows, reduce_rows, unit_term
from gpuboost.kernels.structs import PENALTY
from gpuboost.objectives.regression import label_term

PACKAGE = Path(gpuboost.__file__).parent
KERNELS = PACKAGE.parent / "kernels"

# From the bottom up: a module may import those of its own layer and below.
LAYERS = [
    ["arrays", "errors", "output", "paths", "positional", "registry", "params", "config", "communicator", "model", "binned"],
    ["kernels"],
    ["storage"],
    ["network", "tracker", "collective"],
    ["backend", "compiling", "second_compiler"],
    ["labels", "data", "objectives", "metrics"],
    ["formulas"],
    ["growing", "linear", "callback", "margins", "targets", "custom_objective", "host_gradients",
      "under_way", "second_dealing", "model_io", "inspection", "model_view", "explaining", "updating"],
    ["predictor", "training.adopt", "training.watch", "training.evaluate", "training.running", "training.start", "training.dart",
      "training.statistics"],
    ["booster"],
    ["training", "several_gpus", "plotting", "explanation", "interpret"],
    ["cross_validation", "warmup", "cuda_kernels"],
    ["sklearn", "doctor", "cli", "__main__"],
    ["dask"],
]


# Name without "gpuboost." → path, of every module but gpuboost itself.
MODULES = {
    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
    for root, paths in ((PACKAGE, PACKAGE.rglob("*.py")), (KERNELS.parent, KERNELS.glob("*.py")))
    for path in paths
    if path not in (PACKAGE / "__init__.py", PACKAGE / "kernels.py")
}


def imports(path):
    """Full names of everything that a file imports, anywhere in it: ``from a import b`` gives a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path):
    """The modules of the package among them."""
    names = {name.removeprefix("gpuboost.") for name in imports(path) if name.startswith("gpuboost.")}
    return {name if name in MODULES else name.rpartition(".")[0] for name in names} - {""}


def layer(module):
    """Number of the layer whose entry fits best, the longest."""
    fits = [(len(entry), i) for i, entries in enumerate(LAYERS) for entry in entries if f"{module}.".startswith(f"{entry}.")]
    assert fits, f"gpuboost.{module} is in no layer: say in LAYERS where it belongs"
    return max(fits)[1]


def test_modules_are_found():
    assert {"kernels.scalar", "backend.cpu", "growing.grower", "model.tree", "data.dmatrix", "training.loop"} <= MODULES.keys()
    assert own_imports(MODULES["growing.grower"]) == {
        "backend.contract", "backend.plans", "communicator", "growing.policy", "growing.pool"
    }  # fmt: skip
    assert layer("model.tree") < layer("kernels.scalar") < layer("backend.cpu") < layer("data.sketch") < layer("growing.grower")


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module):
    upward = {name for name in own_imports(MODULES[module]) if layer(name) > layer(module)}
    assert upward == set()


def test_no_import_cycles():
    graph = {module: own_imports(path) for module, path in MODULES.items()}
    while leaves := {module for module, targets in graph.items() if not targets & graph.keys()}:
        graph = {module: targets for module, targets in graph.items() if module not in leaves}
    assert graph == {}


@pytest.mark.parametrize("module", [module for module in MODULES if module.startswith("kernels.")])
def test_kernels_import_numpy_numba_and_kernels_only(module):
    allowed = {"numpy", "numba", "llvmlite", "heapq", "math", "functools", "gpuboost.kernels"}
    if module == "kernels.jit":
        allowed |= {"os", "threading", "contextlib", "collections.abc", "typing"}
    if module == "kernels.compile_cache":
        allowed |= {"fcntl", "gc", "glob", "hashlib", "inspect", "io", "os", "pickle", "re", "sys", "time"}
        allowed |= {"collections.abc", "contextlib", "pathlib", "typing"}
    if module == "kernels.launch":
        allowed |= {"ctypes", "importlib"}
    if module == "kernels.late":
        allowed |= {"ctypes", "pickle", "typing", "weakref"}
    if module == "kernels.entry":
        allowed |= {"typing"}
    if module == "kernels.tree_steps":
        allowed |= {"collections"}
    if module == "kernels.pipeline":
        allowed |= {"collections", "typing"}
    if module == "kernels.openmp":
        allowed |= {"ctypes", "os", "threading", "time"}
    if module == "kernels.cuda_common":
        allowed |= {"collections.abc", "dataclasses", "inspect", "types", "typing"}
    foreign = {name for name in imports(MODULES[module]) if not any(f"{name}.".startswith(f"{root}.") for root in allowed)}
    assert foreign == set()


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith(("growing", "training")) and m != "training.start"])
def test_the_algorithm_uses_neither_numpy_nor_numba(module):
    assert {name.partition(".")[0] for name in imports(MODULES[module])} & {"numpy", "numba", "cupy", "scipy"} == set()


def test_kernels_have_one_name():
    assert [path for path in MODULES.values() if "kernels" in {name.partition(".")[0] for name in imports(path)}] == []


def test_import_is_light():
    heavy = {"numba", "scipy", "narwhals", "cupy", "pandas", "polars", "pyarrow", "sklearn"}
    program = f"import sys, gpuboost; print(*{heavy} & sys.modules.keys())"
    result = subprocess.run([sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


IMPLEMENTATIONS = {
    contract.Backend: [CpuBackend, CudaBackend, NaiveBackend],
    contract.Memory: [HostMemory, DeviceMemory, NaiveMemory],
    contract.Coder: [CpuCoder, CudaCoder, NaiveCoder],
    contract.RankedColumns: [CudaRankedColumns, NumpyRanked],
    contract.Gradients: [CpuGradients, CudaGradients, NaiveTraining],
    contract.Trees: [CpuTrees, CudaTrees, NaiveTraining],
    contract.LeafQuantiles: [CpuLeafQuantiles, CudaLeafQuantiles, NaiveLeafQuantiles],
    contract.Training: [CpuTraining, CudaTraining, NaiveTraining],
    contract.Predictor: [CpuPredictor, CudaPredictor, NaivePredictor],
    contract.Explainer: [CpuExplainer, CudaExplainer],
    contract.RowReducer: [CpuReducer, CudaReducer, NaiveReducer],
    contract.Ranker: [CpuRanker, CudaRanker, NaiveRanker],
}


def test_every_role_of_the_contract_has_implementations():
    own = [value for value in vars(contract).values() if getattr(value, "__module__", "") == contract.__name__]
    roles = {value for value in own if inspect.isabstract(value)}
    assert roles == set(IMPLEMENTATIONS)
    assert all(len(role.__abstractmethods__) < 20 for role in roles), "no class is a catalogue"


@pytest.mark.parametrize(
    "role, implementation", [(role, own) for role, owns in IMPLEMENTATIONS.items() for own in owns], ids=lambda c: c.__name__
)
def test_a_backend_implements_the_contract_with_its_arguments(role, implementation):
    assert implementation.__abstractmethods__ == set()
    for name in [name for name, value in vars(role).items() if callable(value) and not name.startswith("_")]:
        assert list(inspect.signature(getattr(implementation, name)).parameters) == list(
            inspect.signature(getattr(role, name)).parameters
        ), name


def test_penalties_are_the_record_that_kernels_read():
    assert tuple(field.name for field in dataclasses.fields(Penalty)) == PENALTY.names


# ---- the cache of compiled kernels


@pytest.mark.parametrize("edited", ["kernels/scalar.py", "objectives/binary.py", "metrics/pointwise.py"])
def test_editing_a_source_changes_the_stamp_of_the_cache(edited, tmp_path, monkeypatch):
    for folder in (KERNELS, PACKAGE / "objectives", PACKAGE / "metrics"):
        shutil.copytree(folder, tmp_path / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    assert compile_cache.source_stamp.__wrapped__() == compile_cache.source_stamp()
    monkeypatch.setattr(compile_cache, "__file__", str(tmp_path / "kernels" / "compile_cache.py"))
    monkeypatch.setattr(gpuboost, "__path__", [str(tmp_path)])
    assert compile_cache.source_stamp.__wrapped__() == compile_cache.source_stamp()  # the text counts, not the place
    with open(tmp_path / edited, "a") as file:
        file.write("# edited\n")
    assert compile_cache.source_stamp.__wrapped__() != compile_cache.source_stamp()


def test_editing_a_kernel_changes_the_stamps_of_those_that_import_it_only(tmp_path, monkeypatch):
    names = "leaves", "histogram", "splits"
    shutil.copytree(KERNELS, tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compile_cache, "__file__", str(tmp_path / "kernels" / "compile_cache.py"))

    def stamps():
        return [compile_cache.source_stamp.__wrapped__(f"gpuboost.kernels.{name}") for name in names]

    before = stamps()
    for edited, changes in {"leaves": [True, False, False], "scalar": [True] * 3, "row_sampling": [False] * 3}.items():
        with open(tmp_path / "kernels" / f"{edited}.py", "a") as file:
            file.write("# edited\n")
        before, after = stamps(), before
        assert [b != a for b, a in zip(before, after)] == changes, edited


def test_what_a_kernel_calls_lies_in_a_file_that_its_stamp_covers():
    for module in (module for module in MODULES if module.startswith("kernels.") and module != "kernels.__init__"):
        loaded, name = importlib.import_module(f"gpuboost.{module}"), module.partition(".")[2]
        functions = [getattr(value, "py_func", value) for value in vars(loaded).values() if callable(value)]
        used = {getattr(function, "__module__", None) or "" for function in functions}
        own = {module.rpartition(".")[2] for module in used if module.startswith("gpuboost.kernels.")}
        assert own <= compile_cache._imported(name), module


def test_every_formula_lies_where_the_stamp_looks():
    with_scalars = {module for module, path in MODULES.items() if "gpuboost.kernels.jit.scalar" in imports(path)}
    assert {"kernels.scalar", "objectives.binary"} <= with_scalars
    # formulas/ makes kernels around a user's functions only, which no cache keeps.
    assert {module.partition(".")[0] for module in with_scalars} <= {"kernels", "formulas", *compile_cache.FORMULA_FOLDERS}


@pytest.mark.parametrize("factory", [reduce_rows, map_rows, elementwise_gradients], ids=lambda f: f.__wrapped__.__name__)
def test_kernels_of_one_factory_differ_by_name(factory):
    """The kernel and the parts made with it. numba numbers functions anew in each process, so cached kernels can meet with equal
    numbers; where their names are equal too, the linker takes the first one's code for both: silently wrong sums."""

    def names(formula):
        kernel = factory(formula)
        parts = [cell.cell_contents.py_func for cell in kernel.py_func.__closure__]
        assert parts
        return {function.__qualname__ for function in (kernel.py_func, *parts)}

    assert not names(unit_term) & names(label_term)
    assert len(names(unit_term)) == 2
