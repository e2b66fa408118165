"""What can be read off a model: its file, names, attributes, dumps and importances."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from typing import Any

from gpuboost import inspection
from gpuboost.config import get_config
from gpuboost.data.categories import CategoryContainer
from gpuboost.data.feature_info import FeatureInfo
from gpuboost.model.model import Model
from gpuboost.model_io import dump_trees, dumps, save_model
from gpuboost.model_io.dump import join_dump, read_feature_map
from gpuboost.paths import as_path, write_file

__all__ = ["ModelView"]


class ModelView(ABC):
    """The reading methods of Booster. Each raises NotFittedError where nothing is known of a model yet."""

    @property
    @abstractmethod
    def model(self) -> Model:
        """What a model file holds. Raises NotFittedError before training."""

    @property
    @abstractmethod
    def shown(self) -> Model:
        """The model to be looked at; before training what is known of it."""

    @abstractmethod
    def take_model(self, model: Model) -> None:
        """Go on from another model."""

    def save_model(self, fname: str | os.PathLike[str]) -> None:
        """Write XGBoost's model file: JSON where fname ends in .json, else UBJSON. Two equal models give equal bytes."""
        save_model(self.model, fname)

    def save_raw(self, raw_format: str = "ubj") -> bytearray:
        """The model file as bytes, "ubj" or "json"; the model comes back from both bit by bit."""
        return bytearray(dumps(self.model, raw_format, get_config()["category_container"]))

    def num_features(self) -> int:
        return self.shown.n_features

    def get_categories(self, export_to_arrow: bool = True) -> CategoryContainer:
        """The categories of the columns that it was trained on. export_to_arrow : accepted for XGBoost's sake."""
        return CategoryContainer(self.shown.n_features, self.shown.feature_names, self.shown.categories)

    @property
    def feature_names(self) -> list[str] | None:
        """The names of the columns, which can be set: a copy."""
        return copy(self.shown.feature_names)

    @feature_names.setter
    def feature_names(self, names: Iterable[Any] | None) -> None:
        self._describe(self._features().renamed(names))

    @property
    def feature_types(self) -> list[str] | None:
        """Their types, which can be set: a copy."""
        return copy(self.shown.feature_types)

    @feature_types.setter
    def feature_types(self, types: Iterable[str] | None) -> None:
        self._describe(self._features().retyped(types))

    def _features(self) -> FeatureInfo:
        model = self.model
        return FeatureInfo(model.n_features, model.feature_names, model.feature_types, model.categories, False, None)

    def _describe(self, features: FeatureInfo) -> None:
        names, types, categories = features.names, features.types, features.categories
        self.take_model(replace(self.model, feature_names=names, feature_types=types, categories=categories))

    def get_dump(self, fmap: str | os.PathLike[str] = "", with_stats: bool = False, dump_format: str = "text") -> list[str]:
        """One text per tree: "text", "json" or "dot" (Graphviz). fmap : feature map file whose names and types to use."""
        return dump_trees(self.shown, dump_format, with_stats, *read_feature_map(fmap))

    def dump_model(
        self, fout: str | os.PathLike[str], fmap: str | os.PathLike[str] = "", with_stats: bool = False, dump_format: str = "text"
    ) -> None:
        """Write get_dump to a file (paths.write_file), laid out as XGBoost does."""
        path, trees = as_path("fout", fout), self.get_dump(fmap, with_stats, dump_format)
        write_file(path, join_dump(trees, dump_format).encode())

    def get_score(
        self, fmap: str | os.PathLike[str] = "", importance_type: str = "weight"
    ) -> dict[str, float | list[float]]:
        """Name → importance of the features that splits use: weight, gain, cover, total_gain or total_cover
        (inspection.py). Of gblinear, by weight: the weight of every column, of several outputs a list."""
        return inspection.feature_scores(self.shown, importance_type, read_feature_map(fmap)[0])

    def get_fscore(self, fmap: str | os.PathLike[str] = "") -> dict[str, float | list[float]]:
        """get_score by weight, the number of splits."""
        return self.get_score(fmap)

    def trees_to_dataframe(self, fmap: str | os.PathLike[str] = "") -> Any:
        """All nodes as a pandas DataFrame."""
        return inspection.trees_to_dataframe(self.shown, *read_feature_map(fmap))

    def get_split_value_histogram(
        self, feature: str, fmap: str | os.PathLike[str] = "", bins: int | None = None, as_pandas: bool = True
    ) -> Any:
        """How often which thresholds of a feature were chosen."""
        return inspection.split_value_histogram(self.shown, feature, bins, as_pandas, read_feature_map(fmap)[0])
