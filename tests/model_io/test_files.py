"""Model files: bytes, digest, and what happens on disk."""

import hashlib
import json
import os

import numpy as np
import pytest
from random_models import random_model

from gpuboost.errors import ModelFormatError
from gpuboost.model_io import digest, dumps, load_model, save_model
from gpuboost.model_io.files import MAX_FILE_BYTES
from gpuboost.model_io.schema import shortest_decimals


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
    extremes = np.array([0.1, -0.0, 1e-45, 1.17549435e-38, 3.4028235e38, 16777216], np.float32)
    values = np.concatenate([extremes, bits[np.isfinite(bits)]])
    text = json.dumps(shortest_decimals(values))
    assert text.startswith("[0.1, -0.0, 1e-45, ")
    assert np.array(json.loads(text), np.float32).tobytes() == values.tobytes()


@pytest.mark.parametrize("make", [
    lambda rng: rng.normal(size=20000) * 10.0 ** rng.integers(-16, 16, 20000),
    lambda rng: rng.integers(0, 2**24, 20000) * 2.0 ** rng.integers(-24, 12, 20000),  # halfway between decimals, too
    lambda rng: np.round(100 * rng.normal(size=20000), 2), lambda rng: 2.0 ** rng.integers(-100, 100, 2000),
], ids=["any", "of two", "of ten", "powers"])  # fmt: skip
def test_decimals_are_those_of_numpys_text(make):
    values = make(np.random.default_rng(0)).astype(np.float32)
    assert shortest_decimals(values) == [float(text) for text in map(str, values)]


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


def test_suffix_decides_the_format(tmp_path):
    model = random_model(0)
    save_model(model, tmp_path / "m.json")
    save_model(model, str(tmp_path / "m.ubj"))
    for name in ("m.model", "m"):
        with pytest.warns(UserWarning, match=f"'{name}' is saved as UBJSON. End its name in .ubj or .json"):
            save_model(model, tmp_path / name)
        assert (tmp_path / name).read_bytes() == dumps(model, "ubj")
    assert (tmp_path / "m.json").read_bytes() == dumps(model, "json")
    assert (tmp_path / "m.ubj").read_bytes() == dumps(model, "ubj")


def test_content_decides_how_a_file_is_read(tmp_path):
    model = random_model(0)
    for raw_format, name in (("json", "m.ubj"), ("ubj", "m.json")):
        data = dumps(model, raw_format)
        (tmp_path / name).write_bytes(data)
        for source in (tmp_path / name, str(tmp_path / name), data, bytearray(data), memoryview(data)):
            assert load_model(source) == model


def test_unknown_format_is_refused():
    with pytest.raises(ValueError, match="raw_format must be 'ubj' or 'json', got 'deprecated'"):
        dumps(random_model(0), "deprecated")


def test_digest_is_that_of_json_whatever_was_read():
    model = random_model(0)
    assert digest(load_model(dumps(model, "ubj"))) == digest(model)


@pytest.mark.parametrize("n_bytes", [MAX_FILE_BYTES + 1, 1 << 42])
def test_too_long_a_file_is_refused_before_it_is_read(tmp_path, n_bytes):
    with open(tmp_path / "m.json", "wb") as file:
        file.truncate(n_bytes)  # a hole: no byte is written
    with pytest.raises(ModelFormatError, match=f"has {n_bytes} bytes, more than the {MAX_FILE_BYTES}"):
        load_model(tmp_path / "m.json")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder. Name a model file in it"):
        load_model(tmp_path)


def test_file_without_a_size_is_refused():
    with pytest.raises(ModelFormatError, match="/dev/zero' is not a regular file"):
        load_model("/dev/zero")


def test_numbers_that_could_not_be_read_back_are_not_written():
    model = random_model(0)
    model.trees[0].leaf_value[-1] = np.inf
    for raw_format in ("json", "ubj"):
        with pytest.raises(ValueError):
            dumps(model, raw_format)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe\xfa", b"binf", b"nonsense", b"[" * 100000, b'{"a":' * 100000, b"1" * 5000, b"null"]
)
def test_what_is_not_json_is_a_format_error(data):
    with pytest.raises(ModelFormatError):
        load_model(data)


def test_old_binary_files_are_called_by_their_name():
    with pytest.raises(ModelFormatError, match="XGBoost's old binary format. Load it in XGBoost 3.0 or older, and save it as"):
        load_model(b"binf" + bytes(100))


def test_names_in_capitals_choose_the_format_too(tmp_path):
    for name, begin in {"m.JSON": b'{"', "m.Ubj": b"{L"}.items():
        save_model(random_model(0), tmp_path / name)
        assert (tmp_path / name).read_bytes()[:2] == begin


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_truncated_file_is_a_format_error(raw_format):
    data = dumps(random_model(0, n_rounds=1), raw_format)
    for size in range(0, len(data), 7):
        with pytest.raises(ModelFormatError):
            load_model(data[:size])


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_names_with_any_character_are_kept(raw_format):
    model = random_model(0)
    model.feature_names = ["é", "\x01\n", "\ud800", '\\"\u2028']
    assert load_model(dumps(model, raw_format)) == model
