"""A table with its labels: DMatrix, and QuantileDMatrix that keeps only bin numbers."""

import os
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

import gpuboost.backend as backends
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.communicator import Communicator, current_communicator
from gpuboost.config import warn
from gpuboost.data.binning import add_records, bin_table
from gpuboost.data.columns import bin_columns
from gpuboost.data.info import as_columns, as_feature_weights, as_weights, group_ptr, row_numbers, sizes_of_queries
from gpuboost.data.sketch import sketch_columns
from gpuboost.data.tables.device import host_array
from gpuboost.data.tables.names import check_names, check_types
from gpuboost.data.tables.open import LoadedTable, load_table, open_table
from gpuboost.data.tables.source import ColumnSource
from gpuboost.data.tables.sparse import SparseTable, is_sparse
from gpuboost.data.tables.text_files import TextTable, read_text
from gpuboost.errors import not_built
from gpuboost.params import EVERY_VALUE, check_param

__all__ = ["DMatrix", "QuantileDMatrix"]

SKETCH_WEIGHT_BITS = 46  # the global sum of integer sketch weights stays below 2^46 (data/sketch.py)
ABSENT_VALUES = {"missing": np.nan, "zero": 0.0}
FLOAT_INFO = ("label", "weight", "base_margin", "feature_weights")
UINT_INFO = ("group", "qid")


