"""Checkpoints of a training in a folder: what it takes to go on after a kill as if there had been none.

A checkpoint holds the rounds so far, the evaluations, what the callbacks have seen, and what the training was started with. The
random choices of a round have no state, and margins are rebuilt from the trees in their order: so the rest of the training gives
the same model, byte for byte.

    <folder>/checkpoint-00000040.json      SHA-256 of what follows, a line break, a JSON document

A file appears whole or not at all (written beside it, brought to the disk, renamed), and the last KEPT are kept. One that is
damaged all the same is passed over for the one before it.
"""

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import index
from typing import Any, Protocol

from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import Array, SparsePage
from gpuboost.communicator import current_communicator
from gpuboost.config import warn
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.tables.device import host_array
from gpuboost.model_io import dumps
from gpuboost.paths import as_path, write_file

__all__ = ["Checkpoints", "KeepsProgress", "Progress", "anywhere", "describe_training"]

KEPT = 2
ANYWHERE = {"device", "nthread", "verbosity", "validate_parameters", "histogram_memory"}  # parameters that no model depends on
Description = dict[str, dict[str, Any]]  # what a training is started with: part → name → value


@dataclass(frozen=True)
class Progress:
    """How far a training has come. states : of its callbacks. is_over : whether a callback has stopped it."""

    n_rounds: int
    params: dict[str, Any]
    model: bytes
    evals_log: dict[str, dict[str, list[Any]]]
    states: list[dict[str, Any]]
    is_over: bool = False


class KeepsProgress(Protocol):
    """Where the rounds of a training are kept."""

    def load(self, most_rounds: int) -> Progress | None:
        """What the training goes on from; None: from the beginning."""

    def is_due(self, n_rounds: int) -> bool:
        """Whether to save after so many rounds. The last round is saved in any case."""

    def save(
        self, model: Any, n_rounds: int, evals_log: dict[str, dict[str, list[Any]]], states: list[dict[str, Any]], is_over: bool
    ) -> None:  # fmt: skip
        """Keep a training that has come so far; the names are Progress's, but model, which is the Booster."""


class Checkpoints:
    """The checkpoints of one training. Workers share the folder; the first one writes.

    folder : made where there is none. interval : rounds from one to the next.
    Raises OSError where the folder cannot be made or written, TypeError or ValueError for a wrong interval.
    """

    def __init__(self, folder: str | os.PathLike[str], interval: int, description: Description) -> None:
        try:
            interval = index(interval)
        except TypeError:
            raise TypeError(f"checkpoint_interval must be an integer, got {interval!r}. Use 10 for a start.") from None
        if interval < 1:
            raise ValueError(f"checkpoint_interval must be at least 1, got {interval}. Use 10 for a start.")
        name = as_path("resume_from", folder)
        if not name or os.path.isfile(name):
            raise NotADirectoryError(f"resume_from must name a folder, got {name!r}. Use a new one for a training.")
        self._folder = os.path.abspath(name)  # a callback may go to another one
        self._interval, self._description = interval, _plain(description)
        self._is_writer = current_communicator().rank == 0
        if self._is_writer:
            os.makedirs(self._folder, exist_ok=True)
            self._remove(name for name in os.listdir(self._folder) if name.startswith(".gpuboost-"))  # left by a kill
            if not os.access(self._folder, os.W_OK):
                raise PermissionError(f"resume_from={self._folder!r} cannot be written. Name a folder that can.")

    def load(self, most_rounds: int) -> Progress | None:
        """The last checkpoint that every worker can read; None where there is none.

        Raises ValueError, naming what differs, where it is of other data or parameters, or of more rounds.
        """
        comm = current_communicator()
        numbers = self._numbers()
        found = {number: document for number in numbers if (document := self._read(number)) is not None}
        if numbers and not found:
            warn(f"resume_from={self._folder!r} holds no checkpoint that is whole. The training begins anew.")
        last = min(comm.allgather_int(max(found, default=0)))
        if last not in found:
            return None
        document = found[last]
        if differs := _differences(document["description"], self._description):
            raise ValueError(
                f"resume_from={self._folder!r} holds the checkpoint of another training: {'; '.join(differs)}. "
                "Use what it was started with, or another folder."
            )
        if last > most_rounds:
            raise ValueError(
                f"num_boost_round must be at least the {last} rounds in resume_from={self._folder!r}, got {most_rounds}. "
                "Use another folder for a shorter training."
            )
        return Progress(**{**document["progress"], "model": base64.b64decode(document["progress"]["model"])})

    def is_due(self, n_rounds: int) -> bool:
        return n_rounds % self._interval == 0

    def save(
        self, model: Any, n_rounds: int, evals_log: dict[str, dict[str, list[Any]]], states: list[dict[str, Any]], is_over: bool
    ) -> None:  # fmt: skip
        """Write a checkpoint. Where that fails, as on a full disk, a UserWarning says so, and the training goes on."""
        raw = dumps(model.model, "ubj")
        if not self._is_writer:
            return
        progress = Progress(n_rounds, model._recorded_params(), raw, evals_log, states, is_over)
        values = {**vars(progress), "model": base64.b64encode(raw).decode()}
        text = json.dumps({"description": self._description, "progress": values}, default=_as_number).encode()
        try:
            write_file(self._path(progress.n_rounds), hashlib.sha256(text).hexdigest().encode() + b"\n" + text, is_durable=True)
            self._remove(map(self._name, sorted(self._numbers())[:-KEPT]))
        except OSError as error:
            warn(f"the checkpoint of round {progress.n_rounds} could not be written ({error}). Training goes on.")

    def _numbers(self) -> list[int]:
        names = os.listdir(self._folder) if os.path.isdir(self._folder) else []
        digits = [name.removeprefix("checkpoint-").removesuffix(".json") for name in names]
        return [int(text) for name, text in zip(names, digits) if text.isdecimal() and name == self._name(int(text))]

    def _name(self, number: int) -> str:
        return f"checkpoint-{number:08}.json"

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, self._name(number))

    def _read(self, number: int) -> dict[str, Any] | None:
        try:
            with open(self._path(number), "rb") as file:
                stamp, _, text = file.read().partition(b"\n")
        except FileNotFoundError:  # another worker, or another process, has removed it
            return None
        return json.loads(text) if stamp == hashlib.sha256(text).hexdigest().encode() else None

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, name))


