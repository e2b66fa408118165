"""Model files in XGBoost's schema, as JSON and UBJSON, and text dumps of trees."""

from gpuboost.model_io.dump import dump_trees
from gpuboost.model_io.files import digest, dumps, load_model, save_model
from gpuboost.model_io.schema import from_document, to_document

__all__ = ["digest", "dump_trees", "dumps", "from_document", "load_model", "save_model", "to_document"]