class DMatrix:
    """A table, optionally with labels, weights and starting margins. XGBoost's class of the same name.

    data : table (n_rows, n_features): 2-D array of numbers, list of rows, SciPy sparse matrix,
        pandas, polars, pyarrow or cudf frame, any producer of an Arrow stream; or the name of a LIBSVM or CSV file
        (data/tables/text_files.py), whose labels, weights and queries serve where none are given. A table on a GPU stays there:
        CuPy arrays, cudf frames, all that has __cuda_array_interface__ or speaks DLPack. Labels, weights and margins do not.
    label : (n_rows,) or (n_rows, n_targets), kept as float32.
    weight : (n_rows,), non-negative. A row of weight 0 is as good as absent from training.
    base_margin : (n_rows,) or (n_rows, n_outputs). Replaces base_score.
    missing : value that means missing besides NaN; None and NaN mean NaN only.
    feature_names, feature_types : replace those of a frame.
    sparse_absent : what a sparse table does not store is "missing", or "zero". None: missing in training, and in prediction what
        the model remembers.
    nthread : threads for reading; None as configured. enable_categorical : False refuses columns of
        categories. silent : accepted for XGBoost's sake.
    group : rows of each query, in row order. qid : (n_rows,) non-decreasing integers, the query of each row, instead.
    feature_weights : (n_features,), non-negative, for sampling columns; the parameter of that name goes before it.

    Arrays and frames are not copied: they are read when they are predicted, and binned when they are first trained on. Raises
    ValueError for data of the wrong shape, kind or length, naming it.
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
        sparse_absent: str | None = None,
    ) -> None:
        if sparse_absent not in (None, "missing", "zero"):
            raise ValueError(f"sparse_absent must be 'missing' or 'zero', got {sparse_absent!r}.")
        self.sparse_absent = sparse_absent
        self.is_sparse = False  # whether the table does not store all its cells
        self._may_widen = False  # whether further columns of a model are absent here: a LIBSVM file names only those it fills
        if isinstance(data, str | os.PathLike):
            data = read_text(data)
        if isinstance(data, TextTable):
            label = data.label if label is None else label
            weight = data.weight if weight is None else weight
            qid = data.qid if qid is None and group is None else qid
            data = data.data
            self._may_widen = is_sparse(data) and feature_names is None
        self._table: LoadedTable | None = load_table(data)
        self._open: Callable[..., ColumnSource] = open_table
        source = open_table(self._table, missing=missing, feature_names=feature_names, feature_types=feature_types)
        source = source.absent_as(ABSENT_VALUES[sparse_absent or "missing"])
        self.is_sparse = source.stored is not None
        if source.categories and not enable_categorical:
            raise ValueError(f"column {next(iter(source.categories))!r} holds categories, but enable_categorical is False.")
        self._source: ColumnSource | None = source
        self._finite_source = source.finite()  # what a model reads: training has its own check, in the sketch
        self.nthread = nthread
        self._feature_names: list[str] | None = source.feature_names
        self._feature_types: list[str] | None = source.feature_types
        self.categories: dict[str, list[Any]] = source.categories
        self.missing = source.missing
        self._n_rows, self._n_features, self._device = source.n_rows, source.n_features, source.device
        self._label = self._weight = self._base_margin = self._feature_weights = np.zeros((0,), np.float32)
        self._group_ptr = np.zeros((0,), np.uint32)
        self._binned: dict[Any, BinnedMatrix] = {}
        self.version = 0  # counts the changes of labels, weights and margins
        self._has_warned = False  # that it has no names although a model has
        self.set_info(
            label=label, weight=weight, base_margin=base_margin, group=group, qid=qid, label_lower_bound=label_lower_bound,
            label_upper_bound=label_upper_bound, feature_weights=feature_weights,
        )  # fmt: skip

    # -- Columns ------------------------------------------------------------------------------------------------------

    @property
    def feature_names(self) -> list[str] | None:
        """One name per column; None when they have none."""
        return self._feature_names

    @feature_names.setter
    def feature_names(self, names: Iterable[Any] | None) -> None:
        checked = check_names(names, self._n_features)
        if checked is None and self.categories:
            raise ValueError("feature_names must name the columns of a table with categories, got None.")
        renamed = dict(zip(self._feature_names or (), checked or ()))
        self.categories = {renamed[name]: values for name, values in self.categories.items()}
        self._feature_names = checked
        self._may_widen &= checked is None
        self._columns_changed()

    @property
    def feature_types(self) -> list[str] | None:
        """One of XGBoost's letters per column (c: category, i: boolean, int, float, q: any number); None when unknown."""
        return self._feature_types

    @feature_types.setter
    def feature_types(self, types: Iterable[str] | None) -> None:
        checked = check_types(types, self._n_features)
        for name, letter in zip(self._feature_names or (), checked or ()):
            if name in self.categories and letter != "c":
                raise ValueError(f"feature_types of column {name!r} must be 'c', as it holds categories, got {letter!r}.")
        self._feature_types = checked
        self._columns_changed()

    def _columns_changed(self) -> None:
        self.version += 1
        if self._source is not None:
            self._source = replace(
                self._source, feature_names=self._feature_names, feature_types=self._feature_types, categories=self.categories
            )
            self._finite_source = self._source.finite()

    # -- What XGBoost's class offers ----------------------------------------------------------------------------------

    def num_row(self) -> int:
        return self._n_rows

    def num_col(self) -> int:
        return self._n_features

    def num_nonmissing(self) -> int:
        """How many values are not missing. Reads the whole table."""
        if self._source is not None:
            return sum(int(is_present.sum()) for _, is_present in self._present_values())
        (binned,) = self._binned.values()
        return binned.count_present()

    def get_data(self) -> Any:
        """The values that are not missing: float32 scipy.sparse.csr_matrix (n_rows, n_features)."""
        import scipy.sparse

        if self._source is None:
            raise not_built("get_data() of a QuantileDMatrix, which keeps only bin numbers,", "Keep the table, or use a DMatrix.")
        shape, values, columns, counts = (self._n_rows, self._n_features), [], [], []
        for block, is_present in self._present_values():
            values.append(block[is_present])
            columns.append(np.nonzero(is_present)[1])
            counts.append(is_present.sum(axis=1))
        ends = np.concatenate([[0], *counts]).cumsum()
        empty = np.zeros(0, np.float32)
        data = np.concatenate([empty, *values]), np.concatenate([empty.astype(np.intp), *columns]), ends
        return scipy.sparse.csr_matrix(data, shape=shape)

    def _present_values(self) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """(float32 batch, which of it is not missing), on the host."""
        assert self._source is not None
        for block in self._source.batches():
            with np.errstate(over="ignore"):
                block = np.asarray(host_array(block), np.float32)
            yield block, ~np.isnan(block) & (block != np.float32(self.missing))

    def slice(self, rindex: Any, allow_groups: bool = False) -> "DMatrix":
        """The rows with the given numbers, in that order, with their labels, weights and margins. Copies none of the table.

        rindex : integers in [0, n_rows), or bool (n_rows,). allow_groups : queries are lost; without it they raise ValueError.
        """
        if self._source is None:
            raise ValueError("a QuantileDMatrix keeps only bin numbers and has no slices. Slice a DMatrix, or the table.")
        if len(self._group_ptr) and not allow_groups:
            raise ValueError("slice() does not keep query groups. Use allow_groups=True to go on without them.")
        rows = row_numbers(rindex, self._n_rows)
        part, open_whole = copy(self), self._open
        part._open = lambda *table, **arguments: open_whole(*table, **arguments).taken(rows)
        part._source = self._source.taken(rows)
        part._finite_source = part._source.finite()
        part._n_rows, part._binned, part.version, part._group_ptr = len(rows), {}, 0, self._group_ptr[:0]
        for name in ("_label", "_weight", "_base_margin"):
            values = getattr(self, name)
            setattr(part, name, np.ascontiguousarray(values[..., rows]) if values.size or values.ndim == 2 else values)
        return part

    def save_binary(self, fname: Any, silent: bool = True) -> None:
        """Not built yet: raises NotImplementedError."""
        raise not_built("DMatrix.save_binary", "Save the table, for example as a Parquet file.")

    def get_quantile_cut(self) -> tuple[np.ndarray, np.ndarray]:
        """(uint64 offsets (n_features + 1,), float32 thresholds): feature f owns thresholds[offsets[f]:offsets[f + 1]].

        Raises ValueError for a DMatrix that was not trained on yet: it has no cuts.
        """
        binned = self.any_binned()
        if binned is None:
            raise ValueError("this DMatrix has no quantile cuts yet. Train on it first, or use a QuantileDMatrix.")
        return binned.cuts.offsets.astype(np.uint64), binned.cuts.thresholds

    def set_info(
        self, *, label: Any = None, weight: Any = None, base_margin: Any = None, group: Any = None, qid: Any = None,
        label_lower_bound: Any = None, label_upper_bound: Any = None, feature_names: Any = None, feature_types: Any = None,
        feature_weights: Any = None,
    ) -> None:  # fmt: skip
        """Set whichever is given; each is checked for length, kind and finite values. Where one is refused, none is set."""
        for name, value in {"label_lower_bound": label_lower_bound, "label_upper_bound": label_upper_bound}.items():
            if value is not None:
                raise not_built(f"DMatrix({name}=...)")
        if group is not None and qid is not None:
            raise ValueError("group and qid both name the queries. Give one of them.")
        before = self.__dict__.copy()
        try:
            if feature_names is not None:
                self.feature_names = feature_names
            if feature_types is not None:
                self.feature_types = feature_types
            for values, setter in (
                (label, self.set_label), (weight, self.set_weight), (base_margin, self.set_base_margin), (group, self.set_group),
                (qid, self._set_qid), (feature_weights, self._set_feature_weights),
            ):  # fmt: skip
                if values is not None:
                    setter(values)
        except Exception:
            self.__dict__.update(before)  # setters replace what they set, and change nothing in place
            raise

    def set_float_info(self, field: str, data: Any) -> None:
        """set_info by name: label, weight, base_margin or feature_weights."""
        self.set_info(**{_known_field(field, FLOAT_INFO): data})

    set_float_info_npy2d = set_float_info

    def get_float_info(self, field: str) -> np.ndarray:
        """float32 values of label, weight, base_margin or feature_weights; empty where there are none."""
        field = _known_field(field, FLOAT_INFO)
        return self._feature_weights if field == "feature_weights" else getattr(self, f"get_{field}")()

    def set_uint_info(self, field: str, data: Any) -> None:
        """set_info by name: group or qid."""
        self.set_info(**{_known_field(field, UINT_INFO): data})

    def get_uint_info(self, field: str) -> np.ndarray:
        """ "group_ptr": uint32 (n_groups + 1,), the first row of each query and the number of rows; empty without queries."""
        _known_field(field, ("group_ptr",))
        return self._group_ptr

    def set_label(self, label: Any) -> None:
        """(n_rows,) or (n_rows, n_targets) finite numbers."""
        self.version += 1
        self._label = np.ascontiguousarray(as_columns("label", label, self._n_rows).T)

    def set_weight(self, weight: Any) -> None:
        """(n_rows,) finite numbers, none negative."""
        self._weight = as_weights(weight, self._n_rows)
        self.version += 1
        if self._source is not None:
            self._binned = {}  # the cuts depend on the weights

    def set_base_margin(self, margin: Any) -> None:
        """(n_rows,) or (n_rows, n_outputs) finite numbers."""
        self.version += 1
        self._base_margin = np.ascontiguousarray(as_columns("base_margin", margin, self._n_rows).T)

    def set_group(self, group: Any) -> None:
        """Rows of each query, (n_groups,) integers that sum to n_rows; the rows of one follow each other."""
        self._group_ptr = group_ptr(group, self._n_rows)
        self.version += 1

    def _set_qid(self, qid: Any) -> None:
        self.set_group(sizes_of_queries(qid, self._n_rows))

    def _set_feature_weights(self, weights: Any) -> None:
        self._feature_weights = as_feature_weights(weights, self._n_features)
        self.version += 1

    def get_group(self) -> np.ndarray:
        """uint32 (n_groups,), rows of each query; empty when there are none."""
        return np.diff(self._group_ptr)

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
    def device(self) -> int | None:
        """Number of the CUDA device that the table was given on, where predictions go back to; None: the host."""
        return self._device

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
        self, model_names: list[str] | None, model_categories: dict[str, list[Any]], n_features: int,
        sparse_absent: str = "missing",
    ) -> ColumnSource | None:  # fmt: skip
        """The table as a model wants it: its columns, in its order, categories by its codes, absent cells as they were trained;
        None when only codes are kept."""
        if self.is_sparse and self.sparse_absent not in (None, sparse_absent):
            raise ValueError(
                f"the matrix was made with sparse_absent={self.sparse_absent!r}, the model trained with {sparse_absent!r}. "
                "Leave it out: the model knows."
            )
        if model_names is not None and self.feature_names is None and not self._has_warned:
            self._has_warned = True
            warn(
                "data has no column names, but the model was trained with names: columns are taken in the model's order. "
                "Pass a frame, or feature_names, to have them matched.",
                stacklevel=2,
            )
        if self._source is None:
            self._check_codes_fit(model_names, model_categories, n_features)
            return None
        absent = ABSENT_VALUES[sparse_absent]
        if self.feature_names == model_names and self.categories == model_categories and n_features == self._n_features:
            is_same = self._source.stored is None or self.sparse_absent == sparse_absent or sparse_absent == "missing"
            return self._finite_source if is_same else self._source.absent_as(absent).finite()
        names, table = self.feature_names, self._table
        assert table is not None
        if self._may_widen and n_features > self._n_features:
            assert isinstance(table.table, SparseTable)
            table = LoadedTable(table.table.widened(n_features), None)
        return self._open(
            table, missing=self.missing, feature_names=names, categories=model_categories,
            expected_names=model_names if names is not None else None, expected_count=n_features,
        ).absent_as(absent).finite()  # fmt: skip

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
            self._binned = {max_bin: self._bin(max_bin, backend, comm)}
        self._binned[max_bin] = backend.memory.move_table(self._binned[max_bin])
        return self._binned[max_bin]

    def _bin(self, max_bin: int, backend: Any, comm: Communicator, page_rows: int | None = None) -> BinnedMatrix:
        """Codes under the table's own cuts, as training reads them; a UserWarning names columns without any value."""
        assert self._source is not None
        if max_bin == EVERY_VALUE or _stays_sparse(self._source, backend):
            weights = _sketch_weights(self._weight, self._n_rows, comm)
            binned = bin_columns(self._source, weights, max_bin, None, backend.n_threads, comm)
            binned = add_records(binned, backend)
            cuts = binned.cuts
        else:
            cuts = self.cuts(max_bin, backend, comm)
            binned = bin_table(self._source, cuts, backend, with_records=True, page_rows=page_rows)
        suspects = np.flatnonzero(cuts.has_missing & (cuts.n_bins == 1))  # else they hold one value
        if len(suspects):  # on all workers or on none
            occurs = binned.holds_values(suspects)
            comm.allreduce_max(occurs)
            empty = [self._feature_names[f] if self._feature_names else str(f) for f in suspects[occurs == 0]]
            if empty:
                shown = ", ".join(f'"{name}"' for name in empty[:5]) + (f" and {len(empty) - 5} more" if len(empty) > 5 else "")
                all_or_some = "All columns" if len(empty) == self._n_features else "Some columns"
                warn(f"{all_or_some} hold nothing but missing values, so no split can use them: {shown}.", stacklevel=3)
        return binned

    def require_same_columns(self, comm: Communicator) -> None:
        """ValueError where workers' shards differ in column names, types, categories, or in what their absent cells mean: equal
        codes would mean different values. Or in feature_weights: they would draw different columns."""
        columns = repr((self._n_features, self._feature_names, self._feature_types, self.categories))
        sparseness = repr((self.is_sparse, self.sparse_absent or "missing"))
        weights = repr(self._feature_weights.tolist())
        digests = comm.allgather(np.array([_digest(columns), _digest(sparseness), _digest(weights)]))
        if len(np.unique(digests[:, 0])) > 1:
            raise ValueError(
                "the workers' tables differ in column names, order, types or categories. Give all shards the same columns, and "
                "categories of one dictionary (an Enum, or pandas' union_categoricals)."
            )
        if len(np.unique(digests[:, 1])) > 1:
            raise ValueError(
                "the workers' tables differ in sparse_absent, or some are sparse and others dense. Give all shards the same kind."
            )
        if len(np.unique(digests[:, 2])) > 1:
            raise ValueError("the workers' tables differ in feature_weights. Give all shards the same ones.")

    def codes(self, cuts: Cuts, source: ColumnSource | None, backend: Any) -> BinnedMatrix | None:
        """Codes under a model's training cuts, without records; None when neither the table nor such codes are kept."""
        if source is None or source is self._finite_source:  # the codes kept are of its own columns and categories
            for binned in self._binned.values():
                if binned.cuts.same_as(cuts):
                    return backend.memory.move_table(binned)
        return None if source is None else bin_table(source, cuts, backend, with_records=False)

    def any_binned(self) -> BinnedMatrix | None:
        """The codes at hand, if any."""
        return next(iter(self._binned.values()), None)


