"""What an installation contains, what importing it costs, and that README.md tells the truth."""

import importlib
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import gpuboost as gb

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gpuboost"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text(encoding="utf-8")
HEAVY = {"numba", "scipy", "pandas", "polars", "pyarrow", "narwhals", "sklearn", "cupy", "matplotlib", "dask", "distributed"}


def readme_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_kernels_have_one_name():
    """In a checkout gpuboost.kernels is the folder at the top level, without a link; nothing imports it as ``kernels``."""
    import gpuboost.kernels as kernels

    assert [Path(folder) for folder in kernels.__path__] == [ROOT / "kernels"]
    assert not (PACKAGE / "kernels").exists()
    sources = [file for folder in (PACKAGE, ROOT / "kernels", ROOT / "tests") for file in folder.rglob("*.py")]
    assert [file.name for file in sources if re.search(r"^\s*(import|from) kernels\b", file.read_text(), re.MULTILINE)] == []


def test_wheels_have_the_kernels_in_the_package():
    hook = runpy.run_path(str(ROOT / PYPROJECT["tool"]["pdm"]["build"]["custom-hook"]))["pdm_build_update_files"]
    for target, folder in {"wheel": "gpuboost/kernels", "editable": "kernels", "sdist": "kernels"}.items():
        files = {name: ROOT / name for name in (".gitignore", "gpuboost/kernels.py", "kernels/jit.py", "kernels/__init__.py")}
        hook(SimpleNamespace(target=target), files)
        assert set(files) - {".gitignore"} == {"gpuboost/kernels.py", f"{folder}/jit.py", f"{folder}/__init__.py"}
        assert (".gitignore" in files) == (target != "editable")


def test_wheels_hold_every_module_and_say_that_there_are_types():
    patterns = PYPROJECT["tool"]["pdm"]["build"]["includes"]
    shipped = {path for pattern in patterns for path in ROOT.glob(pattern)}
    assert shipped == {*PACKAGE.rglob("*.py"), *(ROOT / "kernels").rglob("*.py"), PACKAGE / "py.typed"}


def test_every_source_file_belongs_to_a_package():
    assert [str(file) for file in PACKAGE.rglob("*.py") if not (file.parent / "__init__.py").exists()] == []


def test_versions_agree():
    assert PYPROJECT["project"]["version"] == gb.__version__


def test_conda_has_the_same_name_version_and_dependencies():
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    project = PYPROJECT["project"]
    facts = dict(re.findall(r"^  (name|version): \"?([^\"\n]+)", recipe, re.MULTILINE))
    assert facts == {"name": project["name"], "version": project["version"]}
    (run,) = re.findall(r"^  run:\n((?:    - .*\n)+)", recipe, re.MULTILINE)
    needed = {line.removeprefix("    - ").replace(" ", "") for line in run.splitlines()}
    assert needed == {*project["dependencies"], f"python{project['requires-python']}"}
    assert f"- gpuboost = {project['scripts']['gpuboost']}" in recipe and f"summary: \"{project['description']}\"" in recipe


def test_command_is_callable():
    module, _, name = PYPROJECT["project"]["scripts"]["gpuboost"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_import_loads_nothing_heavy():
    code = f"import sys, gpuboost; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


WITHOUT_SCIPY = """
import sys
sys.modules["scipy"] = None  # as where it is not installed
import numpy as np
import gpuboost as gb
from gpuboost.warmup import usual_uses

x, y = np.random.default_rng(0).random((200, 3)), np.arange(200) % 2
for params in ({}, {"tree_method": "approx"}, {"tree_method": "exact"}, {"booster": "gblinear"}, {"subsample": 0.5}):
    dtrain = gb.DMatrix(x, y)
    booster = gb.train({"eval_metric": ["auc", "rmse"], **params}, dtrain, 2, evals=[(dtrain, "train")], verbose_eval=False)
    booster.predict(dtrain, pred_contribs=True)
for use in usual_uses():
    use()
for needs_it in (dtrain.get_data, gb.QuantileDMatrix(x).get_data, lambda: gb.DMatrix("rows.libsvm")):
    try:
        needs_it()
    except ImportError as error:
        print(error)
"""


def test_scipy_is_needed_by_sparse_tables_alone(tmp_path):
    (tmp_path / "rows.libsvm").write_text("1 0:2\n")
    done = subprocess.run([sys.executable, "-c", WITHOUT_SCIPY], check=True, capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    needs = [line.partition(" needs ")[::2] for line in done.stdout.splitlines()]
    assert needs == [
        ("get_data()", "SciPy: pip install scipy."),
        ("get_data()", "SciPy: pip install scipy."),
        ("reading the sparse rows of rows.libsvm", "SciPy: pip install scipy."),
    ]


def test_all_names_are_those_that_can_be_imported(monkeypatch):
    assert {"GPUBoostRegressor", "dask", "train"} <= {*gb.__all__}
    monkeypatch.setattr(gb, "find_spec", lambda name: None)
    assert "train" in gb.__all__ and not {"sklearn", "GPUBoostRegressor", "dask"} & {*gb.__all__}


@pytest.mark.parametrize("name", gb.__all__)
def test_public_name_exists(name):
    if "sklearn" in name or name.startswith("GPUBoost"):
        pytest.importorskip("sklearn")
    if name == "dask":
        pytest.importorskip("distributed")
    assert getattr(gb, name) is not None


def test_readme_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("http")]
    assert links and [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.slow
def test_readme_examples_run(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("pandas")
    check = "assert model.score(X_test, y_test) > 0.9"
    (tmp_path / "readme.py").write_text("\n".join([*readme_blocks("python"), check]))
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "readme.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.json").exists()
