"""The command line: gpuboost train | predict | dump | info | doctor | warmup, on CSV, Parquet and LIBSVM files."""

import argparse
import json
import platform
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gpuboost import __version__
from gpuboost.backend import choose_backend
from gpuboost.backend.cpu.training import CODES_PER_THREAD
from gpuboost.booster import Booster
from gpuboost.callbacks import EarlyStopping
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix
from gpuboost.data.tables.text_files import TextTable, is_libsvm, read_text
from gpuboost.doctor import report
from gpuboost.errors import DeviceNotFoundError, ModelFormatError
from gpuboost.labels import class_codes, class_probabilities, read_classes, write_classes
from gpuboost.model_io import digest
from gpuboost.model_io.dump import join_dump
from gpuboost.objectives import find_objective
from gpuboost.params import parse_params
from gpuboost.training.loop import train

__all__ = ["main"]

MAX_CLASSES = 20  # a label with more distinct values is not taken for classes unless the objective says so
NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]  # what a CSV file writes for a missing value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code: 0 (of doctor also 1), 2 for what the user can mend (one line on stderr), 130 after Ctrl-C."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: _say(f"warning: {message}")
            options = _parser().parse_args(arguments)
            return options.command(options) or 0
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except BrokenPipeError:  # who reads our output has seen enough, and nothing may be flushed at exit
        sys.stdout = None  # type: ignore[assignment]
        return 0
    except (ValueError, ArithmeticError, NotImplementedError, ImportError, OSError, MemoryError, DeviceNotFoundError) as error:
        _say(f"error: {' '.join(str(error).split())}")
        return 2


# -- Commands ---------------------------------------------------------------------------------------------------------


def _train(options: argparse.Namespace) -> None:
    _check_target(options.model)
    if options.early_stopping and not options.valid:
        raise ValueError("--early-stopping needs --valid, the table that decides when to stop.")
    params = _given_params(options)
    with _stage("reading"):
        table = _read(options.data)
        label = _label(table, options, options.data)
        features, texts = _features(table, options)
        tables = {"train": (options.data, table)}
        if options.valid:
            tables["valid"] = options.valid, _read(options.valid, [*texts, label.name] if _is_text(label) else texts)
        classes = _choose_task(label, params)
    checked = parse_params(params)
    backend = choose_backend(checked.training_device, checked.nthread, n_values=len(label) * len(features))
    print(f"device {backend.describe()}, {checked.objective}")
    if classes is not None:
        print(f"label {label.name}: {len(classes)} classes, {_listing(classes)}")
    if texts:
        print(f"text is treated as categories in {_listing(texts)}")
    evals: list[tuple[DMatrix, str]] = []
    with _stage("binning"):
        for name, (path, table) in tables.items():
            info: dict[str, Any] = {"label": _encoded(_label(table, options, path), classes, path)}
            for column in options.weight:
                _check_column(column, table.columns, path)
                info["weight"] = table[column]
            if not isinstance(table, TextTable):
                table = _as_categories(_select(table, features, path), texts)
            if checked.tree_method == "exact":  # which searches the values themselves
                matrix = DMatrix(table, **info, nthread=checked.nthread)
            else:
                ref = evals[0][0] if evals else None
                matrix = QuantileDMatrix(table, **info, max_bin=checked.table_bins, nthread=checked.nthread, ref=ref)
            print(f"{name}: {matrix.num_row()} rows x {matrix.num_col()} columns")
            evals.append((matrix, name))
    history: dict[str, dict[str, list[float]]] = {}
    with _stage("training"):
        booster = train(
            params, evals[0][0], options.rounds, evals=evals, evals_result=history, verbose_eval=options.print_every,
            callbacks=[EarlyStopping(rounds=options.early_stopping, save_best=True)] if options.early_stopping else None,
        )  # fmt: skip
    if classes is not None:
        write_classes(booster, classes)
    with _stage("saving"):
        booster.save_model(options.model)
    rounds = booster.num_boosted_rounds()
    last = [f"{name}-{m} {values[rounds - 1]:.5f}" for name, log in history.items() for m, values in log.items()]
    print(", ".join([f"{options.model}: {rounds} rounds", *last]))


