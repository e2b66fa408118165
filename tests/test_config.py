"""The global configuration: scopes, and which messages pass."""

import io
import os
import sys
import threading

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.backend import choose_backend
from gpuboost.config import config_context, get_config, log, set_config, verbosity_context, warn

REST = {"unseen_categories": "missing", "category_container": "gpuboost"}


@pytest.fixture(autouse=True)
def default_config():
    with config_context(verbosity=1, nthread=0, unseen_categories="missing"):
        yield


def test_defaults():
    assert get_config() == {"verbosity": 1, "nthread": 0, **REST}


def test_set_config_changes_what_is_named_and_none_changes_nothing():
    set_config(verbosity=3)
    set_config(nthread="2")
    assert get_config() == {"verbosity": 3, "nthread": 2, **REST}
    set_config(verbosity=None, nthread=-1)
    assert get_config() == {"verbosity": 3, "nthread": 0, **REST}


@pytest.mark.parametrize("nthread, n_threads", [(0, 8), (-1, 8), (-2, 7), (-8, 1), (-20, 1), (3, 3), (20, 8)])
def test_negative_numbers_of_threads_are_counted_from_all_as_joblib_does(nthread, n_threads, monkeypatch):
    monkeypatch.setattr("gpuboost.backend.available_threads", lambda: 8)
    assert choose_backend("cpu", nthread).n_threads == n_threads
    with config_context(nthread=nthread):
        assert choose_backend("cpu", None).n_threads == n_threads


def test_estimators_take_a_negative_n_jobs():
    X = np.arange(40.0).reshape(20, 2)
    model = gb.GPUBoostRegressor(n_estimators=2, n_jobs=-2, min_child_weight=0).fit(X, X[:, 0])
    assert np.ptp(model.predict(X)) > 0


def test_get_config_returns_a_copy():
    get_config()["verbosity"] = 3
    assert get_config()["verbosity"] == 1


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"verbosity": 4}, "verbosity must be between 0 and 3, got 4"),
        ({"nthread": 1.5}, "nthread .* must be"),
        ({"verbose": 2}, "unknown setting 'verbose'. Did you mean 'verbosity'?"),
        ({"unseen_categories": "drop"}, "unseen_categories must be 'missing' or 'error', got 'drop'"),
        ({"use_rmm": True}, "unknown setting 'use_rmm'. Use one of verbosity, nthread, unseen_categories, category_container."),
    ],
)
def test_refused_setting_changes_nothing(settings, message):
    with pytest.raises(ValueError, match=message):
        set_config(nthread=settings.pop("nthread", 2), **settings)
    assert get_config() == {"verbosity": 1, "nthread": 0, **REST}


def test_contexts_nest_and_end_even_when_an_error_leaves_them():
    with config_context(verbosity=2):
        with pytest.raises(KeyError), config_context(nthread=3):
            assert get_config() == {"verbosity": 2, "nthread": 3, **REST}
            set_config(verbosity=0)
            raise KeyError
        assert get_config() == {"verbosity": 2, "nthread": 0, **REST}
    assert get_config() == {"verbosity": 1, "nthread": 0, **REST}


def test_verbosity_context_of_none_keeps_the_level():
    set_config(verbosity=2)
    with verbosity_context(None):
        assert get_config()["verbosity"] == 2
    with verbosity_context(0):
        assert get_config()["verbosity"] == 0


def test_each_thread_has_its_own_configuration():
    set_config(verbosity=3)
    seen = []
    thread = threading.Thread(target=lambda: (seen.append(get_config()), set_config(verbosity=0)))
    thread.start()
    thread.join()
    assert seen == [{"verbosity": 1, "nthread": 0, **REST}]
    assert get_config()["verbosity"] == 3


@pytest.mark.parametrize("verbosity, shown", [(0, []), (1, [1]), (2, [1, 2]), (3, [1, 2, 3])])
def test_log_shows_messages_up_to_the_verbosity_on_stderr(verbosity, shown, capsys):
    with verbosity_context(verbosity):
        for level in (1, 2, 3):
            log(level, f"level {level}")
    out, err = capsys.readouterr()
    assert out == "" and err == "".join(f"[gpuboost] level {level}\n" for level in shown)


@pytest.mark.parametrize("stderr", [None, "closed", "broken"])
def test_a_message_that_nobody_can_read_is_dropped(stderr, capsys, monkeypatch):
    streams = {None: None, "closed": io.StringIO()}
    streams["closed"].close()
    if stderr == "broken":
        reader, writer = os.pipe()
        os.close(reader)
        streams["broken"] = io.TextIOWrapper(os.fdopen(writer, "wb", buffering=0), write_through=True)
    monkeypatch.setattr(sys, "stderr", streams[stderr])
    with verbosity_context(1):
        log(1, "unread")
    assert capsys.readouterr().out == ""


def test_warning_points_at_the_caller_and_is_silent_at_verbosity_0(recwarn):
    with verbosity_context(0):
        warn("unheard")
    assert not recwarn
    warn("heard")
    assert [(str(w.message), w.category, w.filename) for w in recwarn] == [("heard", UserWarning, __file__)]
