"""Tables in files, and queries over them, as streams: Parquet, CSV and LIBSVM files, folders and patterns of such, pyarrow's
datasets and polars' lazy frames."""

import glob
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from typing import Any

from gpuboost.data.streams.batch import Batch, Stream
from gpuboost.data.tables.batches import default_rows
from gpuboost.data.tables.names import PANDAS_INDEX, listing
from gpuboost.data.tables.text_files import is_libsvm, read_text_batches

__all__ = ["PARQUET", "index_columns", "is_query", "is_table_path", "stream_of_path", "stream_of_query", "table_files"]

PARQUET = (".parquet", ".pq")
SUFFIXES = (*PARQUET, ".csv", ".libsvm", ".svm")
Named = Mapping[str, str | list[str]]  # what is known of rows → the columns that hold it


def is_table_path(data: Any) -> bool:
    """Whether this names a Parquet file, a folder, or a pattern of several files."""
    if not isinstance(data, str | os.PathLike):
        return False
    path, _ = _options(os.fspath(data))
    return path.endswith(PARQUET) or os.path.isdir(path) or (glob.has_magic(path) and not os.path.exists(path))


def _options(path: str) -> tuple[str, str]:
    """The path, and the options behind it, "?label_column=0"; a question mark may also belong to a pattern."""
    base, mark, options = path.rpartition("?")
    return (base, mark + options) if mark and "=" in options and "/" not in options.partition("#")[0] else (path, "")


def is_query(data: Any) -> bool:
    """Whether this is a dataset of pyarrow or a lazy frame of polars."""
    module, name = type(data).__module__.partition(".")[0], type(data).__name__
    return (module == "pyarrow" and hasattr(data, "to_batches") and name.endswith("Dataset")) or (
        module == "polars" and name == "LazyFrame"
    )


def stream_of_path(data: str | os.PathLike[str], named: Named) -> Stream:
    """The rows of a file, or of all files of a folder or pattern in the order of their names.

    named : "label" → the column, of a Parquet file, that is the label; and so on. Raises FileNotFoundError where there is none.
    """
    files = table_files(os.fspath(data))

    def batches() -> Iterator[Batch]:
        for file in files:
            if file.endswith(PARQUET):
                yield from _named_columns(_parquet_batches(file), named, file, index_columns(file))
            else:
                yield from _text_batches(file, named)

    return Stream(batches, may_widen=not any(file.endswith(PARQUET) for file in files) and all(map(is_libsvm, files)))


def index_columns(path: str) -> set[str]:
    """What a Parquet file holds of a pandas frame's index, which is no column of the frame: nothing is learnt from it. None of a
    file that cannot be read, which its reader says, and of another kind of file."""
    if not path.endswith(PARQUET):
        return set()
    try:
        if find_spec("pyarrow"):
            import pyarrow.parquet

            schema = pyarrow.parquet.read_schema(path)
            return _index_of(schema.names, (schema.metadata or {}).get(b"pandas"))
        import polars

        return _index_of(polars.read_parquet_schema(path), polars.read_parquet_metadata(path).get("pandas"))
    except Exception:  # whatever either library raises
        return set()


def _index_of(names: Iterable[str], recorded: str | bytes | None) -> set[str]:
    """The columns of an index among these. recorded : what pandas wrote beside them, JSON."""
    index = json.loads(recorded or "{}").get("index_columns", ())
    return {name for name in index if isinstance(name, str)} | set(filter(PANDAS_INDEX.fullmatch, names))


def table_files(path: str) -> list[str]:
    """The file of that name, or the files of a folder or pattern in the order of their names, each with the options behind it.
    Raises FileNotFoundError where there is none."""
    path, options = _options(path)
    if os.path.isdir(path):
        found = sorted(glob.glob(os.path.join(glob.escape(path), "**"), recursive=True))
        says_form = "format=" in options
        files = [file for file in found if os.path.isfile(file) and (says_form or file.endswith(SUFFIXES))]
        if not files:
            ending = "" if says_form else f" that ends in {', '.join(SUFFIXES)}"
            raise FileNotFoundError(f"the folder {path!r} holds no file{ending}.")
        if "=" in os.path.dirname(os.path.relpath(files[0], path)):
            raise ValueError(
                f"the folder {path!r} is partitioned by columns, which its files lack ({os.path.relpath(files[0], path)}). "
                f"Pass pyarrow.dataset.dataset({path!r}, partitioning='hive')."
            )
    elif os.path.exists(path) or not glob.has_magic(path):
        files = [path]
        if not os.path.exists(path.removeprefix("file://")):
            raise FileNotFoundError(f"there is no file {path!r}.")
    else:
        files = sorted(glob.glob(path, recursive=True))
        if not files:
            raise FileNotFoundError(f"no file matches {path!r}.")
    return [file + options for file in files]


