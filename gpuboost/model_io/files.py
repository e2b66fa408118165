"""Model files: bytes, digest, save and load."""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpuboost.config import get_config
from gpuboost.errors import ModelFormatError, from_other_library, kind_of
from gpuboost.model.model import Model
from gpuboost.model_io.schema import from_document, shortest_decimals, to_document
from gpuboost.model_io.strict_json import read_json
from gpuboost.model_io.ubjson import read_ubjson, write_ubjson
from gpuboost.output import warn_user
from gpuboost.paths import as_path, write_file

__all__ = ["MAX_FILE_BYTES", "digest", "dumps", "load_model", "save_model"]

MAX_FILE_BYTES = 4 << 30  # 4 GiB, some 40 million nodes as JSON. A longer file is refused before any of it is read


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write the model to a file: JSON where its name ends in .json, else UBJSON, as XGBoost does.

    Written by paths.write_file: a file appears whole or not at all.

    Warns (UserWarning, as XGBoost) where the name ends in neither .json nor .ubj. Raises OSError where the file cannot be
    written, TypeError for what is no path.
    """
    target, container = Path(as_path("fname", path)), get_config()["category_container"]
    suffix = target.suffix.lower()
    if suffix not in (".json", ".ubj"):
        warn_user(f"{target.name!r} is saved as UBJSON. End its name in .ubj or .json to choose.")
    write_file(str(target), dumps(model, "json" if suffix == ".json" else "ubj", container))


def load_model(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Model:
    """Read a model from a file, or from the bytes of one. The content tells JSON from UBJSON, not the name.

    Raises ModelFormatError where it is not a valid model or longer than MAX_FILE_BYTES, NotImplementedError where it holds
    something gpuboost does not have yet (see schema.from_document), OSError where the file cannot be read, and TypeError for
    what is neither path nor bytes.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        _check_size(memoryview(source).nbytes)
        data = bytes(source)
    else:
        if hint := from_other_library(source):
            raise TypeError(f"a model file must be given as a path or as bytes, got {kind_of(source)}.{hint}")
        path = as_path("a model file", source, "given as a path or as bytes")
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path!r} is a folder. Name a model file in it.")
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):  # a device or a pipe has no size to check
                raise ModelFormatError(f"document: {path!r} is not a regular file. Read it and pass the bytes.")
            _check_size(status.st_size)
            data = file.read()
    if data[:4] == b"binf":
        fix = "Load it in XGBoost 3.0 or older, and save it as .json or .ubj."
        raise ModelFormatError(f"document: XGBoost's old binary format. {fix}")
    # After the brace JSON has a quote or space. UBJSON has the type of a length, or of a counted object.
    is_ubjson = data[:1] == b"{" and data[1:2] in (b"L", b"l", b"I", b"i", b"U", b"$", b"#")
    return from_document(read_ubjson(data) if is_ubjson else read_json(data))


def _check_size(n_bytes: int) -> None:
    if n_bytes > MAX_FILE_BYTES:
        raise ModelFormatError(f"document: has {n_bytes} bytes, more than the {MAX_FILE_BYTES} that are read.")


def dumps(model: Model, raw_format: str = "json", category_container: str = "gpuboost") -> bytes:
    """The model as the bytes of its file, "json" or "ubj". Equal models give equal bytes: keys are sorted and no space varies.

    category_container : as in the configuration.

    The model comes back from both bit by bit. Rounds that another thread adds meanwhile are not among them.

    Raises ValueError for another format, and where the model holds numbers that are not finite.
    """
    model, fills_cats = model.rounds(0, model.n_rounds), category_container == "xgboost"
    if raw_format == "ubj":
        return write_ubjson(to_document(model, fills_cats))
    if raw_format != "json":
        raise ValueError(f"raw_format must be 'ubj' or 'json', got {raw_format!r}. Use 'ubj' for the smaller file.")
    # Raw UTF-8, because XGBoost does not decode \u escapes. "surrogatepass" is what reading undoes.
    document = to_document(model, fills_cats)
    _write_decimals(document)
    text = json.dumps(
        document, default=_to_list, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )  # fmt: skip
    return text.encode("utf-8", "surrogatepass")


def digest(model: Model) -> str:
    """SHA-256 of the model as JSON, in hexadecimal: equal digests, equal models."""
    return hashlib.sha256(dumps(model)).hexdigest()


def _write_decimals(document: dict[str, Any]) -> None:
    """Lists of decimals in place of its float32 arrays: of all trees at once, which are many and small."""
    found = list(_float_arrays(document))
    decimals = shortest_decimals(np.concatenate([holder[key] for holder, key in found])) if found else []
    begin = 0
    for holder, key in found:
        end = begin + len(holder[key])
        holder[key], begin = decimals[begin:end], end


def _float_arrays(value: dict[str, Any] | list[Any]) -> Iterator[tuple[Any, Any]]:
    """What holds each of them, and its key there."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, np.ndarray) and inner.dtype == np.float32:
            yield value, key
        elif isinstance(inner, (dict, list)):
            yield from _float_arrays(inner)


def _to_list(array: object) -> list:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{type(array).__name__} cannot be stored in a model file.")
    return shortest_decimals(array)
