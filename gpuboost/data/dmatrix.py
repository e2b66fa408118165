"""DMatrix: a table with what is known of its rows and columns, by XGBoost's names."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np

from gpuboost.backend import Backend
from gpuboost.backend.queries import Queries
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.communicator import Communicator
from gpuboost.config import warn
from gpuboost.data.binning import bin_table
from gpuboost.data.bins import Bins, bin_by_own_cuts
from gpuboost.data.categories import CategoryContainer
from gpuboost.data.category_bins import check_category_codes
from gpuboost.data.feature_info import Categories, FeatureInfo, shared_categories
from gpuboost.data.given import row_numbers
from gpuboost.data.info import FLOAT_INFO, UINT_INFO, MatrixInfo
from gpuboost.data.saved import is_saved, read_saved, save_matrix
from gpuboost.data.streams.gather import gather
from gpuboost.data.streams.open import find_stream, room_for_values
from gpuboost.data.tables.source import ColumnSource
from gpuboost.data.tables.sparse import is_sparse
from gpuboost.data.tables.text_files import TextTable, read_text
from gpuboost.data.view import TableView
from gpuboost.errors import RowError, not_built
from gpuboost.paths import as_path
from gpuboost.positional import also_by_position
from gpuboost.storage.shelf import Shelf

__all__ = ["DMatrix"]

EDGE_MARGIN = np.float32(1e-5)  # of the last edges of get_quantile_cut, XGBoost's


class DMatrix:
    """A table, optionally with labels, weights and starting margins. XGBoost's class of the same name.

    data : table (n_rows, n_features): 2-D array of numbers, list of rows, SciPy sparse matrix,
        pandas, polars, pyarrow or cudf frame, any producer of an Arrow stream; or the name of a LIBSVM or CSV file
        (data/tables/text_files.py) or of one that save_binary wrote, whose labels, weights and queries serve where none are
        given; or a stream, which is read once: a DataIter, the name of a Parquet file, of a folder or a pattern of files, a
        pyarrow Dataset. A table on a GPU stays there: CuPy arrays, cudf frames, all that has __cuda_array_interface__ or speaks
        DLPack. Labels, weights and margins do not.
    label : (n_rows,) or (n_rows, n_targets), kept as float32. missing_labels : what a NaN in it is: an "error", or with
        "mask" a target that the row does not have. It then enters no gradient, base_score or metric; a row without any is as
        good as absent.
    weight : (n_rows,), non-negative, or one for each query. A row of weight 0 is as good as absent from training.
    base_margin : (n_rows,) or (n_rows, n_outputs). Replaces base_score.
    missing : value that means missing besides NaN; None and NaN mean NaN only.
    feature_names, feature_types : replace those of a frame. What get_categories returns, as feature_types, numbers the frame's
        categories; others are missing, or an error, as in prediction.
    sparse_absent : what a sparse table does not store is "missing", or "zero". None: missing in training, and in prediction
        what the model remembers.
    nthread : threads for reading; None as configured. enable_categorical : False refuses columns of
        categories. silent, data_split_mode=0 : accepted for XGBoost's sake.
    group : rows of each query, in row order. qid : (n_rows,) non-decreasing integers, the query of each row, instead.
    feature_weights : (n_features,), non-negative, for sampling columns; the parameter of that name goes before it.
    Of Parquet files and queries, label, weight, base_margin, qid and the bounds may be names of columns, which then are no
    features.
    cache_memory, cache_folder : of a stream, bytes of its values that stay in memory (None: a third of what is free), and
        where the others lie, in files of this process alone (None: the folder for temporary files).

    Arrays and frames are not copied: they are read when they are predicted, and binned when they are first trained on, and what
    has been found out about them is kept: bins here, and by a Booster margins. Raises ValueError for data of the wrong shape,
    kind or length, naming it.
    """

    #: Whether what could be read whole, a text file or a lazy frame, is read as a stream.
    _streams_all = False

    @also_by_position("weight", "base_margin", "missing", "silent", "feature_names", "feature_types", "nthread")
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
        data_split_mode: int = 0,
        sparse_absent: str | None = None,
        missing_labels: str = "error",
        cache_memory: int | None = None,
        cache_folder: str | None = None,
    ) -> None:
        if missing_labels not in ("error", "mask"):
            raise ValueError(f"missing_labels must be 'error' or 'mask', got {missing_labels!r}.")
        if data_split_mode != 0:
            raise not_built("data_split_mode=1, columns over workers,", "Leave it out: workers hold rows.")
        if sparse_absent not in (None, "missing", "zero"):
            raise ValueError(f"sparse_absent must be 'missing' or 'zero', got {sparse_absent!r}.")
        info = {
            "label": label, "weight": weight, "base_margin": base_margin, "group": group, "qid": qid,
            "label_lower_bound": label_lower_bound, "label_upper_bound": label_upper_bound, "feature_weights": feature_weights,
        }  # fmt: skip
        numbered = feature_types if isinstance(feature_types, CategoryContainer) else None
        feature_types = None if numbered else feature_types
        if isinstance(data, str | os.PathLike):
            data = as_path("data", data)
        saved = read_saved(data) if isinstance(data, str) and is_saved(data) else None
        if saved is not None:
            info, data = _with_info(saved.info, info), saved.table
            feature_names = saved.feature_names if feature_names is None else feature_names
            feature_types = saved.feature_types if feature_types is None else feature_types
            sparse_absent = sparse_absent or saved.sparse_absent
            missing_labels = "mask" if missing_labels == "mask" else saved.missing_labels
        stream, named = find_stream(data, info, self._streams_all)
        own_folder = as_path("cache_folder", cache_folder) if cache_folder else None
        self._cache_folder = own_folder or (stream.cache_folder if stream else None)
        is_libsvm = saved is not None and saved.may_widen
        if stream is not None:
            shelf = Shelf(room_for_values(cache_memory), self._cache_folder)
            gathered = gather(
                stream.batches(), shelf, missing=missing, feature_names=feature_names, feature_types=feature_types,
                missing_labels=missing_labels,
            )  # fmt: skip
            info = _with_info(gathered.info, {name: values for name, values in info.items() if name not in named})
            data, missing, is_libsvm = gathered.table, gathered.missing, stream.may_widen
            feature_names, feature_types = gathered.feature_names, gathered.feature_types
        elif isinstance(data, str):
            data = read_text(data)
        if isinstance(data, TextTable):
            info = _with_info({"label": data.label, "weight": data.weight, "qid": data.qid}, info)
            data, is_libsvm = data.data, is_sparse(data.data)
        view = TableView.open(data, missing, feature_names, feature_types, sparse_absent, is_libsvm)
        source = view.source
        if source.categories and not enable_categorical:
            raise ValueError(f"column {next(iter(source.categories))!r} holds categories, but enable_categorical is False.")
        self.nthread, self.missing = nthread, source.missing
        self.device = source.device  # number of the CUDA device of the table, where predictions go back to; None: the host
        self._table: TableView | None = view
        self._features = FeatureInfo(
            source.n_features, source.feature_names, source.feature_types, source.categories, source.stored is not None,
            sparse_absent,
        )  # fmt: skip
        if numbered and not (numbered.empty() or view.is_frame):
            raise ValueError("what get_categories returns numbers a frame's categories, of which data has none. Pass letters.")
        if numbered and source.categories:
            self._features = numbered.numbering(self._features)
            self._table = view.recoded(self._features)
        self._info = MatrixInfo(source.n_rows, missing_labels=missing_labels)
        self._bins: Bins | None = None
        self.row_name: Callable[[int], str] | None = None  # what errors call a row, where it came from elsewhere
        self._has_warned_of_names = False  # that it has none although a model has
        self.set_info(**info)

    # -- Columns ------------------------------------------------------------------------------------------------------

    @property
    def feature_names(self) -> list[str] | None:
        """One name per column; None when they have none. A copy."""
        return copy(self._features.names)

    @feature_names.setter
    def feature_names(self, names: Iterable[Any] | None) -> None:
        self._describe(self._features.renamed(names))

    @property
    def feature_types(self) -> list[str] | None:
        """One of XGBoost's letters per column (c: category, i: boolean, int, float, q: any number); None when unknown. A copy."""
        return copy(self._features.types)

    @feature_types.setter
    def feature_types(self, types: Iterable[str] | None) -> None:
        self._describe(self._features.retyped(types))

    @property
    def categories(self) -> Categories:
        """The values of each column of categories, in the order of their codes."""
        return self._features.categories

    @property
    def is_sparse(self) -> bool:
        """Whether the table does not store all its cells."""
        return self._features.is_sparse

    @property
    def sparse_absent(self) -> str | None:
        """What the cells that are not stored are: "missing", "zero", or None: missing in training."""
        return self._features.sparse_absent

    @property
    def has_categories(self) -> bool:
        """Whether a column is of type "c"."""
        return "c" in (self.feature_types or ())

    def _describe(self, features: FeatureInfo) -> None:
        if features is not self._features and self._table is not None:
            self._table = self._table.described(features)
            if features.types != self._features.types:
                self._bins = None  # columns of categories are binned in their own way
        self._features = features

    # -- What XGBoost's class offers ----------------------------------------------------------------------------------

    def num_row(self) -> int:
        return self._info.n_rows

    def num_col(self) -> int:
        return self._features.n_features

    def num_nonmissing(self) -> int:
        """How many values are not missing. Reads the whole table."""
        if self._table is not None:
            return self._table.source.count_present()
        assert self._bins is not None
        return self._bins.binned.count_present()

    def get_data(self) -> Any:
        """The values that are not missing: float32 scipy.sparse.csr_matrix (n_rows, n_features)."""
        assert self._table is not None
        return self._table.source.to_csr()

    def get_categories(self, export_to_arrow: bool = True) -> CategoryContainer:
        """The categories of the columns. export_to_arrow : accepted for XGBoost's sake."""
        return CategoryContainer(self.num_col(), self.feature_names, self.categories)

    def slice(self, rindex: Any, allow_groups: bool = False) -> "DMatrix":
        """The rows with the given numbers, in that order, with their labels, weights and margins. Copies none of the table.

        rindex : integers in [0, n_rows), or bool (n_rows,). allow_groups : queries stay where the rows are whole ones, else
        they are lost; without it they raise ValueError.
        """
        if self._table is None:
            raise ValueError("a QuantileDMatrix keeps only bin numbers and has no slices. Slice a DMatrix, or the table.")
        if len(self._info.group_ptr) and not allow_groups:
            raise ValueError("slice() keeps only whole queries. Use allow_groups=True to go on, without them where they are cut.")
        rows = row_numbers(rindex, self.num_row())
        part = copy(self)
        part._table, part._info, part._bins, part.row_name = self._table.taken(rows), self._info.taken(rows), None, None
        return part

    def slice_with_bins(self, rindex: np.ndarray, bins: Bins, backend: Backend) -> "DMatrix":
        """slice, with the codes of these rows among those of the whole table."""
        part, rows = self.slice(rindex, True), row_numbers(rindex, self.num_row())
        assert part._table is not None
        part._bins = bins.taken(rows, part._table.source, backend)
        return part

    def save_binary(self, fname: Any, silent: bool = True) -> None:
        """Write the table, as float32, and all that is known of its rows and columns to a file of gpuboost's own, which DMatrix
        reads by its name (data/saved.py). silent : accepted for XGBoost's sake."""
        if self._table is None:
            raise not_built("save_binary of a QuantileDMatrix, which keeps only bin numbers,", "Save a DMatrix of its table.")
        info = {**{name: self.get_float_info(name) for name in FLOAT_INFO}, "group": self.get_group()}
        given = {name: values for name, values in info.items() if len(values)}
        save_matrix(as_path("fname", fname), self._table, self._features, given, self._info.missing_labels)

    def get_quantile_cut(self) -> tuple[np.ndarray, np.ndarray]:
        """(uint64 offsets (n_features + 1,), float32 values): feature f owns values[offsets[f]:offsets[f + 1]], the edges of
        its bins. As in XGBoost, 3.4 or later, the first is −∞ and the last above all its values, by their size and 1e-5; the
        edges of categories that have bins of their own are their codes.

        Raises ValueError for a DMatrix that was not trained on yet: it has no cuts.
        """
        binned = self.any_binned()
        if binned is None:
            raise ValueError("this DMatrix has no quantile cuts yet. Train on it first, or use a QuantileDMatrix.")
        cuts = binned.cuts
        assert cuts.extremes is not None
        high = cuts.extremes[:, 1]
        with np.errstate(over="ignore"):
            above = high + (abs(high) + EDGE_MARGIN)
        each = [
            np.arange(n, dtype=np.float32) if n else np.concatenate([[-np.inf], cuts.of(f)[:-1], above[f : f + 1]])
            for f, n in enumerate(cuts.n_categories.tolist())
        ]
        return np.cumsum([0, *map(len, each)]).astype(np.uint64), np.concatenate(each).astype(np.float32)

    def set_info(
        self, *, label: Any = None, weight: Any = None, base_margin: Any = None, group: Any = None, qid: Any = None,
        label_lower_bound: Any = None, label_upper_bound: Any = None, feature_names: Any = None, feature_types: Any = None,
        feature_weights: Any = None,
    ) -> None:  # fmt: skip
        """Set whichever is given; each is checked for length, kind and finite values. Where one is refused, none is set."""
        if group is not None and qid is not None:
            raise ValueError("group and qid both name the queries. Give one of them.")
        features = self._features
        if feature_names is not None:
            features = features.renamed(feature_names)
        if feature_types is not None:
            features = features.retyped(feature_types)
        info = {
            "label": label, "label_lower_bound": label_lower_bound, "label_upper_bound": label_upper_bound, "weight": weight,
            "base_margin": base_margin, "group": group, "qid": qid, "feature_weights": feature_weights,
        }  # fmt: skip
        updated = self._info.updated(self.num_col(), **{name: values for name, values in info.items() if values is not None})
        has_other_rows = not np.array_equal(updated.is_unlabelled, self._info.is_unlabelled)
        if (updated.weight is not self._info.weight or has_other_rows) and self._table is not None:
            self._bins = None  # the cuts depend on the weights
        self._info = updated
        self._describe(features)

    def set_float_info(self, field: str, data: Any) -> None:
        """set_info by name: label, its bounds, weight, base_margin or feature_weights."""
        self.set_info(**{_known_field(field, FLOAT_INFO): data})

    set_float_info_npy2d = set_float_info

    def get_float_info(self, field: str) -> np.ndarray:
        """float32 values of label, its bounds, weight, base_margin or feature_weights; empty where there are none."""
        return _as_given(getattr(self._info, _known_field(field, FLOAT_INFO)))

    def set_uint_info(self, field: str, data: Any) -> None:
        """set_info by name: group or qid."""
        self.set_info(**{_known_field(field, UINT_INFO): data})

    def get_uint_info(self, field: str) -> np.ndarray:
        """ "group_ptr": uint32 (n_groups + 1,), the first row of each query and the number of rows; empty without queries."""
        return getattr(self._info, _known_field(field, ("group_ptr",))).copy()

    def set_label(self, label: Any) -> None:
        """(n_rows,) or (n_rows, n_targets) finite numbers, or NaN with missing_labels="mask". None, here and below: as before."""
        self.set_info(label=label)

    def set_weight(self, weight: Any) -> None:
        """(n_rows,) finite numbers, none negative, or one for each query, which its rows get."""
        self.set_info(weight=weight)

    def set_base_margin(self, margin: Any) -> None:
        """(n_rows,) or (n_rows, n_outputs) finite numbers."""
        self.set_info(base_margin=margin)

    def set_group(self, group: Any) -> None:
        """Rows of each query, (n_groups,) integers that sum to n_rows; the rows of one follow each other."""
        self.set_info(group=group)

    def get_group(self) -> np.ndarray:
        """uint32 (n_groups,), rows of each query; empty when there are none."""
        return np.diff(self._info.group_ptr)

    def get_label(self) -> np.ndarray:
        """float32 (n_rows,) or (n_rows, n_targets); empty when there is none."""
        return _as_given(self._info.label)

    def get_weight(self) -> np.ndarray:
        """float32 (n_rows,); empty when every row weighs 1."""
        return _as_given(self._info.weight)

    def get_base_margin(self) -> np.ndarray:
        """float32 (n_rows,) or (n_rows, n_outputs); empty when there is none."""
        return _as_given(self._info.base_margin)

    # -- What training and prediction read ----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Counts the changes of what is known of rows and columns."""
        return self._info.version + self._features.version

    @property
    def margin_version(self) -> int:
        """Counts the changes of what a model's margins of these rows depend on: base_margin and what is known of columns."""
        return self._info.margin_version + self._features.version

    @property
    def labels(self) -> np.ndarray:
        """float32 (n_targets, n_rows): the label, or without one the lower and the upper bound, two rows. NaN is what a row
        lacks that has others; rows of weight 0 have another row's. Raises ValueError when there is none."""
        return self.labels_for(2 if self.has_bounds and not self.has_label else 1)

    def labels_for(self, label_rows: int) -> np.ndarray:
        """The same for an objective whose targets have so many rows of labels: with 2, bounds go before a label."""
        if label_rows == 2 and (self.has_bounds or not self.has_label and self.num_row() == 0):
            return self._info.of_weight(np.stack([self._info.label_lower_bound, self._info.label_upper_bound]))
        if not self.has_label:
            one_bound = len(self._info.label_lower_bound) != len(self._info.label_upper_bound)
            found = "only bounds, which survival:aft alone takes" if self.has_bounds else "and one bound without the other"
            given = f", {found}" if self.has_bounds or one_bound else ""
            raise ValueError(f"this DMatrix has no label{given}. Pass label=, or call set_label().")
        return self._info.of_weight(self._info.label)

    @property
    def has_label(self) -> bool:
        """Whether there is a label, beside bounds or without."""
        return self._info.label.ndim == 2

    @property
    def lacks_labels(self) -> bool:
        """Whether there are rows without any label, which count for nothing."""
        return len(self._info.is_unlabelled) > 0

    @property
    def has_bounds(self) -> bool:
        """Whether there are bounds, as of survival times."""
        bounds = self._info.label_lower_bound, self._info.label_upper_bound
        return all(len(bound) == self.num_row() > 0 for bound in bounds)

    @property
    def masks_labels(self) -> bool:
        """Whether a row may lack some of its labels."""
        return self._info.missing_labels == "mask" and len(self._info.label) > 1

    @property
    def weights(self) -> np.ndarray:
        """float32 (n_rows,), or empty. 0 for rows without a label."""
        return self._info.row_weight

    @property
    def queries(self) -> Queries:
        """The rows by query; all are one where there are none."""
        first = self._info.group_ptr if len(self._info.group_ptr) else np.array([0, self.num_row()])
        return Queries(np.unique(first).astype(np.int64), self.weights, len(self._info.group_ptr) > 0)

    @property
    def base_margins(self) -> np.ndarray | None:
        """float32 (n_outputs, n_rows), or None."""
        return self._info.base_margin if self._info.base_margin.ndim == 2 else None

    def source(
        self, model_names: list[str] | None, model_categories: Categories, n_features: int, sparse_absent: str = "missing"
    ) -> ColumnSource | None:
        """The table as a model wants it: its columns, in its order, categories by its codes, absent cells as they were trained;
        None when only codes are kept."""
        features = self._features
        if features.is_sparse and features.sparse_absent not in (None, sparse_absent):
            raise ValueError(
                f"the matrix was made with sparse_absent={features.sparse_absent!r}, the model trained with {sparse_absent!r}. "
                "Leave it out: the model knows."
            )
        if model_names is not None and features.names is None and not self._has_warned_of_names:
            self._has_warned_of_names = True
            warn(
                "data has no column names, but the model was trained with names: columns are taken in the model's order. "
                "Pass a frame, or feature_names, to have them matched.",
            )
        if self._table is not None:
            return self._table.as_read_by(features, model_names, model_categories, n_features, sparse_absent)
        is_named = None not in (features.names, model_names)
        if not features.is_as(model_names if is_named else features.names, model_categories, n_features):
            raise ValueError(
                "a QuantileDMatrix keeps only bin numbers, so its columns and categories must be the model's. "
                "Build it with ref= the training matrix, or use a DMatrix."
            )
        return None

    def binned(self, max_bin: int, backend: Backend, comm: Communicator, by_category: bool = False) -> BinnedMatrix:
        """Codes under the table's own cuts, with records: what training reads. The rest as bins()."""
        return self.bins(max_bin, backend, comm, by_category).on(backend)

    def bins(self, max_bin: int, backend: Backend, comm: Communicator, by_category: bool = False) -> Bins:
        """The table under its own cuts. Kept until others are asked for, as any thread may at any time.

        by_category : whether columns of categories have a bin for each.
        """
        by_category &= self.has_categories
        bins = self._bins
        if bins is None or (bins.max_bin, bins.by_category) != (max_bin, by_category):
            assert self._table is not None
            with self.naming_rows():
                binned = bin_by_own_cuts(self._table.source, self.weights, max_bin, backend, comm, by_category=by_category)
            self._bins = bins = Bins(max_bin, binned, by_category)
        return bins

    def codes(self, cuts: Cuts, source: ColumnSource | None, backend: Backend) -> BinnedMatrix | None:
        """Codes under a model's training cuts, without records; None when neither the table nor such codes are kept."""
        is_own = source is None or (self._table is not None and source is self._table.finite)  # columns and categories
        binned = self.any_binned()
        if is_own and binned is not None and binned.cuts.same_as(cuts):
            return backend.memory.move_table(binned)
        if source is None:
            return None
        with self.naming_rows():
            check_category_codes(source, backend.n_threads, cuts)
            return bin_table(source, cuts, backend, with_records=False)

    @contextmanager
    def naming_rows(self, rows: np.ndarray | None = None) -> Iterator[None]:
        """Errors from within say which row of this matrix is meant, by its name. rows : those that are looked at; None: all."""
        try:
            yield
        except RowError as error:
            if isinstance(error.row, str):
                raise
            row = error.row if rows is None else int(rows[error.row])
            error.with_traceback(None)  # whose frames hold the error, and the table until the garbage collector comes
            raise error.at(row if self.row_name is None else self.row_name(row)) from None

    def any_binned(self) -> BinnedMatrix | None:
        """The codes at hand, if any."""
        bins = self._bins
        return None if bins is None else bins.binned

    def require_same_columns(self, comm: Communicator) -> None:
        """ValueError where workers' shards differ in their columns, or in feature_weights. Where only their dictionaries of
        categories differ, all of them get the values of any."""
        shared = shared_categories(self.categories, comm)
        if shared != self.categories:
            self._recode(shared)
        self._features.require_same(self._info.feature_weights, comm)

    def numbered_as(self, categories: Categories) -> "DMatrix":
        """The same rows with a model's codes of categories, where it knows all of them and the table is at hand; else this one,
        which stays as it is: others may be reading it. Copies none of the table."""
        own = self.categories
        if own == categories or own.keys() != categories.keys():
            return self
        known = {name: {(type(value), value) for value in values} for name, values in categories.items()}
        if not all((type(value), value) in known[name] for name, values in own.items() for value in values):
            return self
        numbered = copy(self)
        numbered._recode(categories)
        return numbered

    def _recode(self, categories: Categories) -> None:
        if self._table is not None:
            self._features = self._features.with_categories(categories)
            self._table, self._bins = self._table.recoded(self._features), None


def _as_given(values: np.ndarray) -> np.ndarray:
    """A copy: (n_columns, n_rows) as (n_rows,) for one column, else (n_rows, n_columns); anything of one dimension as it is."""
    return np.array(values[0] if len(values) == 1 and values.ndim == 2 else values.T, order="C")


def _with_info(own: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What a table says of its rows, where nothing else is given; queries are given as group or as qid."""
    if given.get("group") is not None or given.get("qid") is not None:
        own = {name: values for name, values in own.items() if name not in ("group", "qid")}
    return {**own, **{name: values for name, values in given.items() if values is not None}}


def _known_field(field: str, allowed: tuple[str, ...]) -> str:
    if field not in allowed:
        raise ValueError(f"unknown field {field!r}. Use {' or '.join(map(repr, allowed))}.")
    return field