def _predict(options: argparse.Namespace) -> None:
    booster = _load(options.model)
    model = booster.model
    texts = [name for name, values in model.categories.items() if all(isinstance(value, str) for value in values)]
    table = _read(options.data, texts)
    if model.feature_names is not None and not isinstance(table, TextTable):
        table = _as_categories(_select(table, model.feature_names, options.data), texts)
    data = DMatrix(table)
    objective = find_objective(model.objective)
    is_classifier = bool(model.n_classes) or (objective.is_classifier and model.n_targets == 1)
    if options.leaf:
        columns = _columns("tree", booster.predict(data, pred_leaf=True).astype(np.int32))
    elif options.margin:
        columns = _columns("margin", booster.predict(data, output_margin=True))
    elif not is_classifier or objective.predicts_classes:
        columns = _columns("prediction", booster.predict(data))
        if is_classifier:
            columns["prediction"] = read_classes(booster)[columns["prediction"].astype(int)]
    else:
        classes = read_classes(booster)
        probability = class_probabilities(booster.predict(data), len(classes))
        columns = {"prediction": classes[probability.argmax(axis=1)], **_columns("probability", probability, classes)}
    _write(_polars().DataFrame(columns), options.output)


def _dump(options: argparse.Namespace) -> None:
    text = join_dump(_load(options.model).get_dump(with_stats=options.stats, dump_format=options.format), options.format)
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
    else:
        print(text, flush=True)


def _info(options: argparse.Namespace) -> None:
    import numba

    from gpuboost.kernels.leaves import update_margin_cpu

    backend = choose_backend("cpu", None)
    lines = {
        "gpuboost": __version__, "python": platform.python_version(), "numpy": version("numpy"), "numba": version("numba"),
        "cpu": f"{backend.describe()} by {numba.threading_layer()}",
        "cuda": _describe_cuda(),
        "kernel cache": update_margin_cpu.dispatcher._cache.cache_path or "none: no folder for it can be written",
    }  # fmt: skip
    if options.model:
        model = _load(options.model).model
        lines |= {
            "model": options.model, "objective": model.objective, "rounds": model.n_rounds, "trees": len(model.trees),
            "leaves": sum(tree.n_leaves for tree in model.trees), "features": model.n_features,
            "base_score": ", ".join(f"{score:g}" for score in model.base_score), "digest": digest(model),
        }  # fmt: skip
    for name, value in lines.items():
        print(f"{name:13} {value}")


def _describe_cuda() -> str:
    """The first GPU, or why there is none."""
    try:
        return choose_backend("cuda", None).describe()
    except DeviceNotFoundError as error:
        return f"none: {error}"


def _warmup(options: argparse.Namespace) -> None:
    random = np.random.default_rng(0)
    # A small table trains on one thread, a large one on several: each kernel is compiled for both.
    sizes = {600: {"nthread": 1}, CODES_PER_THREAD: {}} if choose_backend("cpu", None).n_threads > 1 else {600: {}}
    with _stage("compiling"):
        for n_rows, threads in sizes.items():
            X = random.random((n_rows, 3), np.float32)
            frozen = np.asfortranarray(X, np.float64)  # as pandas hands out its tables
            frozen.flags.writeable = False
            one_hot = np.eye(16)[random.integers(0, 16, (n_rows, 4))].reshape(n_rows, 64)  # packed records
            for objective, n_classes in {"reg:squarederror": 0, "binary:logistic": 2, "multi:softprob": 3}.items():
                y = random.integers(0, n_classes, n_rows) if n_classes else X[:, 0]
                params = {"objective": objective, "num_class": n_classes if n_classes > 2 else 0, **threads}
                for table in (X, X.astype(np.float64), np.asfortranarray(X), frozen):
                    dtrain, dvalid = (DMatrix(table, y, weight=np.ones(n_rows)) for _ in range(2))
                    booster = train(params, dtrain, 2, evals=[(dvalid, "valid")], verbose_eval=False)
                    booster.predict(dvalid)
            for table in (X, X.astype(np.float64), np.asfortranarray(X), frozen, one_hot):
                train(threads, DMatrix(table, X[:, 0]), 1, verbose_eval=False)


def _load(path: str) -> Booster:
    try:
        return Booster(model_file=path)
    except ModelFormatError as error:
        raise ValueError(f"{path} is not a model: {error}") from None


# -- Tables -----------------------------------------------------------------------------------------------------------


def _polars() -> Any:
    try:
        import polars
    except ImportError:
        raise ImportError("the command line needs polars to read tables. Install it with: pip install gpuboost[cli]") from None
    return polars


def _read(path: str, texts: Iterable[str] = ()) -> Any:
    """A polars DataFrame of a .csv or .parquet file, a TextTable of a LIBSVM file.

    texts : columns of CSV to be read as text: what is text in one file, 01 and 1A, may look like numbers in the next.
    """
    pl = _polars()
    if not Path(path.partition("?")[0] if is_libsvm(path) else path).is_file():
        raise ValueError(f"there is no file {path!r}.")
    if is_libsvm(path):
        return read_text(path)
    try:
        if Path(path).suffix in (".parquet", ".pq"):
            return pl.read_parquet(path)
        names = pl.read_csv(path, has_header=False, n_rows=1, infer_schema=False).row(0)
        if len(set(names)) < len(names):  # polars would rename them
            raise ValueError(f"{path} names more than one column {max(names, key=names.count)!r}. Rename one.")
        as_text = dict.fromkeys(texts, pl.String)
        return pl.read_csv(path, null_values=NULLS, infer_schema_length=None, schema_overrides=as_text)  # all rows are looked at
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{path} cannot be read: {str(error).strip().splitlines()[0]}") from None


