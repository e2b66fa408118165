"""train(resume_from=folder): a training that is killed at any moment goes on to the model of an undisturbed one."""

import errno
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.backend.cuda import CudaBackend
from gpuboost.callback import EarlyStopping, LearningRateScheduler, TrainingCallback
from gpuboost.communicator import SingleProcess
from gpuboost.model_io import digest
from gpuboost.training import checkpoint

ROUNDS = 12
CASES = {
    "sampled": {"subsample": 0.6, "colsample_bynode": 0.7, "num_parallel_tree": 2},
    "dart": {"booster": "dart", "rate_drop": 0.3, "subsample": 0.8},
    "classes": {"objective": "multi:softprob", "num_class": 3, "colsample_bytree": 0.75},
}


def make_table():
    rng = np.random.default_rng(8)
    X = rng.integers(-9, 10, (200, 4)).astype(np.float32)
    return X, np.digitize(X @ [3, -2, 1, 0] + rng.normal(size=200), [-10, 10]).astype(np.float32)


class Fail(TrainingCallback):
    """Stands for a kill: an error after a round, before its checkpoint."""

    def __init__(self, epoch):
        self.epoch = epoch

    def after_iteration(self, model, epoch, evals_log):
        if epoch == self.epoch:
            raise RuntimeError("killed")
        return False


def train(case, folder=None, rounds=ROUNDS, callbacks=(), **options):
    """(booster, evaluations), with early stopping that has something to remember, and rates that change."""
    X, y = make_table()
    data, other, scores = gb.DMatrix(X, y), gb.DMatrix(X[:50], y[::-1][:50]), {}
    schedule = LearningRateScheduler([0.5 / (1 + epoch) for epoch in range(50)])
    stopping = EarlyStopping(rounds=9, min_delta=0.001)
    booster = gb.train(
        {"max_depth": 3, "max_bin": 16, "seed": 3, **CASES[case]}, data, rounds, evals=[(data, "train"), (other, "other")],
        evals_result=scores, verbose_eval=False, callbacks=[schedule, stopping, *callbacks], resume_from=folder,
        **{"checkpoint_interval": 2, **options},
    )  # fmt: skip
    return booster, scores


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("fails", [(0,), (1,), (5, 6, 7)], ids=str)
def test_a_resumed_training_ends_as_an_undisturbed_one(case, fails, tmp_path):
    expected, scores = train(case)
    for epoch in fails:
        with pytest.raises(RuntimeError, match="killed"):
            train(case, tmp_path, callbacks=[Fail(epoch)])
    booster, again = train(case, tmp_path)
    assert digest(booster.model) == digest(expected.model)
    assert again == scores and booster.attributes() == expected.attributes() != {}


def test_early_stopping_goes_on_counting(tmp_path):
    expected, _ = train("classes", rounds=40)
    assert expected.num_boosted_rounds() < 40
    last = expected.num_boosted_rounds() - 1
    for epoch in (expected.best_iteration + 2, last):
        with pytest.raises(RuntimeError):
            train("classes", tmp_path, 40, callbacks=[Fail(epoch)])
    booster, _ = train("classes", tmp_path, 40)
    assert digest(booster.model) == digest(expected.model)
    grown = []

    class Count(TrainingCallback):
        def before_iteration(self, model, epoch, evals_log):
            grown.append(epoch)
            return False

    again, _ = train("classes", tmp_path, 40, callbacks=[Count()])
    assert digest(again.model) == digest(expected.model) and not grown


def test_more_rounds_go_on_from_the_last(tmp_path):
    train("sampled", tmp_path, 5)
    assert digest(train("sampled", tmp_path)[0].model) == digest(train("sampled")[0].model)


def test_a_model_to_continue_is_part_of_the_training(tmp_path):
    first, _ = train("sampled", rounds=3)
    expected, _ = train("sampled", rounds=6, xgb_model=first)
    with pytest.raises(RuntimeError):
        train("sampled", tmp_path, 6, callbacks=[Fail(4)], xgb_model=first)
    with pytest.raises(ValueError, match="xgb_model of arguments was .*…, is None"):
        train("sampled", tmp_path, 6)
    assert digest(train("sampled", tmp_path, 6, xgb_model=first)[0].model) == digest(expected.model)