def anywhere(params: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the parameters that a resumed training may have anew."""
    return {name: value for name, value in params.items() if name in ANYWHERE}


def describe_training(
    params: Mapping[str, Any], dtrain: DMatrix, table: BinnedMatrix | None, evals: Sequence[tuple[DMatrix, str]],
    xgb_model: bytes | None, **arguments: Any,
) -> Description:  # fmt: skip
    """What decides over a training's model, in numbers and digests.

    params : recorded ones. table : the codes of dtrain that the training holds, if it reads codes. xgb_model : file of the model
    to continue. Of several workers' rows only the number is told: how they are shared out does not matter. Of evaluation sets,
    which no model depends on, the values are not looked at.
    """
    return {
        "parameters": {name: value for name, value in params.items() if name not in ANYWHERE},
        "data": {**_describe_matrix(dtrain), "values": _digest_values(dtrain, table)},
        **{f"evaluation set {name!r}": _describe_matrix(matrix) for matrix, name in evals},
        "arguments": {**arguments, "xgb_model": None if xgb_model is None else _digest(xgb_model)},
    }


def _describe_matrix(dmatrix: DMatrix) -> dict[str, Any]:
    comm = current_communicator()
    facts = {
        "rows": sum(comm.allgather_int(dmatrix.num_row())), "columns": dmatrix.num_col(), "feature_names": dmatrix.feature_names,
        "feature_types": dmatrix.feature_types,
    }  # fmt: skip
    if comm.size > 1:
        return facts
    margins = dmatrix.base_margins
    arrays = {
        "labels": dmatrix.labels, "weights": dmatrix.weights, "base_margin": margins,
        "feature_weights": dmatrix.get_float_info("feature_weights"),
    }  # fmt: skip
    if dmatrix.has_label and dmatrix.has_bounds:
        arrays["bounds"] = dmatrix.labels_for(2)
    if dmatrix.queries.is_given:
        arrays["queries"] = dmatrix.queries.first
    return {**facts, **{name: _digest(b"" if array is None else array.tobytes()) for name, array in arrays.items()}}


def _digest_values(dtrain: DMatrix, table: BinnedMatrix | None) -> str | None:
    """Of the codes that a training reads, of a dense table by column, so that pages do not matter; not of several workers."""
    if current_communicator().size > 1:
        return None
    if table is None:  # gblinear reads values
        values = dtrain.get_data()
        return _digest(values.indptr.tobytes() + values.indices.tobytes() + values.data.tobytes())
    digest = hashlib.sha256(table.cuts.thresholds.tobytes())
    for array in _arrays_of(table):
        digest.update(host_array(array).tobytes())
    return digest.hexdigest()


def _arrays_of(table: BinnedMatrix) -> Iterator[Array]:
    if table.is_sparse:
        for page in table.pages:
            assert isinstance(page, SparsePage)
            yield from (page.row_begin, host_array(page.cells).astype("int32", copy=False), page.absent)  # as on a device
    else:
        yield from table.dense_columns()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _plain(description: Description) -> Description:
    """As it comes back from JSON."""
    return json.loads(json.dumps(description, default=_as_number))


def _as_number(value: Any) -> Any:
    """NumPy's numbers and arrays, for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r:.60} cannot be kept in a checkpoint.")


def _differences(before: Description, now: Description) -> list[str]:
    """What was started with one value and is now another, in words."""
    found = []
    for part in dict.fromkeys([*before, *now]):
        then, given = before.get(part), now.get(part)
        if then is None or given is None:
            found.append(f"{part} is {'new' if then is None else 'missing'}")
            continue
        for name in dict.fromkeys([*then, *given]):
            if then.get(name) != given.get(name):
                found.append(f"{name} of {part} was {_short(then.get(name))}, is {_short(given.get(name))}")
    return found


def _short(value: Any) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) == 64 else f"{value!r:.60}"
