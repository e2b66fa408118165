"""The command line, as a user calls it."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.cli import main
from gpuboost.kernels.binning import bin_rows_cpu
from gpuboost.kernels.category_splits import evaluate_category_splits
from gpuboost.kernels.histogram import build_histograms_cpu
from gpuboost.kernels.partition import mark_rows_cpu
from gpuboost.kernels.quantiles import cut_columns_cpu, list_keys_cpu
from gpuboost.kernels.selection import FEWEST_ROWS, select_cuts_cpu
from gpuboost.kernels.splits import evaluate_splits

pytestmark = pytest.mark.long

pl = pytest.importorskip("polars")


@pytest.fixture(scope="module")
def tables():
    """Three frames of one distribution, with a text column, a text label of two values and a weight."""

    def make(seed, n):
        rng = np.random.default_rng(seed)
        a, b = rng.random(n), rng.integers(0, 50, n)
        kind = np.array(["red", "green", "blue"])[rng.integers(0, 3, n)]
        answer = np.where(a + 0.5 * (kind == "green") > 0.7, "yes", "no")
        return pl.DataFrame({"a": a, "b": b, "kind": kind, "weight": np.ones(n), "answer": answer})

    return {"train": make(0, 400), "valid": make(1, 200)}


@pytest.fixture
def folder(tables, tmp_path, monkeypatch):
    """A working folder with train.csv, valid.csv (columns in another order) and valid.parquet."""
    tables["train"].write_csv(tmp_path / "train.csv")
    tables["valid"].select("kind", "answer", "b", "a", "weight").write_csv(tmp_path / "valid.csv")
    tables["valid"].write_parquet(tmp_path / "valid.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gpuboost(*arguments):
    """Run python -m gpuboost in the current folder."""
    command = [sys.executable, "-m", "gpuboost", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_that_would_not_fit_is_read_in_batches_to_the_same_model(folder, suffix, monkeypatch, capsys):
    pl.read_csv("train.csv").write_parquet("train.parquet")
    command = [
        "train", f"train.{suffix}", "--label", "answer", "--weight", "weight", "--valid", f"valid.{suffix}", "--rounds", "3",
    ]  # fmt: skip
    assert main([*command, "--model", "whole.json"]) == 0
    predict = ["predict", f"train.{suffix}", "--model", "whole.json"]
    assert main(predict) == 0
    captured = capsys.readouterr()
    assert "in batches" not in captured.err
    monkeypatch.setattr("gpuboost.cli.tables.free_memory", lambda: 1000)
    monkeypatch.setattr("gpuboost.data.streams.files._batch_rows", lambda n_columns: 150)
    assert main([*command, "--model", "streamed.json"]) == 0
    err = capsys.readouterr().err
    assert f"train.{suffix}: about" in err and "GB of memory and 0.00 GB are free: it is read in batches" in err
    assert (folder / "streamed.json").read_bytes() == (folder / "whole.json").read_bytes()
    assert main(predict) == 0
    streamed = capsys.readouterr()
    assert "it is read in batches" in streamed.err and captured.out.endswith(streamed.out) and streamed.out.count("\n") == 401


@pytest.mark.parametrize("suffix, free", [("csv", 2**40), ("parquet", 2**40), ("csv", 1000), ("parquet", 1000)])
def test_files_of_a_folder_or_a_pattern_are_one_table(folder, suffix, free, monkeypatch):
    monkeypatch.setattr("gpuboost.cli.tables.free_memory", lambda: free)
    (folder / "parts").mkdir()
    table = pl.read_csv("train.csv")
    for i, part in enumerate((table[:150], table[150:])):
        getattr(part, {"csv": "write_csv", "parquet": "write_parquet"}[suffix])(f"parts/{i}.{suffix}")
    for model, data in {"one": "train.csv", "folder": "parts", "pattern": f"parts/*.{suffix}"}.items():
        assert main(["train", data, "--label", "answer", "--rounds", "2", "--model", f"{model}.json"]) == 0
    one = (folder / "one.json").read_bytes()
    assert (folder / "folder.json").read_bytes() == (folder / "pattern.json").read_bytes() == one


@pytest.mark.parametrize("free", [2**40, 1000])
def test_files_of_a_folder_need_not_agree_on_the_types_of_columns(folder, free, monkeypatch):
    """One has no value in a column of numbers, one only text that looks like numbers, one only whole numbers: as in one file."""
    monkeypatch.setattr("gpuboost.cli.tables.free_memory", lambda: free)
    (folder / "parts").mkdir()
    lines = Path("train.csv").read_text().splitlines()
    number = [f"{line},{i / 8 if i % 3 else ''},{i % 5}.5,1A" for i, line in enumerate(lines[1:201])]
    empty = [f"{line},,{i % 3},0{i % 4}" for i, line in enumerate(lines[201:])]
    head = f"{lines[0]},sparse,whole,code"
    for name, rows in {"all.csv": empty + number, "parts/0.csv": empty, "parts/1.csv": number}.items():
        Path(name).write_text("\n".join([head, *rows]) + "\n")
    for data in ("all", "parts"):
        path = data if data == "parts" else "all.csv"
        assert main(["train", path, "--label", "answer", "--rounds", "2", "--model", f"{data}.json"]) == 0
        assert main(["predict", path, "--model", f"{data}.json", "--output", f"{data}.predicted.csv"]) == 0
    for suffix in ("json", "predicted.csv"):
        assert Path(f"parts.{suffix}").read_bytes() == Path(f"all.{suffix}").read_bytes()


def test_a_folder_of_several_kinds_of_files_is_refused(folder, capsys):
    assert main(["train", ".", "--label", "answer", "--model", "model.json"]) == 2
    assert "'.' names files of several kinds, or LIBSVM files" in capsys.readouterr().err


def test_queries_come_from_a_column_or_a_libsvm_file(folder, capsys):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 2)).round(3), np.repeat([3, 5, 9], 20)
    relevance = np.digitize(X[:, 0], [-0.5, 0.5])
    table = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "query": qid, "relevance": relevance})
    table.write_csv("ranked.csv")
    lines = [f"{y} qid:{q} 0:{a} 1:{b}" for (a, b), y, q in zip(X, relevance, qid)]
    (folder / "ranked.libsvm").write_text("\n".join(lines))
    options = ["-p", "min_child_weight=0.1", "--rounds", "3"]
    columns = ["--label", "relevance", "--qid", "query"]
    assert main(["train", "ranked.csv", *columns, "--valid", "ranked.csv", "--model", "csv.json", *options]) == 0
    assert main(["train", "ranked.libsvm", "--model", "libsvm.json", *options]) == 0
    out = capsys.readouterr().out
    assert "rank:ndcg" in out and "valid-ndcg@32" in out
    booster = gb.Booster(model_file="csv.json")
    assert booster.feature_names == ["a", "b"]
    expected = gb.train({"objective": "rank:ndcg", "min_child_weight": 0.1}, gb.DMatrix(X, relevance, qid=qid), 3)
    for name in ("csv.json", "libsvm.json"):
        assert gb.Booster(model_file=name).get_dump() == [
            text.replace("f0", "a").replace("f1", "b") if name[0] == "c" else text for text in expected.get_dump()
        ]
    for arguments, message in (
        (["ranked.csv", "--label", "relevance", "--qid", "relevance"], "--qid and --label both name 'relevance'"),
        (["ranked.libsvm", "--qid", "query"], "--qid query: a LIBSVM file has its qids at the start of each line"),
        (["ranked.csv", "--label", "relevance", "--qid", "querry"], "no column 'querry'. Did you mean 'query'?"),
        (["ranked.csv", "--label", "relevance", "--qid", "a"], "qid must hold integers"),
    ):
        assert main(["train", *arguments, "--model", "m.json"]) == 2
        assert message in capsys.readouterr().err


def test_approx_bins_its_table_finely(folder):
    options = ["-p", "tree_method=approx", "-p", "sketch_proposals=local", "-p", "sketch_eps=0.2", "--rounds", "2"]
    assert main(["train", "train.csv", "--label", "answer", "--model", "m.json", *options]) == 0
    assert gb.Booster(model_file="m.json").num_boosted_rounds() == 2


def test_train_predict_and_info(folder, tables):
    trained = gpuboost(
        "train", "train.csv", "--label", "answer", "--weight", "weight", "--valid", "valid.csv", "--model", "m.json",
        "-p", "max_depth=3", "-p", "eval_metric=error", "-p", "eval_metric=logloss", "-p", "cat_encoding=ordinal",
        "--rounds", 30, "--early-stopping", 3,
    )  # fmt: skip
    assert trained.returncode == 0 and all("compiling" in line for line in trained.stderr.splitlines())
    for text in (
        "device cpu", "threads", "binary:logistic", "2 classes, no, yes", "categories in kind", "train: 400 rows x 3 columns",
        "valid: 200 rows x 3 columns", "reading: ", "binning: ", "training: ", "saving: ", "[10]\ttrain-error:", "train-logloss",
    ):  # fmt: skip
        assert text in trained.stdout

    model = gb.Booster(model_file="m.json")
    assert model.best_iteration == model.num_boosted_rounds() - 1 < 29  # only the best rounds are kept
    assert model.feature_names == ["a", "b", "kind"]
    frame = tables["valid"].with_columns(pl.col("kind").cast(pl.Categorical))
    probability = model.predict(gb.DMatrix(frame.select("a", "b", "kind")))
    metric = f"valid-logloss {model.best_score:.5f}"
    assert metric in trained.stdout.splitlines()[-1] and "m.json" in trained.stdout.splitlines()[-1]

    predicted = gpuboost("predict", "valid.csv", "--model", "m.json")
    assert predicted.returncode == 0 and all("compiling" in line for line in predicted.stderr.splitlines())
    rows = [line.split(",") for line in predicted.stdout.splitlines()]
    assert rows[0] == ["prediction", "probability_no", "probability_yes"]
    np.testing.assert_allclose([float(row[2]) for row in rows[1:]], probability, rtol=1e-6)  # printed decimals
    assert [row[0] for row in rows[1:]] == np.where(probability > 0.5, "yes", "no").tolist()

    assert gpuboost("predict", "valid.parquet", "--model", "m.json", "--output", "p.parquet").stdout == ""
    np.testing.assert_array_equal(pl.read_parquet("p.parquet")["probability_yes"].to_numpy(), probability)

    info = gpuboost("info", "--model", "m.json").stdout
    facts = dict(line.split(maxsplit=1) for line in info.replace("kernel cache", "kernel_cache").splitlines())
    assert facts["gpuboost"] == gb.__version__
    assert facts["numpy"] == np.__version__ and "threads" in facts["cpu"] and facts["cuda"]
    assert (facts["objective"], facts["rounds"], facts["features"]) == ("binary:logistic", str(model.best_iteration + 1), "3")
    assert int(facts["leaves"]) == sum(tree.n_leaves for tree in model.model.trees)
    assert len(facts["digest"]) == 64


@pytest.mark.parametrize("dump_format", ["text", "json", "dot"])
def test_dump_prints_or_writes_the_trees(dump_format, folder, capsys):
    booster = gb.train({}, gb.DMatrix([[0.0], [1.0], [2.0]], [0.0, 5.0, 9.0]), 2)
    booster.save_model("m.json")
    for stats in (False, True):
        options = ["dump", "--model", "m.json", "--format", dump_format, *["--stats"] * stats]
        assert main([*options, "--output", "trees"]) == main(options) == 0
        booster.dump_model("expected", with_stats=stats, dump_format=dump_format)
        expected = (folder / "expected").read_text()
        assert (folder / "trees").read_text() == expected and capsys.readouterr().out == expected + "\n"
        assert ("cover" in expected) == stats


@pytest.mark.parametrize("kind, starts", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_pictures_are_files_of_the_kind_that_their_names_end_in(kind, starts, folder):
    pytest.importorskip("matplotlib").use("Agg")
    options = ["--label", "answer", "--rounds", "2", "-p", "eval_metric=error", "-p", "eval_metric=auc"]
    assert main(["train", "train.csv", *options, "--model", "m.json", "--picture", f"curves.{kind}"]) == 0
    assert main(["plot", "--model", "m.json", "--output", f"bars.{kind}", "--importance", "weight"]) == 0
    assert main(["plot", "--model", "m.json", "--output", f"tree.{kind}", "--tree", "1", "--stats"]) == 0
    pictures = [(folder / f"{name}.{kind}").read_bytes() for name in ("curves", "bars", "tree")]
    assert [picture[: len(starts)] for picture in pictures] == [starts] * 3 and len(set(pictures)) == 3
    if kind == "svg":  # text is drawn as paths, but its words stand beside them
        words = [picture.decode() for picture in pictures]
        assert "error" in words[0] and "auc" in words[0] and "kind" in words[1] and "green" in words[2]


def test_estimators_load_the_model_with_its_labels(folder, tables):
    pytest.importorskip("sklearn")
    assert main(["train", "train.csv", "--label", "answer", "--weight", "weight", "--model", "m.json", "--rounds", "5"]) == 0
    model = gb.GPUBoostClassifier()
    model.load_model("m.json")
    frame = tables["valid"].with_columns(pl.col("kind").cast(pl.Categorical)).select("a", "b", "kind")
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.score(frame, tables["valid"]["answer"].to_numpy()) > 0.9


@pytest.mark.parametrize(
    "label, options, objective, classes",
    [
        (["x", "y", "x", "y"], [], "binary:logistic", ["x", "y"]),
        (["x", "y", "z", "y"], [], "multi:softprob", ["x", "y", "z"]),
        (["x", "x", "x", "x"], [], "binary:logistic", ["x"]),
        ([True, False, True, False], [], "binary:logistic", [False, True]),
        ([3, 8, 8, 3], [], "binary:logistic", [3, 8]),
        ([3, 8, 5, 3], [], "multi:softprob", [3, 5, 8]),
        ([0.0, 1.0, 1.0, 0.0], [], "binary:logistic", [0, 1]),
        ([0.5, 1.25, 7.0, 0.0], [], "reg:squarederror", None),
        ([3, 3, 3, 3], [], "reg:squarederror", None),
        (list(range(40)), [], "reg:squarederror", None),
        ([3, 8, 8, 3], ["-p", "objective=reg:squarederror"], "reg:squarederror", None),
        ([0.0, 0.25, 0.5, 1.0], ["-p", "objective=binary:logistic"], "binary:logistic", None),
        ([0, 2, 1, 0], ["-p", "objective=multi:softprob", "-p", "num_class=5"], "multi:softprob", None),
        ([f"id{i}" for i in range(30)], ["-p", "objective=multi:softmax"], "multi:softmax", sorted(f"id{i}" for i in range(30))),
    ],
    ids=str,
)
def test_objective_and_classes_follow_the_label(label, options, objective, classes, folder, capsys):
    pl.DataFrame({"x": np.arange(len(label)) / 7, "y": label}).write_parquet("d.parquet")
    assert main(["train", "d.parquet", "--label", "y", "--model", "m.json", "--rounds", "2", *options]) == 0
    assert objective in capsys.readouterr().out
    model = gb.Booster(model_file="m.json")
    assert model.model.objective == objective
    kept = model.attr("classes")
    assert (json.loads(kept)["values"] if kept else None) == classes
    assert main(["predict", "d.parquet", "--model", "m.json", "--output", "p.csv"]) == 0
    predicted = pl.read_csv("p.csv")
    assert predicted.height == len(label)
    if classes:
        assert set(predicted["prediction"]) <= set(classes)


def test_the_second_process_compiles_while_tables_are_read(folder, monkeypatch):
    happened = []
    monkeypatch.setattr("gpuboost.cli.start_second_compiler", lambda: happened.append("compiler"))
    monkeypatch.setattr("gpuboost.cli.open_table", lambda *_, **__: happened.append("table") or sys.exit())
    with pytest.raises(SystemExit):
        main(["train", "train.csv", "--label", "answer", "--model", "m.json"])
    assert happened == ["compiler", "table"]


def test_margins_and_leaves(folder, tables, capsys):
    label = np.digitize(tables["train"]["a"].to_numpy(), [0.3, 0.6])
    tables["train"].select("b", "a").with_columns(y=label).write_csv("d.csv")
    assert main(["train", "d.csv", "--label", "y", "--model", "m.json", "--rounds", "2"]) == 0
    capsys.readouterr()
    model, data = gb.Booster(model_file="m.json"), gb.DMatrix(tables["train"].select("b", "a"))
    assert main(["predict", "d.csv", "--model", "m.json", "--margin"]) == 0
    printed = pl.read_csv(capsys.readouterr().out.encode())
    assert printed.columns == ["margin_0", "margin_1", "margin_2"]
    np.testing.assert_allclose(printed.to_numpy(), model.predict(data, output_margin=True), rtol=1e-6)
    assert main(["predict", "d.csv", "--model", "m.json", "--leaf"]) == 0
    printed = pl.read_csv(capsys.readouterr().out.encode())
    assert printed.columns == [f"tree_{i}" for i in range(6)]
    np.testing.assert_array_equal(printed.to_numpy(), model.predict(data, pred_leaf=True))


def test_parameters_of_the_file_give_way_to_those_of_the_line(folder, tables):
    tables["train"].select("a", "b").write_csv("d.csv")
    (folder / "p.json").write_text('{"max_depth": 1, "eta": 0.5, "base_score": 0.25}')
    command = ["train", "d.csv", "--label", "a", "--model", "m.json", "--params", "p.json", "-p", "max_depth=2", "--rounds", "1"]
    assert main(command) == 0
    data = gb.DMatrix(tables["train"].select("b"), tables["train"]["a"])
    expected = gb.train({"max_depth": 2, "eta": 0.5, "base_score": 0.25}, data, 1)
    assert (folder / "m.json").read_bytes() == bytes(expected.save_raw("json"))


def test_missing_values_of_csv_are_missing(folder):
    (folder / "d.csv").write_text("x,y\n1,10\n,20\nNA,20\nnan,20\n2,10\n3,10\n")
    assert main(["train", "d.csv", "--label", "y", "--model", "m.json", "--rounds", "9", "-p", "min_child_weight=0",
                 "-p", "objective=reg:squarederror"]) == 0  # fmt: skip
    assert main(["predict", "d.csv", "--model", "m.json", "--output", "p.csv"]) == 0
    np.testing.assert_allclose(pl.read_csv("p.csv")["prediction"], [10, 20, 20, 20, 10, 10], atol=1)


TRAIN = ["train", "train.csv", "--label", "answer", "--model", "m.json"]
UNREAD = ["train", "nowhere.csv", "--label", "answer", "--model", "m.json"]  # what is wrong before a table is looked for


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "required"),
        (["trian"], "invalid choice: 'trian'"),
        (["train", "train.csv", "--model", "m.json"], "--label is required"),
        (["train", "train.csv", "--label", "answer"], "required: --model"),
        (["train", "nowhere.csv", "--label", "answer", "--model", "m.json"], "there is no file 'nowhere.csv'"),
        (["train", "train.csv", "--label", "anser", "--model", "m.json"], "no column 'anser'. Did you mean 'answer'?"),
        (["train", "train.csv", "--label", "zzz", "--model", "m.json"], "no column 'zzz'. It has a, b, kind, weight, answer."),
        (["train", "text.csv", "--label", "b", "--model", "m.json"], "label 'b' is text with 30 distinct values"),
        (["train", "holes.csv", "--label", "y", "--model", "m.json"], "label 'y' of holes.csv is missing in 2 rows"),
        (["train", "broken.parquet", "--label", "y", "--model", "m.json"], "broken.parquet cannot be read"),
        (["train", "empty.csv", "--label", "y", "--model", "m.json"], "empty.csv cannot be read"),
        (["train", "train.csv", "--label", "answer", "--model", "m.txt"], "--model must end in .json or .ubj, got 'm.txt'"),
        (["train", "train.csv", "--label", "answer", "--model", "no/m.json"], "folder of --model 'no/m.json' does not exist"),
        ([*TRAIN, "--weight", "wieght"], "no column 'wieght'. Did you mean 'weight'?"),
        ([*TRAIN, "-p", "max_dept=3"], "unknown parameter 'max_dept'. Did you mean 'max_depth'?"),
        ([*TRAIN, "-p", "max_depth"], "-p must be name=value, got 'max_depth'"),
        ([*TRAIN, "-p", "max_depth=-1"], "max_depth must be"),
        ([*TRAIN, "-p", "objective=multi:softprob", "-p", "num_class=3"], "num_class is 3, but label 'answer' has 2 classes"),
        ([*TRAIN, "--weight", "answer"], "--weight and --label both name 'answer'"),
        (["train", "twice.csv", "--label", "y", "--model", "m.json"], "twice.csv names more than one column 'a'"),
        ([*TRAIN, "-p", "lambdarank_bias_norm=2"], "lambdarank_bias_norm belongs to rank:map, rank:ndcg, rank:pairwise, not to"),
        ([*TRAIN, "-p", "device=cuda"], "Use device='cpu'"),
        ([*TRAIN, "-p", "objective=reg:squarederror"], "label 'answer' must be a number for reg:squarederror"),
        ([*TRAIN, "--params", "train.csv"], "train.csv is not JSON"),
        ([*TRAIN, "--params", "list.json"], "list.json must hold one JSON object"),
        ([*TRAIN, "--early-stopping", "3"], "--early-stopping needs --valid"),
        ([*TRAIN, "--rounds", "many"], "invalid int value: 'many'"),
        ([*TRAIN, "--rounds", "-1"], "num_boost_round must be at least 0"),
        ([*TRAIN, "--valid", "text.csv"], "text.csv has no column"),
        (["train", "folder", "--label", "answer", "--model", "m.json"], "the folder 'folder' holds no file that ends in"),
        ([*TRAIN, "--valid", "folder"], "the folder 'folder' holds no file"),
        ([*UNREAD, "-p", "max_dept=3"], "unknown parameter 'max_dept'"),
        ([*UNREAD, "-p", "eval_metric=auc", "-p", "eval_metric=errors"], "got 'errors'. Did you mean 'error'?"),
        ([*UNREAD, "-p", "objective=binary:logist"], "got 'binary:logist'. Did you mean 'binary:logistic'?"),
        ([*UNREAD, "-p", "objective=reg:squarederror", "-p", "scale_pos_weight=3"], "scale_pos_weight belongs to"),
        ([*UNREAD, "--rounds", "-1"], "num_boost_round must be at least 0"),
        (["predict", "train.csv", "--model", "nowhere.json"], "No such file"),
        (["predict", "train.csv", "--model", "train.csv"], "train.csv is not a model: document: not JSON"),
        (["predict", "text.csv", "--model", "known.json"], "text.csv has no column 'a'"),
        (["predict", "train.csv", "--model", "known.json", "--leaf", "--margin"], "not allowed with"),
        (["info", "--model", "list.json"], "list.json is not a model"),
        ([*UNREAD, "--picture", "curves.gif"], "a picture's name must end in .png, .svg, .pdf, got 'curves.gif'"),
        ([*UNREAD, "--picture", "no/curves.png"], "the folder of the picture 'no/curves.png' does not exist"),
        (["plot", "--model", "known.json", "--output", "tree.png", "--tree", "1"], "one of the model's 1 trees, got 1"),
        (["plot", "--model", "known.json", "--output", "tree.txt"], "a picture's name must end in"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(arguments, message, folder, tables, capsys):
    pl.DataFrame({"b": [f"id{i}" for i in range(30)]}).write_csv("text.csv")
    (folder / "holes.csv").write_text("x,y\n1,\n2,3\n3,NA\n")
    (folder / "broken.parquet").write_bytes(b"PAR1 and no more")
    (folder / "empty.csv").write_text("")
    (folder / "twice.csv").write_text("a,a,y\n1,2,3\n2,3,4\n")
    (folder / "list.json").write_text("[1]")
    (folder / "folder").mkdir()
    gb.train({}, gb.DMatrix(tables["train"].select("a"), tables["train"]["b"]), 1).save_model("known.json")
    assert main(arguments) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("gpuboost: error: ") and errors.count("\n") == 1 and message in errors
    assert not (folder / "m.json").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_no_table(folder, capsys):
    os.mkfifo("pipe.csv")
    assert main(["train", "pipe.csv", "--label", "answer", "--model", "m.json"]) == 2
    assert "'pipe.csv' is a pipe or a device, and a table is read more than once" in capsys.readouterr().err


def test_errors_reach_the_shell(folder):
    result = gpuboost("train", "nowhere.csv", "--label", "y", "--model", "m.json")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "gpuboost: error: there is no file 'nowhere.csv'.\n"


def test_unknown_categories_are_a_warning_of_one_line(folder, tables, capsys):
    assert main(["train", "train.csv", "--label", "answer", "--model", "m.json", "--rounds", "1"]) == 0
    tables["valid"].with_columns(kind=pl.lit("violet")).write_csv("v.csv")
    capsys.readouterr()
    assert main(["predict", "v.csv", "--model", "m.json"]) == 0
    errors = capsys.readouterr().err
    assert errors.startswith("gpuboost: warning: Categories unknown to the model become missing.") and errors.count("\n") == 1


def test_text_of_one_file_is_text_in_the_next(folder):
    """Codes and labels 01 and 1A are text; a file that holds only 01 must not turn them into the number 1."""
    (folder / "all.csv").write_text("code,x,y\n" + "01,0,0A\n02,0,01\n1A,0,02\n" * 9)
    (folder / "some.csv").write_text("code,x,y\n02,0,01\n01,0,01\n")
    options = ["--label", "y", "--model", "m.ubj", "--rounds", "9", "-p", "min_child_weight=0"]
    assert main(["train", "all.csv", "--valid", "some.csv", *options, "-p", "eval_metric=merror"]) == 0
    assert main(["predict", "some.csv", "--model", "m.ubj", "--output", "p.csv"]) == 0
    assert pl.read_csv("p.csv", infer_schema=False)["prediction"].to_list() == ["01", "0A"]


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_interrupt_ends_with_130_and_no_traceback(folder):
    command = [sys.executable, "-u", "-m", "gpuboost", *TRAIN, "--rounds", "1000000", "--print-every", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not process.stdout.readline().startswith("[0]"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "gpuboost: interrupted" and "Traceback" not in errors
    assert not (folder / "m.json").exists()


def test_reader_that_stops_is_no_error(folder, tables):
    assert main(["train", "train.csv", "--label", "answer", "--model", "m.json", "--rounds", "1"]) == 0
    pl.concat([tables["valid"]] * 200).write_csv("long.csv")  # more than a pipe holds
    command = [sys.executable, "-m", "gpuboost", "predict", "long.csv", "--model", "m.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("prediction")
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(timeout=120) == 0 and all("compiling" in line for line in errors.splitlines())


def test_a_reader_that_stops_does_not_stop_a_training(folder):
    """Neither of the standard streams has one any more once it has begun."""
    command = [sys.executable, "-m", "gpuboost", *TRAIN, "--rounds", "30", "--print-every", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("reading: ")
        process.stdout.close()
        process.stderr.close()
        assert process.wait(timeout=120) == 0
    assert gb.Booster(model_file="m.json").num_boosted_rounds() == 30


def test_a_broken_pipe_that_is_not_standard_output_is_an_error(folder, monkeypatch, capsys):
    def write(booster, path):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE), path)

    monkeypatch.setattr(gb.Booster, "save_model", write)
    assert main([*TRAIN, "--rounds", "1"]) == 2
    assert "Broken pipe: 'm.json'" in capsys.readouterr().err


@pytest.mark.sweep(1)
@pytest.mark.skipif(os.name == "nt", reason="closes streams as a POSIX shell does")
@pytest.mark.parametrize("command", ["predict train.csv --model m.json", "dump --model m.json"])
def test_closed_streams_get_no_data_and_keep_no_message(command, folder):
    """Messages do not go to standard output in place of standard error, and who has no output is told so."""
    train = " ".join(TRAIN)
    run = lambda line: subprocess.run(["sh", "-c", f"{sys.executable} -m gpuboost {line}"], capture_output=True, text=True)
    assert run(f"{train} --rounds 1 2>&- >&-").returncode == 0
    expected = run(command)
    assert expected.returncode == 0 and run(f"{command} 2>&-").stdout == expected.stdout
    assert run("predict no.csv --model m.json 2>&-").stdout == ""
    closed = run(f"{command} >&-")
    assert closed.returncode == 2
    assert closed.stderr == "gpuboost: error: standard output is closed. Name a file to write: --output.\n"


@pytest.mark.slow
@pytest.mark.usual_threads
def test_warmup_compiles_and_says_how_long(capsys):
    assert main(["warmup"]) == 0
    assert capsys.readouterr().out.startswith("warming up: ")
    kernels = list_keys_cpu, cut_columns_cpu, select_cuts_cpu, bin_rows_cpu, build_histograms_cpu, mark_rows_cpu
    kernels += evaluate_splits(None), evaluate_category_splits(None)
    compiled = [len(kernel.dispatcher.signatures) for kernel in kernels]
    for n_rows in (200, FEWEST_ROWS):
        X, y = np.random.default_rng(0).random((n_rows, 5)), np.arange(n_rows) % 2
        frozen = np.asfortranarray(X)  # as pandas hands out its tables
        frozen.flags.writeable = False
        for table in (X.astype(np.float32), X, frozen, np.asfortranarray(X.astype(np.float32))):
            for weight in (None, np.ones(n_rows)):
                gb.train({"objective": "binary:logistic"}, gb.DMatrix(table, y, weight=weight), 2)
        categories = np.random.default_rng(0).integers(0, 9, (n_rows, 5)).astype(np.float32)
        gb.train({}, gb.DMatrix(categories, y, feature_types=["c"] * 5), 2)
    assert [len(kernel.dispatcher.signatures) for kernel in kernels] == compiled


def test_a_linear_model_trains_and_predicts(folder):
    line = pl.DataFrame({"x": np.arange(-10.0, 10.0)}).with_columns(y=2 * pl.col("x") + 0.25)
    line.write_csv("line.csv")
    assert main(["train", "line.csv", "--label", "y", "--model", "m.json", "--rounds", "100", "-p", "booster=gblinear"]) == 0
    assert main(["predict", "line.csv", "--model", "m.json", "--output", "out.csv"]) == 0
    np.testing.assert_allclose(pl.read_csv("out.csv")["prediction"], line["y"], atol=1e-3)


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"gpuboost-trees {gb.__version__}\n"


def test_without_polars_the_error_names_the_extra(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "polars", None)
    assert main(["predict", "train.csv", "--model", "train.csv"]) == 2
    assert main(TRAIN) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("pip install 'gpuboost-trees[cli]'")


@pytest.mark.parametrize("kind", ["int", "float", "bool"])
def test_categories_that_are_no_text_are_matched_by_value(kind, folder, monkeypatch, capsys):
    pd, numbers = pytest.importorskip("pandas"), np.arange(40) % 4
    values = {"int": numbers + 10, "float": numbers / 2, "bool": numbers % 2 == 0}[kind]
    frame = pd.DataFrame({"x": np.arange(40.0) % 5, "k": pd.Categorical(values)})
    booster = gb.train({}, gb.DMatrix(frame, np.arange(40) % 4), 2, verbose_eval=False)
    booster.save_model("model.json")
    pl.DataFrame({"k": values, "x": frame["x"].to_numpy()})[20:].write_csv("data.csv")
    pl.DataFrame({"k": values, "x": frame["x"].to_numpy()})[20:].write_parquet("data.parquet")
    for free in (2**40, 0):  # read whole, and in batches
        monkeypatch.setattr("gpuboost.cli.tables.free_memory", lambda free=free: free)
        for name in ("data.csv", "data.parquet"):
            assert main(["predict", name, "--model", "model.json", "--output", "out.parquet"]) in (0, None)
            found = pl.read_parquet("out.parquet")["prediction"].to_numpy()
            np.testing.assert_array_equal(found, booster.predict(gb.DMatrix(frame[20:])))
    pl.DataFrame({"k": [1.25, 2.0], "x": [1.0, 2.0]}).write_parquet("unknown.parquet")
    main(["predict", "unknown.parquet", "--model", "model.json", "--output", "out.parquet"])
    assert 'Categories unknown to the model become missing. Column "k": "1.25"' in capsys.readouterr().err
    if kind == "int":
        x, numbers = frame["x"].to_numpy()[20:], pl.Series(values[20:])
        pl.DataFrame({"k": numbers.cast(pl.Decimal(10, 0)), "x": x}).write_parquet("dec.parquet")
        main(["predict", "dec.parquet", "--model", "model.json", "--output", "out.parquet"])
        np.testing.assert_array_equal(pl.read_parquet("out.parquet")["prediction"], booster.predict(gb.DMatrix(frame[20:])))
        pl.DataFrame({"k": numbers.cast(pl.String).cast(pl.Categorical), "x": x}).write_parquet("cat.parquet")
        assert main(["predict", "cat.parquet", "--model", "model.json"]) == 2
    (folder / "data.svm").write_text("1 0:1 1:2\n")  # codes
    main(["predict", "data.svm", "--model", "model.json", "--output", "out.parquet"])
    (folder / "text.csv").write_text("k,x\na,1\n")
    assert main(["predict", "text.csv", "--model", "model.json"]) == 2


def test_the_index_of_a_pandas_frame_is_not_learnt_from(folder):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.random.default_rng(0).normal(size=50), "y": np.arange(50.0)})
    for name in (None, "row"):
        frame.rename_axis(name).sample(frac=1, random_state=0).to_parquet("table.parquet")
        assert main(["train", "table.parquet", "--label", "y", "--model", "model.json", "--rounds", "1"]) in (0, None)
        assert gb.Booster(model_file="model.json").feature_names == ["a"]
    command = ["train", "table.parquet", "--label", "y", "--weight", "row", "--model", "model.json", "--rounds", "1"]
    assert main(command) in (0, None)
    assert main(["predict", "table.parquet", "--model", "model.json", "--output", "out.csv"]) in (0, None)


@pytest.mark.parametrize("name", ["out.xlsx", "out.tsv", "out.PARQUET"])
@pytest.mark.parametrize("command", ["predict", "explain"])
def test_a_table_is_not_written_as_what_its_name_does_not_say(command, name, folder, capsys):
    assert main([command, "train.csv", "--model", "there-is-none.json", "--output", name]) == 2
    assert f"--output must end in .csv or .parquet, got '{name}'" in capsys.readouterr().err


@pytest.mark.parametrize("command", [
    ["train", "train.csv", "--label", "answer", "--model", "taken.json"], ["dump", "--output", "taken.json"],
    ["predict", "train.csv", "--output", "no/out.csv"], ["explain", "train.csv", "--output", "no/out.csv"],
    ["dump", "--output", "no/out.txt"],
])  # fmt: skip
def test_where_nothing_can_be_written_no_time_is_spent(command, folder, capsys):
    (folder / "taken.json").mkdir()
    command += [] if "--model" in command else ["--model", "there-is-none.json"]
    assert main(command) == 2
    assert ("is a folder" if "taken.json" in command else "does not exist") in capsys.readouterr().err