def stream_of_query(data: Any, named: Named) -> Stream:
    """What a pyarrow dataset or a polars lazy frame gives."""
    where, index = type(data).__name__, set[str]()
    if hasattr(data, "to_batches"):
        index = _index_of(data.schema.names, (data.schema.metadata or {}).get(b"pandas"))
        read: Callable[[], Iterator[Any]] = partial(data.to_batches, batch_size=_batch_rows(len(data.schema)))
    elif hasattr(data, "collect_batches"):
        names = data.collect_schema().names()
        index = _index_of(names, None)
        read = partial(data.collect_batches, chunk_size=_batch_rows(len(names)), maintain_order=True)
    else:
        raise ImportError("a lazy frame is read in batches by polars 1.35 or newer. Update it, or pass frame.collect().")
    return Stream(lambda: _named_columns(read(), named, where, index))


def _batch_rows(n_columns: int) -> int:
    return default_rows(max(n_columns, 1))


def _parquet_batches(path: str) -> Iterator[Any]:
    """Record batches of pyarrow, or frames of polars where only that is there."""
    if find_spec("pyarrow"):
        import pyarrow.parquet

        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                yield from file.iter_batches(_batch_rows(len(file.schema_arrow)))
        except (pyarrow.ArrowException, OSError) as error:
            if getattr(error, "errno", None) is not None:  # the system's, which names the file
                raise
            raise _unreadable(path, error) from None
    elif find_spec("polars"):
        import polars

        try:
            frame = polars.scan_parquet(path, glob=False)
            yield from frame.collect_batches(chunk_size=_batch_rows(len(frame.collect_schema())), maintain_order=True)
        except polars.exceptions.PolarsError as error:
            raise _unreadable(path, error) from None
    else:
        raise ImportError(f"reading {path} needs pyarrow or polars: pip install pyarrow.")


def _unreadable(path: str, error: Exception) -> ValueError:
    return ValueError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}. Write it anew, or leave it out.")


def _named_columns(tables: Iterator[Any], named: Named, where: str, index: Collection[str]) -> Iterator[Batch]:
    """Batches without the columns that are named, which become what is known of the rows, and those of an index. Tables without
    rows are left out."""
    import narwhals as nw

    for table in tables:
        is_arrow = type(table).__name__ == "RecordBatch"
        frame = nw.from_arrow(table, backend="pyarrow") if is_arrow else nw.from_native(table, eager_only=True)
        info = {}
        for field, columns in named.items():
            for column in [columns] if isinstance(columns, str) else columns:
                if column not in frame.columns:
                    close = get_close_matches(column, frame.columns, n=1)
                    hint = f"Did you mean {close[0]!r}?" if close else f"It has {listing(frame.columns)}."
                    raise ValueError(f"{field}={column!r}: {where} has no such column. {hint}")
            info[field] = frame[columns].to_numpy()
        used = {name for columns in named.values() for name in ([columns] if isinstance(columns, str) else columns)}
        if len(frame):
            yield Batch(frame.drop(list(used.union(index)), strict=False).to_native(), info)


def _text_batches(uri: str, named: Named) -> Iterator[Batch]:
    for field, columns in named.items():
        raise ValueError(
            f"{field}={columns!r} names a column, but text files are read by number. Use '{uri}?label_column=0' for a label, or "
            f"pyarrow.dataset.dataset({uri!r}, format='csv') where there is a header."
        )
    for table in read_text_batches(uri, default_rows(1) // 64):
        known = {"label": table.label, "weight": table.weight, "qid": table.qid}
        yield Batch(table.data, {name: values for name, values in known.items() if values is not None})