class QuantileDMatrix(DMatrix):
    """A DMatrix that is binned at once and forgets the table: about 2 bytes per value.

    max_bin : as in training, 256 by default; training with another max_bin raises ValueError.
    ref : a QuantileDMatrix whose cuts to use: the training matrix, for an evaluation matrix.
    page_rows : rows of one page of codes; None keeps all in one. The model does not depend on it. A sparse table has one page.

    The cuts follow the weights given here; a later set_weight does not move them.
    """

    def __init__(
        self, data: Any, label: Any = None, *, max_bin: int | None = None, ref: DMatrix | None = None,
        page_rows: int | None = None, **info: Any,
    ) -> None:  # fmt: skip
        super().__init__(data, label, **info)
        comm = current_communicator()
        backend = backends.choose_backend("cpu" if self.device is None else "cuda", self.nthread, table_device=self.device)
        if ref is not None and not isinstance(ref, DMatrix):
            raise TypeError(f"ref must be a DMatrix, got {type(ref).__name__}. Pass the training QuantileDMatrix.")
        if page_rows is not None and page_rows < 1:
            raise ValueError(f"page_rows must be at least 1, got {page_rows}. Leave it out for one page.")
        self.max_bin: int = check_param("max_bin", max_bin)
        if ref is None:
            self.require_same_columns(comm)
            binned = self._bin(self.max_bin, backend, comm, page_rows)
            if self.is_sparse:
                self.sparse_absent = self.sparse_absent or "missing"
        else:
            if ref.num_col() != self._n_features and not (self._may_widen and ref.num_col() > self._n_features):
                raise ValueError(f"ref has {ref.num_col()} columns, data has {self._n_features}. Both need the same columns.")
            absent = ref.sparse_absent or "missing"
            aligned = self.source(ref.feature_names, ref.categories, ref.num_col(), absent)  # by name, categories by value
            assert aligned is not None
            self.sparse_absent = absent if self.is_sparse else self.sparse_absent or ref.sparse_absent
            self.categories, self._n_features = ref.categories, ref.num_col()
            self._feature_names, self._feature_types = ref.feature_names, ref.feature_types
            known = ref.any_binned()
            if known is None or known.cuts.has_every_value:
                known = ref.binned(self.max_bin, backend, comm)
            cuts = known.cuts
            if max_bin is not None and self.max_bin != cuts.max_bin:
                raise ValueError(f"max_bin={max_bin}, but ref was binned with {cuts.max_bin}. Leave max_bin out.")
            self.max_bin = cuts.max_bin
            if _stays_sparse(aligned, backend):
                binned = bin_columns(aligned, None, cuts.max_bin, cuts, backend.n_threads, comm)
            else:  # most such matrices are only evaluated, and only training reads records
                binned = bin_table(aligned, cuts, backend, with_records=False, page_rows=page_rows)
        self._binned = {self.max_bin: binned}
        self._source = self._table = None
        del self._open, self._finite_source

    def binned(self, max_bin: int, backend: Any, comm: Communicator) -> BinnedMatrix:
        if max_bin == EVERY_VALUE:
            raise ValueError(
                "tree_method='exact' searches the values themselves, of which a QuantileDMatrix keeps only bin numbers. "
                "Use a DMatrix."
            )
        if max_bin not in self._binned:
            raise ValueError(
                f"max_bin={max_bin} in the training parameters, but the QuantileDMatrix was built with {self.max_bin}. "
                "Use the same value in both."
            )
        self._binned[max_bin] = add_records(self._binned[max_bin], backend)
        return self._binned[max_bin]


def _stays_sparse(source: ColumnSource, backend: Any) -> bool:
    return source.stored is not None and backend.takes_sparse


def _digest(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:7])


def _known_field(field: str, allowed: tuple[str, ...]) -> str:
    if field not in allowed:
        raise ValueError(f"unknown field {field!r}. Use {' or '.join(map(repr, allowed))}.")
    return field


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