def test_the_layout_of_the_work_may_change(tmp_path):
    X, y = make_table()
    params = {"max_depth": 3, "max_bin": 16, "subsample": 0.7}
    expected = gb.train(params, gb.DMatrix(X, y), 6)
    gb.train({**params, "nthread": 1}, gb.DMatrix(X, y), 3, resume_from=tmp_path)
    paged = gb.QuantileDMatrix(X, y, max_bin=16, page_rows=70)
    resumed = gb.train({**params, "nthread": 2}, paged, 6, resume_from=tmp_path)
    assert digest(resumed.model) == digest(expected.model)


def test_a_training_beside_it_on_the_same_matrix_does_not_matter(tmp_path, monkeypatch):
    """The other one asks for other bins once this one has started."""
    X, y = make_table()
    params, start = {"max_depth": 3, "max_bin": 16, "nthread": 1}, gb.Booster.start_training

    def start_both(self, dtrain, **options):
        training = start(self, dtrain, **options)
        dtrain.binned(8, CpuBackend(1), SingleProcess())
        return training

    with monkeypatch.context() as patch:
        patch.setattr(gb.Booster, "start_training", start_both)
        gb.train(params, gb.DMatrix(X, y), 3, resume_from=tmp_path)
    resumed = gb.train(params, gb.DMatrix(X, y), 6, resume_from=tmp_path)
    assert digest(resumed.model) == digest(gb.train(params, gb.DMatrix(X, y), 6).model)


def test_a_sparse_table_is_known_again_on_another_device(tmp_path, use_backend):
    """Where its cells take four bytes each; in host memory two may do."""
    X, y = make_table()
    params, table = {"max_depth": 2, "max_bin": 16}, np.zeros((60, 40), np.float32)
    table[np.arange(60), np.arange(60) % 40] = X[:60, 0]
    data = [gb.DMatrix(scipy.sparse.csr_matrix(table), y[:60]) for _ in range(2)]
    expected = gb.train(params, data[0], 2)
    gb.train(params, data[0], 1, resume_from=tmp_path)
    assert data[0].any_binned().is_sparse
    use_backend(CudaBackend(SimulatedDevice()))
    assert digest(gb.train(params, data[1], 2, resume_from=tmp_path).model) == digest(expected.model)


