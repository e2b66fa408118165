"""paths.py: what is pointed at is written, whatever it is, and regular files whole or not at all; paths are no numbers."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.cli import main
from gpuboost.paths import as_path, write_file

ROOT = Path(__file__).parents[1]
X = np.arange(40.0, dtype=np.float32).reshape(20, 2)
OLD, NEW = b"old content", b"new"

posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    return path


@pytest.fixture(scope="module")
def booster():
    return gb.train({"max_depth": 2}, gb.DMatrix(X, X[:, 0]), 2, verbose_eval=False)


def in_a_child(code, *command):
    return subprocess.run([*command, sys.executable, "-c", f"from gpuboost.paths import write_file\n{code}"], cwd=ROOT).returncode


def test_a_new_file_is_as_open_makes_it(file, tmp_path):
    write_file(str(tmp_path / "new"), NEW)
    assert (tmp_path / "new").read_bytes() == NEW and sorted(os.listdir(tmp_path)) == ["file", "new"]
    assert (tmp_path / "new").stat().st_mode == file.stat().st_mode


@posix
def test_links_are_written_through_and_stay(file, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to("../file")
    (tmp_path / "second").symlink_to(tmp_path / "folder" / "link")
    write_file(str(tmp_path / "second"), NEW)
    assert file.read_bytes() == NEW and not file.is_symlink()
    assert (tmp_path / "second").is_symlink() and (tmp_path / "folder" / "link").is_symlink()


@posix
def test_a_link_to_nothing_gets_its_file(tmp_path):
    (tmp_path / "link").symlink_to("target")
    write_file(str(tmp_path / "link"), NEW)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == NEW


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_the_mode_stays(mode, file):
    file.chmod(mode)
    write_file(str(file), NEW)
    assert stat.S_IMODE(file.stat().st_mode) == mode and file.read_bytes() == NEW


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give a file away")
def test_the_owner_stays(file):
    os.chown(file, 1, 2)
    write_file(str(file), NEW)
    assert (file.stat().st_uid, file.stat().st_gid) == (1, 2) and file.read_bytes() == NEW


@posix
def test_all_names_of_a_file_see_what_is_written(file, tmp_path):
    os.link(file, tmp_path / "other")
    write_file(str(file), NEW)
    assert (tmp_path / "other").read_bytes() == NEW and file.samefile(tmp_path / "other")


@posix
def test_a_pipe_is_written_and_stays_one(tmp_path):
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_file(str(pipe), NEW)
    reader.join(10)
    assert received == [NEW] and stat.S_ISFIFO(pipe.stat().st_mode)


@posix
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system has no /proc")
def test_a_file_without_a_name_is_written_by_its_descriptor(file, tmp_path):
    with open(file, "rb") as opened:
        file.unlink()
        write_file(f"/proc/self/fd/{opened.fileno()}", NEW)
        assert opened.read() == NEW and os.listdir(tmp_path) == []


@pytest.mark.parametrize("length", [230, 255])
def test_names_may_be_as_long_as_the_file_system_allows(length, tmp_path):
    for content in (OLD, NEW):
        write_file(str(tmp_path / ("n" * length)), content)
        assert (tmp_path / ("n" * length)).read_bytes() == content


@posix
@pytest.mark.parametrize("during", ["replace", "open", "unlink"])
def test_a_killed_writer_leaves_the_old_content_or_the_new(during, file):
    """Killed before it has called that function of os; the last one it never calls."""
    kill = f"import os, signal; os.{during} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)"
    code = in_a_child(f"{kill}\nwrite_file({str(file)!r}, {NEW!r})")
    assert (code, file.read_bytes()) == ((0, NEW) if during == "unlink" else (-9, OLD))


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(error, file, tmp_path, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(type(error)):
        write_file(str(file), NEW)
    assert file.read_bytes() == OLD and os.listdir(tmp_path) == ["file"]


@posix
def test_an_interrupted_write_leaves_no_folder_open(file, monkeypatch):
    """Ctrl-C while the folder is brought to the disk."""
    opened, open_folder, bring = [], os.open, os.fsync

    def open_noted(*arguments, **options):
        opened.append(open_folder(*arguments, **options))
        return opened[-1]

    def bring_interrupted(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise KeyboardInterrupt
        bring(descriptor)

    monkeypatch.setattr(os, "open", open_noted)
    monkeypatch.setattr(os, "fsync", bring_interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(str(file), NEW, is_durable=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[-1])


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY], ids=errno.errorcode.get)
def test_what_can_be_written_but_not_replaced_is_written_in_place(number, file, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    before = file.stat().st_ino
    monkeypatch.setattr(os, "replace", refuse)
    write_file(str(file), NEW)
    assert file.read_bytes() == NEW and file.stat().st_ino == before and os.listdir(tmp_path) == ["file"]


@posix
def test_a_folder_that_cannot_be_written_does_not_matter_to_a_file_that_can(file, tmp_path):
    as_others = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []  # root may write anywhere, but for this
    if as_others and not shutil.which("setpriv"):
        pytest.skip("root may write anywhere, and setpriv is not here to change that")
    (tmp_path / "read_only").write_bytes(OLD)
    (tmp_path / "read_only").chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        for name, is_written in {"file": True, "read_only": False, "new": False}.items():
            code = in_a_child(f"write_file({str(tmp_path / name)!r}, {NEW!r})", *as_others)
            assert (code == 0) == is_written
    finally:
        tmp_path.chmod(0o755)
    assert file.read_bytes() == NEW and (tmp_path / "read_only").read_bytes() == OLD
    assert sorted(os.listdir(tmp_path)) == ["file", "read_only"]


@pytest.mark.parametrize("path", ["missing/file", "file/below", "."])
def test_errors_name_the_path_that_was_given(path, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError) as raised:
        write_file(path, NEW)
    assert raised.value.filename == path and os.listdir(tmp_path) == ["file"]


# -- All that writes a file


def save_estimator(booster, path):
    model = gb.GPUBoostRegressor()
    model.load_model(bytes(booster.save_raw()))
    model.save_model(path)


def check_point(booster, path):
    callback = gb.callback.TrainingCheckPoint(path.parent, path.name.partition("_")[0], interval=1)
    callback.before_training(gb.Booster())
    callback.after_iteration(booster, 1, {})


def command(name, *options):
    def run(booster, path):
        model, table = path.parent / "of_command.json", path.parent / "table.csv"
        booster.save_model(model)
        np.savetxt(table, X, delimiter=",", header="f0,f1", comments="")
        data = [str(table)] if name == "predict" else []
        assert main([name, *data, *options, "--model", str(model), "--output", str(path)]) == 0

    return run


@posix
@pytest.mark.parametrize(
    "name, write",
    [
        ("m.json", gb.Booster.save_model),
        ("m.ubj", gb.Booster.save_model),
        ("m.txt", gb.Booster.dump_model),
        ("m.json", save_estimator),
        ("m_1.ubj", check_point),
        ("d.dot", command("dump", "--format", "dot")),
        ("p.csv", command("predict")),
        ("p.parquet", command("predict")),
    ],
)
def test_whatever_writes_a_file_writes_through_links(name, write, booster, tmp_path):
    write(booster, tmp_path / name)
    expected = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("target")
    write(booster, tmp_path / name)
    assert (tmp_path / name).is_symlink() and (tmp_path / "target").read_bytes() == expected


# -- Paths


@posix
def test_a_tilde_is_the_home_folder(booster, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "table.libsvm").write_text("1 0:1\n0 1:2\n")
    booster.save_model(Path("~/model.json"))
    booster.dump_model("~/dump.txt")
    callbacks = [gb.callback.TrainingCheckPoint("~", interval=1)]
    gb.train({"max_depth": 2}, gb.DMatrix("~/table.libsvm"), 2, callbacks=callbacks, resume_from="~/kept")
    assert gb.Booster(model_file="~/model.json").save_raw() == booster.save_raw()
    assert gb.QuantileDMatrix(Path("~/table.libsvm")).num_row() == 2
    assert sorted(os.listdir(tmp_path)) == ["dump.txt", "kept", "model.json", "model_1.ubj", "table.libsvm"]


@posix
def test_a_tilde_is_the_home_folder_of_pages_too(tmp_path, monkeypatch):
    class Batches(gb.DataIter):
        def reset(self):
            self.is_done = False

        def next(self, input_data):
            if self.is_done:
                return False
            self.is_done = True
            input_data(data=X, label=X[:, 0])
            return True

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    matrices = [
        gb.ExtMemQuantileDMatrix(X, cache_memory=0, cache_folder="~/given"),
        gb.DMatrix(Batches(cache_prefix=Path("~/named/pages")), cache_memory=0),
    ]
    assert sorted(os.listdir(tmp_path)) == ["given", "named"] and all(data.num_row() == len(X) for data in matrices)


def test_text_bytes_and_path_objects_are_paths(tmp_path):
    assert as_path("file", tmp_path) == as_path("file", str(tmp_path)) == as_path("file", os.fsencode(tmp_path)) == str(tmp_path)


TAKES_A_PATH = {
    "Booster": lambda booster, fd: gb.Booster(model_file=fd),
    "load_model": lambda booster, fd: gb.Booster().load_model(fd),
    "save_model": lambda booster, fd: booster.save_model(fd),
    "dump_model": lambda booster, fd: booster.dump_model(fd),
    "get_dump": lambda booster, fd: booster.get_dump(fd),
    "train": lambda booster, fd: gb.train({}, gb.DMatrix(X, X[:, 0]), 1, xgb_model=fd),
    "load_model of an estimator": lambda booster, fd: gb.GPUBoostRegressor().load_model(fd),
    "fit": lambda booster, fd: gb.GPUBoostRegressor().fit(X, X[:, 0], xgb_model=fd),
    "TrainingCheckPoint": lambda booster, fd: gb.callback.TrainingCheckPoint(fd),
    "DMatrix": lambda booster, fd: gb.DMatrix(fd),
    "QuantileDMatrix": lambda booster, fd: gb.QuantileDMatrix(fd),
}


@pytest.mark.parametrize("use", TAKES_A_PATH.values(), ids=TAKES_A_PATH)
def test_a_number_is_not_taken_for_an_open_file(use, booster, file):
    with open(file, "rb+") as opened:
        with pytest.raises(TypeError, match=rf"must be .*got ({opened.fileno()}|int)\b"):
            use(booster, opened.fileno())
        assert opened.read() == OLD
