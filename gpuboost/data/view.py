"""A table as models read it: their columns in their order, categories by their codes, absent cells as they were trained."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gpuboost.data.feature_info import Categories, FeatureInfo
from gpuboost.data.tables.open import FRAMES, LoadedTable, load_table, open_table
from gpuboost.data.tables.source import ColumnSource
from gpuboost.data.tables.sparse import SparseTable
from gpuboost.data.tables.stack import Stack

__all__ = ["ABSENT_VALUES", "TableView"]

ABSENT_VALUES = {"missing": np.nan, "zero": 0.0}


@dataclass(frozen=True, eq=False)
class TableView:
    """A table that is kept, to be read as often as asked, or some of its rows.

    loaded : the whole table. rows : intp (n,), the numbers of the rows that are meant; None: all.
    source : these rows, with the table's own columns, values unchecked: training has its own check, in the sketch.
    may_widen : whether further columns of a model are absent here: a LIBSVM file names only those it fills.
    missing : the value that means missing besides NaN, as it was given.
    """

    loaded: LoadedTable
    source: ColumnSource
    may_widen: bool
    missing: float | None = None
    rows: np.ndarray | None = None

    @staticmethod
    def open(
        data: Any, missing: float | None, names: Iterable[Any] | None, types: Iterable[str] | None, sparse_absent: str | None,
        is_libsvm: bool,
    ) -> "TableView":  # fmt: skip
        """A table of a user, with what it says of its columns. Raises what open_table raises."""
        loaded = data if isinstance(data, LoadedTable) else load_table(data)
        source = open_table(loaded, missing=missing, feature_names=names, feature_types=types)
        source = source.absent_as(ABSENT_VALUES[sparse_absent or "missing"])
        return TableView(loaded, source, is_libsvm and names is None, missing)

    @property
    def is_frame(self) -> bool:
        """Whether its columns hold the values of categories; an array's hold codes."""
        table = self.loaded.table
        table = table.tables[0].table if isinstance(table, Stack) else table
        return isinstance(table, FRAMES) or getattr(table, "is_frame", False)

    @cached_property
    def finite(self) -> ColumnSource:
        """What a model of these very columns reads: ``source``, infinite values refused."""
        return self.source.finite()

    def described(self, features: FeatureInfo) -> "TableView":
        """The same table, whose columns are called otherwise now."""
        source = replace(
            self.source, feature_names=features.names, feature_types=features.types, categories=features.categories
        )  # fmt: skip
        return replace(self, source=source, may_widen=self.may_widen and features.names is None)

    def recoded(self, features: FeatureInfo) -> "TableView":
        """The same table, whose categories are numbered by other dictionaries, which know all of them."""
        source = open_table(
            self.loaded, missing=self.missing, feature_names=features.names, feature_types=features.types,
            categories=features.categories,
        )  # fmt: skip
        return replace(self, source=source if self.rows is None else source.taken(self.rows))

    def taken(self, rows: np.ndarray) -> "TableView":
        """Of the rows with the given numbers, intp (n,), in that order. Copies none of the table, unless it is sparse."""
        return replace(self, source=self.source.taken(rows), rows=rows if self.rows is None else self.rows[rows])

    def as_read_by(
        self, features: FeatureInfo, names: list[str] | None, categories: Categories, n_features: int, sparse_absent: str
    ) -> ColumnSource:
        """What a model of these columns reads; infinite values are refused.

        features : of this table. Raises ValueError naming columns that do not match; unknown categories warn (UserWarning).
        """
        absent = ABSENT_VALUES[sparse_absent]
        if features.is_as(names, categories, n_features):
            source = self.source.absent_as(absent)
            return self.finite if source is self.source else source.finite()
        loaded = self.loaded
        if self.may_widen and n_features > features.n_features:
            assert isinstance(loaded.table, SparseTable)
            loaded = LoadedTable(loaded.table.widened(n_features), None)
        source = open_table(
            loaded, missing=self.missing, feature_names=features.names, categories=categories,
            expected_names=names if features.names is not None else None, expected_count=n_features,
        )  # fmt: skip
        source = source if self.rows is None else source.taken(self.rows)
        return source.absent_as(absent).finite()