@pytest.mark.parametrize("absent", ["missing", "zero"])
def test_a_sparse_table_is_known_again_however_it_was_binned(absent, tmp_path, monkeypatch):
    """With column blocks kept beside it, and once they have been walked; but not one of other codes."""
    X, y = make_table()
    params, table = {"max_depth": 3, "max_bin": 16}, scipy.sparse.csr_matrix(np.where(X > 0, X, 0))
    data = gb.DMatrix(table, y, sparse_absent=absent)
    expected = gb.train(params, data, 6)
    gb.train(params, data, 3, resume_from=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("gpuboost.data.columns.SEARCHED_BINS", 0)
        again = gb.DMatrix(table, y, sparse_absent=absent)
        assert digest(gb.train(params, again, 6, resume_from=tmp_path).model) == digest(expected.model)
        assert again.any_binned().sorted_columns is not None and data.any_binned().sorted_columns is None
    with pytest.raises(ValueError, match="values of data was"):
        gb.train(params, gb.DMatrix(table[::-1], y, sparse_absent=absent), 6, resume_from=tmp_path)


def test_a_callbacks_own_memory_is_kept(tmp_path):
    class Sum(TrainingCallback):
        kept = ("total",)

        def before_training(self, model):
            self.total = 0.0
            return model

        def after_iteration(self, model, epoch, evals_log):
            self.total += evals_log["other"]["mlogloss" if "mlogloss" in evals_log["other"] else "rmse"][-1]
            return False

    train("dart", callbacks=[expected := Sum()])
    with pytest.raises(RuntimeError):
        train("dart", tmp_path, callbacks=[Sum(), Fail(7)])
    train("dart", tmp_path, callbacks=[resumed := Sum()])
    assert resumed.total == expected.total


# ---- the folder


def test_the_last_two_checkpoints_are_kept(tmp_path):
    train("sampled", tmp_path / "new" / "folder", 9)
    names = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert names == ["checkpoint-00000008.json", "checkpoint-00000009.json"]


def test_checkpoints_stay_in_their_folder_wherever_a_callback_goes(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    class Go(TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            os.chdir(tmp_path / "elsewhere")
            return False

    train("sampled", "kept", 4, callbacks=[Go()])
    assert len(os.listdir(tmp_path / "kept")) == 2


@pytest.mark.parametrize("damage", [lambda text: text[:-20], lambda text: b"", lambda text: text.replace(b"rmse", b"rmsf")])
def test_a_damaged_checkpoint_is_passed_over(damage, tmp_path):
    train("sampled", tmp_path, 8)
    last = tmp_path / "checkpoint-00000008.json"
    last.write_bytes(damage(last.read_bytes()))
    (tmp_path / ".gpuboost-half").write_bytes(b"left by a kill")
    assert digest(train("sampled", tmp_path)[0].model) == digest(train("sampled")[0].model)
    assert not (tmp_path / ".gpuboost-half").exists()


def test_a_training_whose_checkpoints_are_all_damaged_says_that_it_begins_anew(tmp_path):
    train("sampled", tmp_path, 4)
    for path in tmp_path.iterdir():
        path.write_bytes(b"nothing")
    with pytest.warns(UserWarning, match="holds no checkpoint that is whole. The training begins anew"):
        booster = train("sampled", tmp_path)[0]
    assert digest(booster.model) == digest(train("sampled")[0].model)


def test_other_data_or_parameters_are_refused_by_name(tmp_path):
    X, y = make_table()
    params = {"max_depth": 3, "eta": 0.5}
    call = lambda params, *data, **options: gb.train(params, gb.DMatrix(*data), 4, resume_from=tmp_path, **options)  # noqa: E731
    call(params, X, y)
    other = X.copy()
    other[0, 0] += 1
    for arguments, options, message in (
        (({**params, "max_depth": 4}, X, y), {}, "max_depth of parameters was 3, is 4"),
        ((params, X, y + 1), {}, "labels of data was .*…, is "),
        ((params, other, y), {}, "values of data was .*…, is "),
        ((params, X[:-1], y[:-1]), {}, "rows of data was 200, is 199"),
        ((params, X, y), {"early_stopping_rounds": 3, "evals": [(gb.DMatrix(X, y), "e")]}, "evaluation set 'e' is new"),
    ):
        with pytest.raises(ValueError, match="holds the checkpoint of another training: .*" + message):
            call(*arguments, **options, verbose_eval=False)
    assert call(params, X, y).num_boosted_rounds() == 4


def test_a_full_disk_warns_and_the_training_goes_on(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_file", full)
    with pytest.warns(UserWarning, match="checkpoint of round 2 could not be written .*No space left.* Training goes on"):
        booster, _ = train("sampled", tmp_path)
    assert digest(booster.model) == digest(train("sampled")[0].model)


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint.os, "access", lambda *_: False)  # the superuser may write anywhere
    with pytest.raises(PermissionError, match="resume_from='.*' cannot be written. Name a folder that can"):
        train("sampled", tmp_path)
    assert not list(tmp_path.iterdir())


# ---- kills

PROGRAM = """
import os, random, signal, sys, threading
sys.path[:0] = {path!r}
import test_resume

def run(case, folder, seed, seconds):
    signal.alarm(300)
    choice = random.Random(int(seed))
    kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    if choice.random() < 0.5:  # in the middle of writing a checkpoint
        name, left = choice.choice(["fsync", "replace", "unlink"]), choice.randrange(1, 6)
        original = getattr(os, name)
        def counted(*arguments):
            nonlocal left
            left -= 1
            kill() if left == 0 else None
            return original(*arguments)
        setattr(os, name, counted)
    else:
        test_resume.train(case, None, 2)  # kernels are loaded
        threading.Timer(choice.random() * float(seconds), kill).start()
    booster, _ = test_resume.train(case, folder)
    os.write(1, (test_resume.digest(booster.model) + "\\n").encode())  # all of it or nothing
    kill()

if os.environ["NUMBA_THREADING_LAYER"] == "workqueue":  # its threads come back in a fork
    for case in test_resume.CASES:
        test_resume.train(case, None, 2)
for line in sys.stdin:
    if (child := os.fork()) == 0:
        run(*line.rstrip("\\n").split("\\t"))
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("n_kills, layer", [(2, "omp"), pytest.param(100, "workqueue", marks=pytest.mark.slow)])
def test_kills_at_any_moment(n_kills, layer, tmp_path):
    """Each in a process of its own, forked from one that has imported everything."""
    program = PROGRAM.format(path=[str(Path(__file__).parent), str(Path(gb.__file__).parents[1])])
    expected = {case: digest(train(case)[0].model) for case in CASES}
    start = time.perf_counter()
    train("classes", tmp_path / "once")
    choice, seconds = random.Random(5), time.perf_counter() - start
    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "NUMBA_THREADING_LAYER": layer},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as parent:  # fmt: skip
        for seed in range(n_kills):
            case = choice.choice(list(CASES))
            folder = tmp_path / case
            print(case, folder, seed, 1.5 * seconds, sep="\t", file=parent.stdin, flush=True)
            *printed, end = read_answer(parent.stdout)
            assert end == f"ended {-signal.SIGKILL}"
            assert printed in ([], [expected[case]])
            if printed or choice.random() < 0.2:  # it ends here; begin anew
                assert digest(train(case, folder)[0].model) == expected[case]
                for path in folder.iterdir():
                    path.unlink()
        parent.stdin.close()
    for case in CASES:
        assert digest(train(case, tmp_path / case)[0].model) == expected[case]


def read_answer(lines):
    """Lines up to the one that says how a child ended."""
    answer = [next(lines).strip()]
    while not answer[-1].startswith("ended"):
        answer.append(next(lines).strip())
    return answer


def test_checkpoints_are_plain_text(tmp_path):
    """No pickle: a folder from elsewhere runs no code."""
    train("sampled", tmp_path, 2)
    stamp, text = (tmp_path / "checkpoint-00000002.json").read_bytes().split(b"\n", 1)
    assert set(json.loads(text)) == {"description", "progress"} and len(stamp) == 64
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(text)
    assert os.listdir(tmp_path) == ["checkpoint-00000002.json"]


def test_callbacks_that_remember_nothing_may_come_and_go(tmp_path):
    expected, _ = train("classes", rounds=40)
    X, y = make_table()
    data, other = gb.DMatrix(X, y), gb.DMatrix(X[:50], y[::-1][:50])
    schedule = LearningRateScheduler([0.5 / (1 + epoch) for epoch in range(50)])

    def go_on(*first):
        params = {"max_depth": 3, "max_bin": 16, "seed": 3, **CASES["classes"]}
        callbacks = [*first, schedule, EarlyStopping(rounds=9, min_delta=0.001)]
        return gb.train(
            params, data, 40, evals=[(data, "train"), (other, "other")], verbose_eval=False, callbacks=callbacks,
            resume_from=tmp_path, checkpoint_interval=2,
        )  # fmt: skip

    with pytest.raises(RuntimeError):
        go_on(Fail(expected.best_iteration + 2), TrainingCallback())
    booster = go_on()
    assert digest(booster.model) == digest(expected.model) and booster.attributes() == expected.attributes() != {}


def test_what_cannot_be_gone_on_with_is_refused(tmp_path):
    train("sampled", tmp_path, 5)
    with pytest.raises(ValueError, match="num_boost_round must be at least the 5 rounds in resume_from=.*, got 3"):
        train("sampled", tmp_path, 3)
    with pytest.raises(ValueError, match="custom_metric"):
        train("sampled", tmp_path, custom_metric=lambda prediction, data: ("zero", 0.0))
    with pytest.raises(ValueError, match="callbacks"):
        train("sampled", tmp_path, callbacks=[EarlyStopping(rounds=3)])
    (tmp_path / "file").write_text("")
    for folder in ("", tmp_path / "file"):
        with pytest.raises(NotADirectoryError, match="resume_from must name a folder"):
            train("sampled", folder)
    for interval, error in (("3", TypeError), (2.5, TypeError), (0, ValueError)):
        with pytest.raises(error, match="checkpoint_interval must be"):
            train("sampled", tmp_path, checkpoint_interval=interval)
