"""A table with its labels: DMatrix, and QuantileDMatrix that keeps only bin numbers."""

from contextlib import suppress
from typing import Any

import numpy as np

from gpuboost.backend import choose_backend
from gpuboost.communicator import Communicator, current_communicator
from gpuboost.data.binned import BinnedMatrix, bin_table
from gpuboost.data.cuts import Cuts
from gpuboost.data.ingest import ColumnSource, open_table
from gpuboost.data.sketch import sketch_columns
from gpuboost.errors import not_built
from gpuboost.params import check_param

__all__ = ["DMatrix", "QuantileDMatrix"]

SKETCH_WEIGHT_BITS = 46  # the global sum of integer sketch weights stays below 2^46 (data/sketch.py)


class DMatrix:
    """A table, optionally with labels, weights and starting margins. XGBoost's class of the same name.

    data : 2-D array of numbers, or a pandas, polars or pyarrow table (n_rows, n_features).
    label : (n_rows,) or (n_rows, n_targets), kept as float32.
    weight : (n_rows,), non-negative. A row of weight 0 is as good as absent from training.
    base_margin : (n_rows,) or (n_rows, n_outputs). Replaces base_score.
    missing : value that means missing besides NaN; None and NaN mean NaN only.
    feature_names, feature_types : replace those of a frame.
    nthread : threads for reading; None as configured. enable_categorical : False refuses columns of
        categories. silent : accepted for XGBoost's sake.

    The table is not copied: it is read when it is predicted, and binned when it is first trained on. Raises ValueError for
    data of the wrong shape, kind or length, naming it.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        *,
        weight: Any = None,
        base_margin: Any = None,
        missing: float | None = None,
        silent: bool = False,
        feature_names: Any = None,
        feature_types: Any = None,
        nthread: int | None = None,
        group: Any = None,
        qid: Any = None,
        label_lower_bound: Any = None,
        label_upper_bound: Any = None,
        feature_weights: Any = None,
        enable_categorical: bool = True,
    ) -> None:
        for name, value in {
            "group": group, "qid": qid, "label_lower_bound": label_lower_bound, "label_upper_bound": label_upper_bound,
            "feature_weights": feature_weights,
        }.items():  # fmt: skip
            if value is not None:
                raise not_built(f"DMatrix({name}=...)")
        source = open_table(data, missing=missing, feature_names=feature_names, feature_types=feature_types)
        if source.categories and not enable_categorical:
            raise ValueError(f"column {next(iter(source.categories))!r} holds categories, but enable_categorical is False.")
        self._source: ColumnSource | None = source
        self._data = data
        self.nthread = nthread
        self.feature_names: list[str] | None = source.feature_names
        self.feature_types: list[str] | None = source.feature_types
        self.categories: dict[str, list[Any]] = source.categories
        self.missing = source.missing
        self._n_rows, self._n_features = source.n_rows, source.n_features
        self._label = self._weight = self._base_margin = np.zeros((0,), np.float32)
        self._binned: dict[Any, BinnedMatrix] = {}
        self.version = 0  # counts the changes of labels, weights and margins
        self.set_info(label=label, weight=weight, base_margin=base_margin)

    # -- What XGBoost's class offers ----------------------------------------------------------------------------------

    def num_row(self) -> int:
        return self._n_rows

    def num_col(self) -> int:
        return self._n_features

    def set_info(self, *, label: Any = None, weight: Any = None, base_margin: Any = None) -> None:
        """Set whichever is given; each is checked for length, kind and finite values."""
        if label is not None:
            self.set_label(label)
        if weight is not None:
            self.set_weight(weight)
        if base_margin is not None:
            self.set_base_margin(base_margin)

    def set_label(self, label: Any) -> None:
        """(n_rows,) or (n_rows, n_targets) finite numbers."""
        self.version += 1
        self._label = np.ascontiguousarray(_columns("label", label, self._n_rows).T)

    def set_weight(self, weight: Any) -> None:
        """(n_rows,) finite numbers, none negative."""
        values = _columns("weight", weight, self._n_rows)
        if values.shape[1] != 1:
            raise ValueError(f"weight must have one value per row, got {values.shape[1]} columns.")
        if (bad := values[:, 0] < 0).any():
            raise ValueError(f"weight must not be negative: {bad.sum()} values are, the first at row {int(np.argmax(bad))}.")
        self.version += 1
        self._weight = np.ascontiguousarray(values[:, 0])
        if self._source is not None:
            self._binned = {}  # the cuts depend on the weights

    def set_base_margin(self, margin: Any) -> None:
        """(n_rows,) or (n_rows, n_outputs) finite numbers."""
        self.version += 1
        self._base_margin = np.ascontiguousarray(_columns("base_margin", margin, self._n_rows).T)

    def get_label(self) -> np.ndarray:
        """float32 (n_rows,) or (n_rows, n_targets); empty when there is none."""
        return self._label[0] if len(self._label) == 1 else self._label.T

    def get_weight(self) -> np.ndarray:
        """float32 (n_rows,); empty when every row weighs 1."""
        return self._weight

    def get_base_margin(self) -> np.ndarray:
        """float32 (n_rows,) or (n_rows, n_outputs); empty when there is none."""
        return self._base_margin[0] if len(self._base_margin) == 1 else self._base_margin.T

    # -- What training and prediction read ----------------------------------------------------------------------------

    @property
    def labels(self) -> np.ndarray:
        """float32 (n_targets, n_rows). Raises ValueError when there is none."""
        if self._label.ndim != 2:
            raise ValueError("this DMatrix has no label. Pass label=, or call set_label().")
        return self._label

    @property
    def weights(self) -> np.ndarray:
        """float32 (n_rows,), or empty."""
        return self._weight

    @property
    def base_margins(self) -> np.ndarray | None:
        """float32 (n_outputs, n_rows), or None."""
        return self._base_margin if self._base_margin.ndim == 2 else None

    def source(
        self, model_names: list[str] | None, model_categories: dict[str, list[Any]], n_features: int
    ) -> ColumnSource | None:
        """The table as a model wants it: its columns, in its order, categories by its codes; None when only codes are kept."""
        if self._source is None:
            self._check_codes_fit(model_names, model_categories, n_features)
            return None
        if self.feature_names == model_names and self.categories == model_categories and n_features == self._n_features:
            return self._source
        names = self.feature_names
        return open_table(
            self._data, missing=self.missing, feature_names=names, categories=model_categories,
            expected_names=model_names if names is not None else None, expected_count=n_features,
        )  # fmt: skip

    def _check_codes_fit(self, model_names: list[str] | None, model_categories: dict[str, list[Any]], n_features: int) -> None:
        is_renamed = None not in (self.feature_names, model_names) and self.feature_names != model_names
        if is_renamed or self.categories != model_categories or self._n_features != n_features:
            raise ValueError(
                "a QuantileDMatrix keeps only bin numbers, so its columns and categories must be the model's. "
                "Build it with ref= the training matrix, or use a DMatrix."
            )

    def cuts(self, max_bin: int, backend: Any, comm: Communicator) -> Cuts:
        """Cuts sketched from this table (all workers' rows of positive weight)."""
        assert self._source is not None
        return sketch_columns(self._source, _sketch_weights(self._weight, self._n_rows, comm), max_bin, backend, comm)

    def binned(self, max_bin: int, backend: Any, comm: Communicator) -> BinnedMatrix:
        """Codes under the table's own cuts, with records: what training reads. Kept until another max_bin is asked for."""
        if max_bin not in self._binned:
            assert self._source is not None
            self._binned = {max_bin: bin_table(self._source, self.cuts(max_bin, backend, comm), backend, with_records=True)}
        return self._binned[max_bin]

    def codes(self, cuts: Cuts, source: ColumnSource | None, backend: Any) -> BinnedMatrix | None:
        """Codes under a model's training cuts, without records; None when neither the table nor such codes are kept."""
        if source is self._source:  # the codes kept are of its own columns and categories
            for binned in self._binned.values():
                if binned.cuts.same_as(cuts):
                    return binned
        return None if source is None else bin_table(source, cuts, backend, with_records=False)

    def any_binned(self) -> BinnedMatrix | None:
        """The codes at hand, if any."""
        return next(iter(self._binned.values()), None)


class QuantileDMatrix(DMatrix):
    """A DMatrix that is binned at once and forgets the table: about 2 bytes per value.

    max_bin : as in training, 256 by default; training with another max_bin raises ValueError.
    ref : a QuantileDMatrix whose cuts to use: the training matrix, for an evaluation matrix.
    page_rows : rows of one page of codes; None keeps all in one. The model does not depend on it.

    The cuts follow the weights given here; a later set_weight does not move them.
    """

    def __init__(
        self, data: Any, label: Any = None, *, max_bin: int | None = None, ref: DMatrix | None = None,
        page_rows: int | None = None, **info: Any,
    ) -> None:  # fmt: skip
        super().__init__(data, label, **info)
        assert self._source is not None
        comm = current_communicator()
        backend = choose_backend("cpu", self.nthread)
        if ref is not None and not isinstance(ref, DMatrix):
            raise TypeError(f"ref must be a DMatrix, got {type(ref).__name__}. Pass the training QuantileDMatrix.")
        if page_rows is not None and page_rows < 1:
            raise ValueError(f"page_rows must be at least 1, got {page_rows}. Leave it out for one page.")
        self.max_bin: int = check_param("max_bin", max_bin)
        source = self._source
        if ref is None:
            cuts = self.cuts(self.max_bin, backend, comm)
        else:
            if ref.num_col() != self._n_features:
                raise ValueError(f"ref has {ref.num_col()} columns, data has {self._n_features}. Both need the same columns.")
            aligned = self.source(ref.feature_names, ref.categories, ref.num_col())  # by name, categories by value
            assert aligned is not None
            source, self.categories = aligned, ref.categories
            self.feature_names, self.feature_types = ref.feature_names, ref.feature_types
            known = ref.any_binned()
            cuts = known.cuts if known else ref.binned(self.max_bin, backend, comm).cuts
            if max_bin is not None and self.max_bin != cuts.max_bin:
                raise ValueError(f"max_bin={max_bin}, but ref was binned with {cuts.max_bin}. Leave max_bin out.")
            self.max_bin = cuts.max_bin
        self._binned = {self.max_bin: bin_table(source, cuts, backend, with_records=True, page_rows=page_rows)}
        self._source, self._data = None, None

    def binned(self, max_bin: int, backend: Any, comm: Communicator) -> BinnedMatrix:
        if max_bin not in self._binned:
            raise ValueError(
                f"max_bin={max_bin} in the training parameters, but the QuantileDMatrix was built with {self.max_bin}. "
                "Use the same value in both."
            )
        return self._binned[max_bin]

    def get_quantile_cut(self) -> tuple[np.ndarray, np.ndarray]:
        """(int offsets (n_features + 1,), float32 thresholds): feature f owns thresholds[offsets[f]:offsets[f + 1]]."""
        cuts = self._binned[self.max_bin].cuts
        return cuts.offsets.astype(np.uint64), cuts.thresholds


def _columns(name: str, values: Any, n_rows: int) -> np.ndarray:
    """Anything array-like as float32 (n_rows, k). Raises ValueError naming count and first row of what does not fit."""
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if np.ma.is_masked(values):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    array = np.asarray(values)
    if array.dtype.kind in "OUST":
        with suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, got dtype {array.dtype}.")
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have shape (n_rows,) or (n_rows, k), got {array.shape}.")
    array = array[:, None] if array.ndim == 1 else array
    if len(array) != n_rows:
        raise ValueError(f"{name} has {len(array)} rows, data has {n_rows}. Both need the same rows.")
    with np.errstate(over="ignore"):
        result = array.astype(np.float32)
    bad = ~np.isfinite(result).all(axis=1)
    if bad.any():
        first = int(np.argmax(bad))
        value = array[first][~np.isfinite(result[first])][0]
        raise ValueError(
            f"{name} must be finite float32 numbers: {int(bad.sum())} rows are NaN, infinite or beyond 3.4e38, "
            f"the first at row {first}: {value}. Remove or replace them."
        )
    return result


def _sketch_weights(weight: np.ndarray, n_rows: int, comm: Communicator) -> np.ndarray | None:
    """Integer weights for the sketch: the largest sum of all workers' rows stays below 2^46; positive weights stay positive."""
    facts = np.array([len(weight) > 0], np.int64)
    comm.allreduce_max(facts)
    if not facts[0]:
        return None
    if len(weight) == 0:
        weight = np.ones(n_rows, np.float32)
    global_rows = np.array([np.count_nonzero(weight)], np.int64)
    comm.allreduce_sum(global_rows)
    bits = weight.max(initial=0.0).reshape(1).astype(np.float32).view(np.int32).astype(np.int64)
    comm.allreduce_max(bits)
    largest = float(bits.astype(np.int32).view(np.float32)[0])
    exponent = SKETCH_WEIGHT_BITS - int(global_rows[0]).bit_length() - int(np.frexp(largest)[1])
    scaled = np.floor(np.ldexp(weight.astype(np.float64), exponent) + 0.5).astype(np.int64)
    return np.where(weight > 0, np.maximum(scaled, 1), 0)
