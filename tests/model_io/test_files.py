"""Model files: bytes, digest, and what happens on disk."""

import hashlib
import json
import os

import numpy as np
import pytest
from random_models import random_model

from gpuboost.errors import ModelFormatError
from gpuboost.model_io import digest, dumps, load_model, save_model
from gpuboost.model_io import files as files_module


def test_saved_file_is_dumps_and_loads_as_the_same_model(tmp_path):
    model = random_model(0)
    save_model(model, tmp_path / "model.json")
    data = (tmp_path / "model.json").read_bytes()
    assert data == dumps(model)
    assert load_model(tmp_path / "model.json") == load_model(str(tmp_path / "model.json")) == load_model(data) == model
    assert digest(model) == hashlib.sha256(data).hexdigest()


def test_bytes_do_not_depend_on_the_order_of_dict_entries():
    one, other = random_model(0), random_model(0)
    one.attributes, other.attributes = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}
    one.categories, other.categories = {"x": [1], "y": [2]}, {"y": [2], "x": [1]}
    assert dumps(one) == dumps(other)
    other.trees[0].leaf_value[-1] = np.nextafter(other.trees[0].leaf_value[-1], np.float32(9))
    assert digest(one) != digest(other)


def test_float32_is_written_in_the_shortest_decimals_that_round_trip():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    extremes = np.array([0.1, -0.0, 1e-45, 1.17549435e-38, 3.4028235e38, 16777216, np.inf, -np.inf], np.float32)
    values = np.concatenate([extremes, bits[np.isfinite(bits)]])
    text = json.dumps(files_module._to_list(values))
    assert text.startswith("[0.1, -0.0, 1e-45, ")
    assert np.array(json.loads(text), np.float32).tobytes() == values.tobytes()


def test_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "model.json"
    save_model(random_model(0), path)

    def no_space(*args):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(OSError, match="no space left"):
        save_model(random_model(1), path)
    assert os.listdir(tmp_path) == ["model.json"]
    assert load_model(path) == random_model(0)


def test_suffix_decides_what_can_be_saved(tmp_path):
    with pytest.raises(NotImplementedError, match="UBJSON.*Save as .json"):
        save_model(random_model(0), tmp_path / "model.ubj")
    for name in ("model.pkl", "model"):
        with pytest.raises(ValueError, match=r"must be \.json"):
            save_model(random_model(0), tmp_path / name)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe\xfa", b"binf", b"nonsense", b"[" * 100000, b'{"a":' * 100000, b"1" * 5000, b"null"]
)
def test_what_is_not_json_is_a_format_error(data):
    with pytest.raises(ModelFormatError):
        load_model(data)


def test_truncated_file_is_a_format_error():
    data = dumps(random_model(0, n_rounds=1))
    for size in range(0, len(data), 7):
        with pytest.raises(ModelFormatError):
            load_model(data[:size])


def test_names_with_any_character_are_kept():
    model = random_model(0)
    model.feature_names = ["é", "\x01\n", "\ud800", '\\"\u2028']
    assert load_model(dumps(model)) == model


def test_ubjson_is_named_when_read():
    with pytest.raises(NotImplementedError, match="UBJSON"):
        load_model(b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner")
