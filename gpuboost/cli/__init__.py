"""The command line: gpuboost train | predict | explain | dump | plot | info | doctor | warmup, on CSV, Parquet, LIBSVM files."""

import argparse
import atexit
import gc
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gpuboost import __version__
from gpuboost.backend import choose_backend
from gpuboost.booster import Booster
from gpuboost.callback import EarlyStopping, EvaluationMonitor, TrainingCallback
from gpuboost.cli.pictures import check_picture, draw_curves, save_picture
from gpuboost.cli.progress import RoundBar, say_line, show_fraction, stage
from gpuboost.cli.tables import (
    StreamedTable,
    as_categories,
    by_value,
    check_column,
    encoded_label,
    feature_columns,
    import_polars,
    is_text,
    label_column,
    listing,
    named_columns,
    open_table,
    select_columns,
    without_index,
    write_table,
)
from gpuboost.cli.task import check_params, check_target, check_writable, choose_task, given_params
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.external import ExtMemQuantileDMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix
from gpuboost.data.streams.files import PARQUET, stream_of_query
from gpuboost.data.tables.text_files import TextTable
from gpuboost.doctor import report
from gpuboost.errors import DISTRIBUTION, DeviceNotFoundError, ModelFormatError
from gpuboost.labels import class_probabilities, read_classes, write_classes
from gpuboost.model_io import digest
from gpuboost.model_io.dump import join_dump, name_of_column
from gpuboost.objectives import find_objective
from gpuboost.output import say, write_output
from gpuboost.paths import write_file
from gpuboost.plotting import MEASURES
from gpuboost.second_compiler import start_second_compiler
from gpuboost.training.loop import check_arguments, train

__all__ = ["main"]

atexit.register(gc.freeze)  # else Python looks through all that is there as it ends: 0.1 s, 0.65 where kernels were compiled


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
    except (ValueError, ArithmeticError, NotImplementedError, ImportError, OSError, MemoryError, DeviceNotFoundError) as error:
        _say(f"error: {' '.join(str(error).split())}")
        return 2


# -- Commands ---------------------------------------------------------------------------------------------------------


def _train(options: argparse.Namespace) -> None:
    check_target(options.model)
    if options.early_stopping and not options.valid:
        raise ValueError("--early-stopping needs --valid, the table that decides when to stop.")
    if options.picture:
        check_picture(options.picture)
    check_arguments(options.rounds, None)
    params = given_params(options)
    checked = check_params(params)
    if checked.process_type == "update":
        raise ValueError("process_type='update' works on a model that is there: train(..., xgb_model=) in Python. Leave it out.")
    may_stream = checked.tree_method != "exact" and checked.booster != "gblinear"  # which look at the values themselves
    if not checked.training_device.startswith("cuda"):
        start_second_compiler()  # which compiles while the tables are read
    with stage("reading"):
        table = open_table(options.data, may_stream=may_stream)
        label = label_column(table, options, options.data)
        features, texts = feature_columns(table, options)
        tables = {"train": (options.data, table)}
        if options.valid:
            as_text = [*texts, label.name] if is_text(label) else texts
            tables["valid"] = options.valid, open_table(options.valid, as_text, may_stream=may_stream)
        if options.qid or (isinstance(table, TextTable) and table.qid is not None):
            params.setdefault("objective", "rank:ndcg")
        classes = choose_task(label, params)
    checked = check_params(params)
    backend = choose_backend(checked.training_device, checked.nthread, n_values=len(label) * len(features))
    say_line(f"device {backend.describe()}, {checked.objective}")
    if classes is not None:
        say_line(f"label {label.name}: {len(classes)} classes, {listing(classes)}")
    if texts:
        say_line(f"text is treated as categories in {listing(texts)}")
    evals: list[tuple[DMatrix, str]] = []
    with stage("binning"):
        for name, (path, table) in tables.items():
            info: dict[str, Any] = {"label": encoded_label(label_column(table, options, path), classes, path)}
            for field, columns in {"weight": options.weight, "qid": options.qid}.items():
                for column in columns:
                    check_column(column, table.columns, path)
                    info[field] = table[column]
            is_streamed = isinstance(table, StreamedTable)
            if not isinstance(table, TextTable):
                table = as_categories(select_columns(table, features, path), texts)
            if not may_stream:
                matrix = DMatrix(table, **info, nthread=checked.nthread)
            else:
                kind: Any = partial(QuantileDMatrix, device=checked.training_device)
                matrix = (ExtMemQuantileDMatrix if is_streamed else kind)(
                    table, **info, max_bin=checked.table_bins, cat_encoding=checked.cat_encoding, nthread=checked.nthread,
                    ref=evals[0][0] if evals else None,
                )  # fmt: skip
            say_line(f"{name}: {matrix.num_row()} rows x {matrix.num_col()} columns")
            evals.append((matrix, name))
    history: dict[str, dict[str, list[float]]] = {}
    callbacks: list[TrainingCallback] = []
    if options.early_stopping:
        callbacks.append(EarlyStopping(rounds=options.early_stopping, save_best=True))
    if options.print_every:
        callbacks.append(EvaluationMonitor(period=options.print_every, logger=say_line))
    with stage("training"):
        booster = train(
            params, evals[0][0], options.rounds, evals=evals, evals_result=history, verbose_eval=False,
            callbacks=[*callbacks, RoundBar(options.rounds)],
        )  # fmt: skip
    if classes is not None:
        write_classes(booster, classes)
    with stage("saving"):
        booster.save_model(options.model)
        if options.picture and history:
            save_picture(draw_curves(history), options.picture)
    rounds = booster.num_boosted_rounds()
    last = [f"{name}-{m} {values[rounds - 1]:.5f}" for name, log in history.items() for m, values in log.items()]
    say_line(", ".join([f"{options.model}: {rounds} rounds", *last]))