def _write(table: Any, path: str | None) -> None:
    if path is None:
        sys.stdout.write(table.write_csv())
        sys.stdout.flush()
    elif Path(path).suffix in (".parquet", ".pq"):
        table.write_parquet(path)
    else:
        table.write_csv(path)


def _check_column(name: str, names: Sequence[str], path: str) -> None:
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"It has {_listing(names)}."
        raise ValueError(f"{path} has no column {name!r}. {hint}")


def _select(table: Any, names: Sequence[str], path: str) -> Any:
    """The named columns, in that order; what else the table has is left out."""
    for name in names:
        _check_column(name, table.columns, path)
    return table.select(names)


def _is_text(column: Any) -> bool:
    return column.dtype == _polars().String and column.null_count() < len(column)


def _as_categories(table: Any, names: Iterable[str]) -> Any:
    pl = _polars()
    return table.with_columns(pl.col(name).cast(pl.String).cast(pl.Categorical) for name in names)


def _label(table: Any, options: argparse.Namespace, path: str) -> Any:
    """The label column as a polars Series; of integers where a LIBSVM file holds nothing else."""
    given = {"label": options.label, "weight": options.weight[0] if options.weight else None}
    if isinstance(table, TextTable):
        for name, column in given.items():
            if column is not None:
                raise ValueError(
                    f"--{name} {column}: a LIBSVM file has its {name}s at the start of each line. Leave --{name} out."
                )
        values = np.asarray(table.label)
        is_whole = np.isfinite(values).all() and (values == np.floor(values)).all()
        return _polars().Series("label", values.astype(np.int64) if is_whole else values)
    for column in given.values():
        if column is not None:
            _check_column(column, table.columns, path)
    if options.label is None:
        raise ValueError(f"--label is required: it names the column of {path} to predict. It has {_listing(table.columns)}.")
    return table[options.label]


def _features(table: Any, options: argparse.Namespace) -> tuple[Sequence[Any], list[str]]:
    """The columns to learn from (numbers of a LIBSVM file's), and which of them hold text."""
    if isinstance(table, TextTable):
        return range(table.data.shape[1]), []
    if options.label in options.weight:
        raise ValueError(f"--weight and --label both name {options.label!r}. Name another column of weights, or leave it out.")
    features = [name for name in table.columns if name not in (options.label, *options.weight)]
    return features, [name for name in features if _is_text(table[name])]


def _encoded(label: Any, classes: np.ndarray | None, path: str) -> np.ndarray:
    if label.null_count():
        raise ValueError(f"label {label.name!r} of {path} is missing in {label.null_count()} rows. Remove these rows.")
    values = label.to_numpy()
    return values if classes is None else class_codes(values, classes, f"label {label.name!r} of {path}")


def _columns(name: str, values: np.ndarray, suffixes: Iterable[Any] | None = None) -> dict[str, np.ndarray]:
    """Columns for (n,), or name_0, name_1, … for (n, k)."""
    if values.ndim == 1:
        return {name: values}
    names = range(len(values.T)) if suffixes is None else suffixes
    return {f"{name}_{suffix}": column for suffix, column in zip(names, values.T)}


# -- Parameters -------------------------------------------------------------------------------------------------------


def _given_params(options: argparse.Namespace) -> dict[str, Any]:
    """The parameters of --params, then those of -p; eval_metric may be repeated."""
    params: dict[str, Any] = {}
    if options.params:
        try:
            params = json.loads(Path(options.params).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{options.params} is not JSON: {error}.") from None
        if not isinstance(params, dict):
            raise ValueError(f'{options.params} must hold one JSON object, such as {{"max_depth": 6}}.')
    given: dict[str, Any] = {}
    for text in options.param:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"-p must be name=value, got {text!r}. Use for example -p max_depth=6.")
        given[name] = [*given.get(name, []), value] if name == "eval_metric" else value
    return {**params, **given}


