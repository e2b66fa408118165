"""Model files: bytes, digest, save and load."""

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from gpuboost.errors import ModelFormatError, not_built
from gpuboost.model_io.schema import from_document, to_document
from gpuboost.tree.model import Model

__all__ = ["digest", "dumps", "load_model", "save_model"]


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write the model to a file whose suffix, .json, names the format.

    The file appears whole or not at all: it is written beside the target under another name, then moved over it.

    Raises ValueError for another suffix, NotImplementedError for .ubj, and OSError where the file cannot be written.
    """
    path = Path(path)
    if path.suffix == ".ubj":
        raise not_built("The UBJSON model format", "Save as .json.")
    if path.suffix != ".json":
        raise ValueError(f"The suffix of a model file must be .json, got {path.name!r}. Use model.json, for example.")
    data = dumps(model)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def load_model(source: str | os.PathLike[str] | bytes | bytearray) -> Model:
    """Read a model from a file, or from the bytes of one. The content tells the format, not the name.

    Raises ModelFormatError where it is not a valid model, NotImplementedError where it holds something gpuboost does not
    have yet (UBJSON, for one), and OSError where the file cannot be read.
    """
    data = bytes(source) if isinstance(source, (bytes, bytearray)) else Path(source).read_bytes()
    if data[:1] == b"{" and data[1:2] in (b"L", b"l", b"I", b"i", b"U", b"$", b"#"):  # a length, where JSON has a quote or space
        raise not_built("The UBJSON model format", "Save as .json.")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"document: not JSON: {error}.") from None
    return from_document(document)


def dumps(model: Model) -> bytes:
    """The model as the bytes of its JSON file. Equal models give equal bytes: keys are sorted and no space varies."""
    # Raw UTF-8, because XGBoost does not decode \u escapes. "surrogatepass" is what json.loads undoes.
    text = json.dumps(to_document(model), default=_to_list, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def digest(model: Model) -> str:
    """SHA-256 of the saved model, in hexadecimal: equal digests, equal models."""
    return hashlib.sha256(dumps(model)).hexdigest()


def _to_list(array: Any) -> list[Any]:
    """An array as Python numbers; float32 as the shortest decimals that give the same float32 (0.1, not 0.10000000149)."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{type(array).__name__} cannot be stored in a model file.")
    if array.dtype != np.float32:
        return array.tolist()
    shortest = np.array([float(text) for text in map(str, array)])
    return np.where(shortest.astype(np.float32) == array, shortest, array).tolist()
