"""Private folders go away with their process, however it ends; those of others stay."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuboost.storage.folder import PREFIX, PrivateFolder, reclaim
from gpuboost.storage.shelf import Shelf

ROOT = Path(__file__).parents[2]
OWNER = """
import sys
from gpuboost.storage.folder import PrivateFolder
folder = PrivateFolder(sys.argv[1])
open(folder.file("x"), "w").write("values")
print("ready", flush=True)
sys.stdin.readline()
"""


def start_owner(parent):
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def folders(parent):
    return sorted(name for name in os.listdir(parent) if name.startswith(PREFIX))


def test_a_folder_goes_away_with_who_has_it(tmp_path):
    folder = PrivateFolder(str(tmp_path))
    assert folders(tmp_path) == [os.path.basename(folder.path)]
    del folder
    gc.collect()
    assert folders(tmp_path) == []


def test_a_folder_of_a_running_process_is_left_alone_and_goes_away_at_its_exit(tmp_path):
    process = start_owner(tmp_path)
    (theirs,) = folders(tmp_path)
    own = PrivateFolder(str(tmp_path))
    assert len(folders(tmp_path)) == 2 and os.listdir(tmp_path / theirs) == ["x"]
    own.remove()
    assert folders(tmp_path) == [theirs]
    process.communicate("\n")
    assert process.returncode == 0 and folders(tmp_path) == []


@pytest.mark.parametrize("times", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_what_a_killed_process_has_left_is_removed_when_the_next_folder_is_made(tmp_path, times):
    for _ in range(times):
        process = start_owner(tmp_path)
        assert len(folders(tmp_path)) == 1  # its own: what the one before has left is gone
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert len(folders(tmp_path)) == 1
    own = PrivateFolder(str(tmp_path))
    assert folders(tmp_path) == [os.path.basename(own.path)]


def test_a_folder_that_another_process_removes_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    mkdir, made = os.mkdir, []

    def make_and_lose(path, mode):
        mkdir(path, mode)
        made.append(path)
        if len(made) == 1:
            reclaim(str(tmp_path))  # as another process that makes a folder there now

    monkeypatch.setattr(os, "mkdir", make_and_lose)
    folder = PrivateFolder(str(tmp_path))
    assert [folder.path] == made[1:] and folders(tmp_path) == [os.path.basename(folder.path)]


def test_other_files_beside_it_stay(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / f"{PREFIX}note").write_text("a file, not a folder of ours")
    PrivateFolder(str(tmp_path / "new" / "parent")).remove()
    PrivateFolder(str(tmp_path)).remove()
    assert (tmp_path / "mine").exists() and (tmp_path / "new" / "parent").exists()


def test_a_child_that_was_forked_leaves_the_folder_to_its_parent(tmp_path):
    folder = PrivateFolder(str(tmp_path))
    child = os.fork()
    if child == 0:
        folder.remove()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.path.exists(folder.path)


def test_a_shelf_makes_a_folder_only_once_memory_is_used_up(tmp_path):
    import numpy as np

    shelf = Shelf(100, str(tmp_path))
    (held,) = shelf.put(np.zeros((2, 50), np.uint8))
    assert held.is_held and folders(tmp_path) == []
    (filed,) = shelf.put(np.ones((2, 1), np.uint8))
    assert not filed.is_held and len(folders(tmp_path)) == 1 and shelf.bytes_in_files == filed.bytes_written
    assert filed.read().tolist() == [[1], [1]]
    del shelf, filed
    gc.collect()
    assert folders(tmp_path) == []