def _choose_task(label: Any, params: dict[str, Any]) -> np.ndarray | None:
    """Fill in the objective, and num_class, where they are not given. The classes of a label that is to be encoded, else None."""
    is_number, n_distinct = label.dtype.is_numeric(), label.drop_nulls().n_unique()
    if "objective" not in params:
        is_quantity = is_number and n_distinct != 2 and (label.dtype.is_float() or not 2 < n_distinct <= MAX_CLASSES)
        if not is_number and n_distinct > MAX_CLASSES:
            raise ValueError(
                f"label {label.name!r} is text with {n_distinct} distinct values. "
                "If they are classes, say so with -p objective=multi:softprob."
            )
        params["objective"] = (
            "reg:squarederror" if is_quantity else "binary:logistic" if n_distinct <= 2 else "multi:softprob"
        )
    objective = str(params["objective"])
    is_multi = find_objective(objective).takes_parameter("num_class")
    if not find_objective(objective).is_classifier:
        if not is_number:
            raise ValueError(f"label {label.name!r} must be a number for {objective}, got {label.dtype}.")
        return None
    if is_number and ("num_class" in params if is_multi else n_distinct > 2):
        return None  # class numbers, or probabilities
    if not is_multi and n_distinct > 2:
        raise ValueError(f"label {label.name!r} has {n_distinct} classes, {objective} takes 2. Use -p objective=multi:softprob.")
    classes = np.unique(label.drop_nulls().to_numpy())
    if is_multi and str(params.setdefault("num_class", len(classes))) != str(len(classes)):
        raise ValueError(
            f"num_class is {params['num_class']}, but label {label.name!r} has {len(classes)} classes. Leave num_class out."
        )
    return classes


def _check_target(path: str) -> None:
    """What would fail after the training fails before it."""
    if Path(path).suffix not in (".json", ".ubj"):
        raise ValueError(f"--model must end in .json or .ubj, got {path!r}. Use model.json, for example.")
    if not Path(path).absolute().parent.is_dir():
        raise ValueError(f"the folder of --model {path!r} does not exist. Create it first.")


# -- Output and options -----------------------------------------------------------------------------------------------


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """Print the seconds that a stage took."""
    start = time.perf_counter()
    yield
    print(f"{name}: {time.perf_counter() - start:.2f} s", flush=True)


def _say(message: str) -> None:
    print(f"gpuboost: {message}", file=sys.stderr, flush=True)


def _listing(items: Iterable[Any]) -> str:
    texts = [str(item) for item in items]
    return ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}. See {self.prog} --help.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gpuboost", description="Gradient boosted trees on CSV, Parquet and LIBSVM files.")
    commands = parser.add_subparsers(required=True, metavar="train | predict | dump | info | doctor | warmup")

    command = commands.add_parser("train", help="train a model on a table")
    command.add_argument("data", help="table to train on: .csv, .parquet, .libsvm, .svm or FILE?format=libsvm")
    command.add_argument("--label", help="column to predict; text or few integers are classes. Not for LIBSVM files")
    command.add_argument("--weight", nargs=1, default=[], metavar="COLUMN", help="column of row weights")
    command.add_argument("--valid", metavar="DATA", help="table to evaluate on")
    command.add_argument("--model", required=True, help="file to write, .json or .ubj")
    command.add_argument("-p", dest="param", action="append", default=[], metavar="NAME=VALUE", help="parameter, repeatable")
    command.add_argument("--params", metavar="FILE", help="JSON file of parameters")
    command.add_argument("--rounds", type=int, default=100, help="boosting rounds (100)")
    command.add_argument("--early-stopping", type=int, default=0, metavar="N", help="stop after N rounds without better --valid")
    command.add_argument("--print-every", type=int, default=10, metavar="N", help="rounds between printed metrics (10), 0: none")
    command.set_defaults(command=_train)

    command = commands.add_parser("predict", help="predict a table")
    command.add_argument("data", help="table to predict, of the same kinds")
    command.add_argument("--model", required=True)
    command.add_argument("--output", metavar="FILE", help="file to write, .csv or .parquet; standard output by default")
    kind = command.add_mutually_exclusive_group()
    kind.add_argument("--margin", action="store_true", help="raw scores")
    kind.add_argument("--leaf", action="store_true", help="leaf number in each tree")
    command.set_defaults(command=_predict)

    command = commands.add_parser("dump", help="the trees of a model, to read or to draw")
    command.add_argument("--model", required=True)
    command.add_argument("--format", choices=("text", "json", "dot"), default="text", help="dot is what Graphviz draws")
    command.add_argument("--stats", action="store_true", help="gain and cover of every node, too")
    command.add_argument("--output", metavar="FILE", help="file to write; standard output by default")
    command.set_defaults(command=_dump)

    command = commands.add_parser("info", help="versions and devices, or what a model file holds")
    command.add_argument("--model")
    command.set_defaults(command=_info)

    command = commands.add_parser("doctor", help="what this machine can train on, and the fix for what is in the way")
    command.add_argument("--json", action="store_true", help="for programs")
    command.set_defaults(command=lambda options: report(options.json))

    command = commands.add_parser("warmup", help="compile all kernels of the usual paths now")
    command.set_defaults(command=_warmup)
    return parser