def _predict(options: argparse.Namespace) -> None:
    _check_output_table(options)
    booster = _load(options.model)
    frames = [_predictions(booster, data, options) for data in _tables_for(booster, options.data, may_stream=True)]
    write_table(import_polars().concat(frames), options.output)


def _predictions(booster: Booster, data: DMatrix, options: argparse.Namespace) -> Any:
    """What is asked for of some rows, a polars DataFrame."""
    model = booster.model
    objective = find_objective(model.objective)
    is_classifier = bool(model.n_classes) or (objective.is_classifier and model.n_targets == 1)
    if options.leaf:
        columns = named_columns("tree", booster.predict(data, pred_leaf=True).astype(np.int32))
    elif options.margin:
        columns = named_columns("margin", booster.predict(data, output_margin=True))
    elif not is_classifier or objective.predicts_classes:
        columns = named_columns("prediction", booster.predict(data))
        if is_classifier:
            columns["prediction"] = read_classes(booster)[columns["prediction"].astype(int)]
    else:
        classes = read_classes(booster)
        probability = class_probabilities(booster.predict(data), len(classes))
        columns = {"prediction": classes[probability.argmax(axis=1)], **named_columns("probability", probability, classes)}
    return import_polars().DataFrame(columns)


def _check_output_table(options: argparse.Namespace) -> None:
    """As _check_output, of a file whose name says what it is to be. One without an ending may be a pipe, which takes CSV."""
    if options.output and Path(options.output).suffix not in ("", ".csv", *PARQUET):
        raise ValueError(f"--output must end in .csv or .parquet, got {options.output!r}. Use out.csv, for example.")
    _check_output(options)


def _check_output(options: argparse.Namespace) -> None:
    if options.output:
        check_writable("--output", options.output)
    elif sys.stdout is None:
        raise ValueError("standard output is closed. Name a file to write: --output.")


def _table_for(booster: Booster, path: str) -> DMatrix:
    """A file's columns as the model reads them."""
    (table,) = _tables_for(booster, path, may_stream=False)
    return table


def _tables_for(booster: Booster, path: str, *, may_stream: bool) -> Iterator[DMatrix]:
    """The same, batch by batch where the table would not fit in memory."""
    model = booster.model
    texts = [name for name, values in model.categories.items() if all(isinstance(value, str) for value in values)]
    others = {name: values for name, values in model.categories.items() if name not in texts}
    table = open_table(path, texts, may_stream=may_stream)
    is_streamed = isinstance(table, StreamedTable)
    if not isinstance(table, TextTable):
        names = without_index(table.columns, path) if model.feature_names is None else model.feature_names
        table = as_categories(select_columns(table, names, path), texts)
    if not is_streamed:
        yield DMatrix(by_value(table, others))
        return
    for batch in stream_of_query(table, {}).batches():
        yield DMatrix(by_value(batch.data, others))


