"""Predictions of a collection, partition by partition, as another collection."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from distributed import Client, Future

from gpuboost.booster import Booster
from gpuboost.config import config_context, get_config
from gpuboost.dask.matrix import DaskDMatrix, Part, client_of, delayed_blocks, is_frame, synced
from gpuboost.data.dmatrix import DMatrix

__all__ = ["inplace_predict", "inplace_predict_rows", "predict"]

Model = Booster | Mapping[str, Any] | Future


def predict(
    client: Client | None, model: Model, data: Any, *, output_margin: bool = False, missing: float = nan, pred_leaf: bool = False,
    pred_contribs: bool = False, approx_contribs: bool = False, pred_interactions: bool = False, validate_features: bool = True,
    iteration_range: tuple[int, int] | None = (0, 0), strict_shape: bool = False,
) -> Any:  # fmt: skip
    """What Booster.predict says of each row: a dask array for an array or a DaskDMatrix; for a dataframe a series, or a frame of
    several columns, with its index. Nothing is computed yet.

    model : what train has returned, a Booster or a future of one. missing : of a table that is no DaskDMatrix.
    Raises ValueError for a dataframe where the prediction has more than two dimensions: use its array.
    """
    options = {
        "output_margin": output_margin, "pred_leaf": pred_leaf, "pred_contribs": pred_contribs,
        "approx_contribs": approx_contribs, "pred_interactions": pred_interactions, "iteration_range": iteration_range,
        "strict_shape": strict_shape,
    }  # fmt: skip
    used = client_of(client)
    return synced(used, _predict, model, data, missing, None, {**options, "validate_features": validate_features})


def inplace_predict(
    client: Client | None, model: Model, data: Any, *, iteration_range: tuple[int, int] | None = (0, 0),
    predict_type: str = "value", missing: float = nan, validate_features: bool = True, base_margin: Any = None,
    strict_shape: bool = False,
) -> Any:  # fmt: skip
    """predict of a dask array or dataframe. predict_type : "value", or "margin" for raw margins. base_margin : of the same
    partitions."""
    if isinstance(data, DaskDMatrix):
        raise TypeError("inplace_predict takes a dask array or dataframe, got a DaskDMatrix. Call predict.")
    if predict_type not in ("value", "margin"):
        raise ValueError(f"predict_type must be 'value' or 'margin', got {predict_type!r}.")
    used = client_of(client)
    return synced(
        used, inplace_predict_rows, model, data, predict_type == "margin", missing, base_margin, iteration_range,
        validate_features, strict_shape,
    )  # fmt: skip


async def inplace_predict_rows(
    model: Model, data: Any, is_margin: bool, missing: float, base_margin: Any, iteration_range: tuple[int, int] | None,
    validate_features: bool, strict_shape: bool = False,
) -> Any:  # fmt: skip
    options = {"output_margin": is_margin, "iteration_range": iteration_range, "strict_shape": strict_shape}
    return await _predict(model, data, missing, base_margin, {**options, "validate_features": validate_features})


async def _predict(model: Model, data: Any, missing: float, base_margin: Any, options: dict[str, Any]) -> Any:
    if isinstance(model, Future):
        model = await model
    booster: Booster = model["booster"] if isinstance(model, Mapping) else model  # type: ignore[assignment]
    if not isinstance(booster, Booster):
        raise TypeError(f"model must be what train has returned, a Booster or a future of one, got {type(model).__name__}.")
    row = np.zeros((1, booster.num_features()), np.float32)
    shape = booster.predict(DMatrix(row), **{**options, "validate_features": False}).shape[1:]
    sent = dask.delayed(booster, name=f"gpuboost-model-{uuid4().hex}", traverse=False)
    settings = get_config()
    if isinstance(data, DaskDMatrix):
        parts, arguments = data.delayed_parts(), data.prediction_arguments
        made = [dask.delayed(_predict_part)(sent, part, arguments, options, settings) for part in parts]
        arrays = [da.from_delayed(p, (n, *shape), np.float32) for p, n in zip(made, data.chunks)]
        return da.concatenate(arrays, allow_unknown_chunksizes=True)
    if is_frame(data):
        if len(shape) > 1:
            raise ValueError("a dataframe holds predictions of two dimensions at most. Pass data.to_dask_array(lengths=True).")
        import pandas as pd

        if isinstance(base_margin, da.Array):
            base_margin = base_margin.to_dask_dataframe(index=data.index)
        names = None if not shape else list(range(shape[0]))
        meta = pd.Series([], dtype=np.float32) if names is None else pd.DataFrame({i: np.zeros(0, np.float32) for i in names})
        return data.map_partitions(_predict_frame, sent, base_margin, names, missing, options, settings, meta=meta)
    if not isinstance(data, da.Array):
        raise TypeError(f"data must be a dask array, a dask dataframe or a DaskDMatrix, got {type(data).__name__}.")
    if data.numblocks[1] > 1:
        data = data.rechunk({1: -1})
    if is_frame(base_margin):
        base_margin = base_margin.to_dask_array(lengths=data.chunks[0])
    parts = delayed_blocks(data)
    margins: Sequence[Any] = [None] * len(parts)
    if base_margin is not None:
        rows = {0: data.chunks[0]} if sum(data.chunks[0]) == sum(base_margin.chunks[0]) else {}  # NaN equals nothing
        margins = delayed_blocks(base_margin.rechunk(rows | {i: -1 for i in range(1, base_margin.ndim)}))
        if len(margins) != len(parts):
            raise ValueError(f"base_margin has {len(margins)} partitions, data has {len(parts)}. Give both the same.")
    arrays = [
        da.from_delayed(dask.delayed(_predict_array)(sent, part, margin, missing, options, settings), (n, *shape), np.float32)
        for part, margin, n in zip(parts, margins, data.chunks[0])
    ]
    return da.concatenate(arrays, allow_unknown_chunksizes=True)


def _predict_array(
    booster: Booster, table: Any, base_margin: Any, missing: float, options: dict[str, Any], settings: dict[str, Any],
    **arguments: Any,
) -> Any:  # fmt: skip
    with config_context(**settings):
        return booster.predict(DMatrix(table, base_margin=base_margin, missing=missing, **arguments), **options)


def _predict_part(
    booster: Booster, part: Part, arguments: dict[str, Any], options: dict[str, Any], settings: dict[str, Any]
) -> Any:
    return _predict_array(booster, part["data"], part.get("base_margin"), options=options, settings=settings, **arguments)


def _predict_frame(
    frame: Any, booster: Booster, base_margin: Any, names: list[int] | None, missing: float, options: dict[str, Any],
    settings: dict[str, Any],
) -> Any:  # fmt: skip
    import pandas as pd

    prediction = _predict_array(booster, frame, base_margin, missing, options, settings)
    if names is None:
        return pd.Series(prediction, index=frame.index)
    return pd.DataFrame(prediction, index=frame.index, columns=names)