def _explain(options: argparse.Namespace) -> None:
    from gpuboost.explaining.contributions import mean_sizes

    _check_output_table(options)
    booster = _load(options.model)
    model = booster.model
    if options.picture:
        check_picture(options.picture)
        if options.most is not None and options.most < 1:
            raise ValueError(f"--most must be at least 1, got {options.most}.")
    if options.background and options.approximate:
        raise ValueError("--approximate has no background table. Leave out one of the two.")
    background = _table_for(booster, options.background) if options.background else None
    values = booster.contributions(
        _table_for(booster, options.data), is_approximate=options.approximate, background=background, progress=_progress()
    )
    name_of = name_of_column(model)
    names = [*map(name_of, range(model.n_features)), "bias"]
    if "bias" in names[:-1]:
        raise ValueError("the model has a column 'bias', which the last column of the output is called. Rename it.")
    if values.shape[1] == 1:
        columns = {name: values[:, 0, i] for i, name in enumerate(names)}
    else:
        suffixes = read_classes(booster) if model.n_classes else range(values.shape[1])
        columns = {}
        for i, name in enumerate(names):
            columns |= named_columns(name, values[:, :, i], suffixes)
    write_table(import_polars().DataFrame(columns), options.output)
    if options.picture:
        from gpuboost.plotting import plot_importance

        scores = {name: float(size) for name, size in zip(names, mean_sizes(values)) if size > 0}
        axes = plot_importance(
            scores, title="SHAP values", xlabel="mean size", ylabel=None, values_format="{v:.4g}", max_num_features=options.most
        )
        save_picture(axes, options.picture)


def _progress() -> Callable[[int, int], None]:
    """Tells on a terminal how many rows are done."""
    start = time.perf_counter()
    return lambda done, n: show_fraction(done, n, "rows", time.perf_counter() - start)


def _plot(options: argparse.Namespace) -> None:
    from gpuboost.plotting import plot_importance, plot_tree

    check_picture(options.output)
    booster = _load(options.model)
    if options.tree is not None:
        try:
            axes = plot_tree(booster, tree_idx=options.tree, with_stats=options.stats)
        except IndexError as error:
            raise ValueError(str(error)) from None
    else:
        kind = options.importance or ("gain" if booster.model.linear is None else "weight")
        axes = plot_importance(booster, importance_type=kind, max_num_features=options.most, xlabel=MEASURES[kind], ylabel=None)
    save_picture(axes, options.output)


def _dump(options: argparse.Namespace) -> None:
    _check_output(options)
    text = join_dump(_load(options.model).get_dump(with_stats=options.stats, dump_format=options.format), options.format)
    if options.output:
        write_file(options.output, text.encode())
    else:
        write_output(f"{text}\n")


def _info(options: argparse.Namespace) -> None:
    import numba

    from gpuboost.kernels.compile_cache import shipped_levels
    from gpuboost.kernels.leaves import update_margin_cpu

    backend = choose_backend("cpu", None)
    lines = {
        "gpuboost": __version__, "python": platform.python_version(), "numpy": version("numpy"), "numba": version("numba"),
        "cpu": f"{backend.describe()} by {numba.threading_layer()}",
        "cuda": _describe_cuda(),
        "kernels": ", ".join(shipped_levels()) or "compiled on first use",
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
        say_line(f"{name:13} {value}")


def _describe_cuda() -> str:
    """The first GPU, or why there is none."""
    try:
        return choose_backend("cuda", None).describe()
    except DeviceNotFoundError as error:
        return f"none: {error}"


def _warmup(options: argparse.Namespace) -> None:
    from gpuboost.warmup import other_uses, usual_uses

    with stage("warming up"):
        for use in chain(usual_uses(), other_uses() if options.all else ()):
            use()


def _load(path: str) -> Booster:
    try:
        return Booster(model_file=path)
    except ModelFormatError as error:
        raise ValueError(f"{path} is not a model: {error}") from None


# -- Output and options -----------------------------------------------------------------------------------------------


def _say(message: str) -> None:
    say(f"gpuboost: {message}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}. See {self.prog} --help.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gpuboost", description="Gradient boosted trees on CSV, Parquet and LIBSVM files.")
    parser.add_argument("--version", action="version", version=f"{DISTRIBUTION} {__version__}")
    commands = parser.add_subparsers(required=True, metavar="train | predict | explain | dump | plot | info | doctor | warmup")

    command = commands.add_parser("train", help="train a model on a table")
    command.add_argument("data", help="table to train on: .csv, .parquet, .libsvm, .svm, FILE?format=libsvm, a folder or pattern")
    command.add_argument("--label", help="column to predict; text, two numbers or few integers are classes. Not for LIBSVM files")
    command.add_argument("--weight", nargs=1, default=[], metavar="COLUMN", help="column of row weights")
    command.add_argument("--qid", nargs=1, default=[], metavar="COLUMN", help="column of queries, whose rows are ranked")
    command.add_argument("--valid", metavar="DATA", help="table to evaluate on")
    command.add_argument("--model", required=True, help="file to write, .json or .ubj")
    command.add_argument("-p", dest="param", action="append", default=[], metavar="NAME=VALUE", help="parameter, repeatable")
    command.add_argument("--params", metavar="FILE", help="JSON file of parameters")
    command.add_argument("--rounds", type=int, default=100, help="boosting rounds (100)")
    command.add_argument("--early-stopping", type=int, default=0, metavar="N", help="stop after N rounds without better --valid")
    command.add_argument("--print-every", type=int, default=10, metavar="N", help="rounds between printed metrics (10), 0: none")
    command.add_argument("--picture", metavar="FILE", help="curves of the metrics, drawn with matplotlib: .png, .svg or .pdf")
    command.set_defaults(command=_train)

    command = commands.add_parser("predict", help="predict a table")
    command.add_argument("data", help="table to predict, of the same kinds")
    command.add_argument("--model", required=True)
    command.add_argument("--output", metavar="FILE", help="file to write, .csv or .parquet; standard output by default")
    kind = command.add_mutually_exclusive_group()
    kind.add_argument("--margin", action="store_true", help="raw scores")
    kind.add_argument("--leaf", action="store_true", help="leaf number in each tree")
    command.set_defaults(command=_predict)

    command = commands.add_parser("explain", help="SHAP values: what each column adds to the margin of each row")
    command.add_argument("data", help="table to explain, of the same kinds")
    command.add_argument("--model", required=True)
    command.add_argument("--output", metavar="FILE", help="file to write, .csv or .parquet; standard output by default")
    command.add_argument("--background", metavar="DATA", help="table to compare with, instead of the model's covers")
    command.add_argument("--approximate", action="store_true", help="by the splits of a row's own path (Saabas)")
    command.add_argument("--picture", metavar="FILE", help="mean size of each column's values, drawn with matplotlib")
    command.add_argument("--most", type=int, default=20, metavar="N", help="columns in the picture (20)")
    command.set_defaults(command=_explain)

    command = commands.add_parser("dump", help="the trees of a model, to read or to draw")
    command.add_argument("--model", required=True)
    command.add_argument("--format", choices=("text", "json", "dot"), default="text", help="dot is what Graphviz draws")
    command.add_argument("--stats", action="store_true", help="gain and cover of every node, too")
    command.add_argument("--output", metavar="FILE", help="file to write; standard output by default")
    command.set_defaults(command=_dump)

    command = commands.add_parser("plot", help="the importance of a model's columns, or one of its trees, drawn with matplotlib")
    command.add_argument("--model", required=True)
    command.add_argument("--output", required=True, metavar="FILE", help="file to write, .png, .svg or .pdf")
    command.add_argument("--tree", type=int, metavar="N", help="draw this tree, the first is 0")
    command.add_argument("--stats", action="store_true", help="gain and cover of the tree's nodes, too")
    command.add_argument("--importance", choices=tuple(MEASURES), help="what the bars measure (gain; weight of a linear model)")
    command.add_argument("--most", type=int, default=20, metavar="N", help="columns in the picture (20)")
    command.set_defaults(command=_plot)

    command = commands.add_parser("info", help="versions and devices, or what a model file holds")
    command.add_argument("--model")
    command.set_defaults(command=_info)

    command = commands.add_parser("doctor", help="what this machine can train on, and the fix for what is in the way")
    command.add_argument("--json", action="store_true", help="for programs")
    command.set_defaults(command=lambda options: report(options.json))

    command = commands.add_parser("warmup", help="compile the kernels of the usual uses now")
    command.add_argument("--all", action="store_true", help="and those of every objective, method and kind of table")
    command.set_defaults(command=_warmup)
    return parser
