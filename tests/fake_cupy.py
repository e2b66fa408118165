"""Stand-ins for CuPy and cudf on a machine without a GPU, as far as data/tables/ and its callers use them.

They keep CuPy's promise that matters here: nothing goes to the host unless someone says ``get()``. What would copy on the way
(np.asarray of an array, NumPy arrays as operands, indices or assigned values) raises TypeError, as with CuPy; so does work on
an array of another device than the current one, which CuPy may allow, but slowly. ``copied`` counts the bytes that get() copied.

    monkeypatch.setitem(sys.modules, "cupy", fake_cupy.cupy())
    monkeypatch.setitem(sys.modules, "cudf", fake_cupy.cudf())
"""

from types import ModuleType, SimpleNamespace
from typing import Any

import fake_cuda
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class Device:
    """A CUDA device; the one of the innermost ``with`` is the current one."""

    def __init__(self, number: int | None = None) -> None:
        self.id = module.cuda.machine.device if number is None else number

    def __enter__(self) -> "Device":
        module.cuda.machine.own.devices.append(self.id)
        return self

    def __exit__(self, *exception: Any) -> None:
        module.cuda.machine.own.devices.pop()


class ndarray(NDArrayOperatorsMixin):
    """cupy.ndarray: NumPy's values on a numbered device."""

    def __init__(self, values: np.ndarray, device: int | None = None) -> None:
        self._values = values
        self.device = Device(device)

    shape = property(lambda self: self._values.shape)
    strides = property(lambda self: self._values.strides)
    dtype = property(lambda self: self._values.dtype)
    ndim = property(lambda self: self._values.ndim)
    size = property(lambda self: self._values.size)
    nbytes = property(lambda self: self._values.nbytes)
    itemsize = property(lambda self: self._values.itemsize)
    flags = property(lambda self: self._values.flags)
    data = property(lambda self: fake_cuda.MemoryPointer(self._values.ctypes.data))
    T = property(lambda self: ndarray(self._values.T, self.device.id))
    __cuda_array_interface__ = property(lambda self: self._values.__array_interface__)

    def __len__(self) -> int:
        return len(self._values)

    def __bool__(self) -> bool:
        return bool(self._read())

    def __int__(self) -> int:
        return int(self._read())

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> "ndarray":
        return self._computed(lambda: getattr(ufunc, method)(*map(unwrap, inputs), **kwargs))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> "ndarray":
        return self._computed(lambda: function(*map(unwrap, args), **kwargs))

    def __getitem__(self, index: Any) -> "ndarray":
        if isinstance(index, ndarray):
            return self._computed(lambda: self._values[index._values])
        part = self._values[unwrap_index(index)]
        if np.may_share_memory(part, self._values) or part.size == 0:
            return ndarray(part, self.device.id)
        return self._computed(lambda: self._values[unwrap_index(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._computed(lambda: self._values.__setitem__(unwrap_index(index), unwrap(value)))

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: Any) -> "ndarray":
        return ndarray(self._values.reshape(*shape), self.device.id)

    def view(self, dtype: Any) -> "ndarray":
        return ndarray(self._values.view(dtype), self.device.id)

    def astype(self, dtype: Any) -> "ndarray":
        with np.errstate(over="ignore", invalid="ignore"):  # a GPU does not warn
            return self._computed(lambda: self._values.astype(dtype))

    def copy(self, order: str = "C") -> "ndarray":
        return self._computed(lambda: self._values.copy(order))

    def sort(self) -> None:
        self._computed(lambda: self._values.sort())

    def any(self, axis: int | None = None) -> "ndarray":
        return self._computed(lambda: self._values.any(axis=axis))

    def sum(self, axis: int | None = None) -> "ndarray":
        return self._computed(lambda: self._values.sum(axis=axis))

    def min(self, axis: int | None = None) -> "ndarray":
        return self._computed(lambda: self._values.min(axis=axis))

    def max(self, axis: int | None = None) -> "ndarray":
        return self._computed(lambda: self._values.max(axis=axis))

    def get(self) -> np.ndarray:
        module.copied += self.nbytes
        return self._read()

    def _read(self) -> np.ndarray:
        module.cuda.machine.stream.synchronize()
        return self._values.copy()

    def _computed(self, compute: Any) -> "ndarray":
        """The result of a kernel that reads this array, on the current stream."""
        if self.device.id != Device().id:
            raise TypeError(f"the array lies on device {self.device.id}, the current device is {Device().id}")
        module.cuda.machine.note("cupy")
        module.cuda.machine.stream.run()
        return new(np.asarray(compute()))


def new(values: np.ndarray) -> ndarray:
    """An array in memory of its own, which lasts."""
    module.cuda.machine.refuse_in_capture("memory is allocated")
    module.cuda.machine.kept.append(values)
    return ndarray(values)


def unwrap(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    return value._values if isinstance(value, ndarray) else value


def unwrap_index(index: Any) -> Any:
    return tuple(map(unwrap, index)) if isinstance(index, tuple) else unwrap(index)


def asarray(data: Any, dtype: Any = None) -> ndarray:
    if isinstance(data, ndarray):
        return data if dtype in (None, data.dtype) else data.astype(dtype)
    if hasattr(data, "__cuda_array_interface__"):
        if "mask" in data.__cuda_array_interface__:
            raise ValueError("CuPy currently does not support masked arrays.")
        return ndarray(np.asarray(SimpleNamespace(__array_interface__=data.__cuda_array_interface__, owner=data)))
    return new(np.array(data, dtype))


def ascontiguousarray(array: ndarray, dtype: Any = None) -> ndarray:
    if array.flags.c_contiguous and dtype in (None, array.dtype):
        return array
    return array._computed(lambda: np.ascontiguousarray(array._values, dtype))


def from_dlpack(data: Any) -> ndarray:
    _, number = data.__dlpack_device__()
    on_host = SimpleNamespace(__dlpack__=data.__dlpack__, __dlpack_device__=lambda: (1, 0))
    return ndarray(np.from_dlpack(on_host), number)


module = ModuleType("cupy")


def cupy() -> ModuleType:
    """The module, with nothing copied yet and device 0 the current one."""
    contents = {
        "ndarray": ndarray,
        "asarray": asarray,
        "ascontiguousarray": ascontiguousarray,
        "from_dlpack": from_dlpack,
        "empty": lambda *args, **kwargs: ndarray(module.cuda.machine.memory(*args, **kwargs)),
        "zeros": lambda *args, **kwargs: new(np.zeros(*args, **kwargs)),
        "full": lambda *args, **kwargs: new(np.full(*args, **kwargs)),
        "arange": lambda *args, **kwargs: new(np.arange(*args, **kwargs)),
        "where": lambda condition, x, y: condition._computed(lambda: np.where(*map(unwrap, (condition, x, y)))),
        "cumsum": lambda array: array._computed(lambda: np.cumsum(array._values)),
        "abs": np.abs,
        "isfinite": np.isfinite,
        "cuda": fake_cuda.cuda(fake_cuda.Machine(), Device),
        "get_default_memory_pool": lambda: module.cuda.pool,
        "is_available": lambda: True,
        "copied": 0,
    }
    module.__dict__.update(contents)
    return module


# ---- cudf


class CategoricalDtype:
    kind = "O"

    def __repr__(self) -> str:
        return "category"


class Series:
    """cudf.Series: a pandas Series on the device. As with cudf, dtypes are NumPy's, and null is not NaN."""

    ndim = 1

    def __init__(self, data: Any, dtype: Any = None) -> None:
        import pandas

        self._pandas = pandas.Series(data, dtype=dtype)

    def __len__(self) -> int:
        return len(self._pandas)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a host NumPy array via __array__ is not allowed.")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.values.__cuda_array_interface__ | ({"mask": None} if self.null_count else {})

    @property
    def shape(self) -> tuple[int]:
        return self._pandas.shape

    @property
    def dtype(self) -> Any:
        dtype = self._pandas.dtype
        if dtype == "category":
            return CategoricalDtype()
        if isinstance(dtype, np.dtype):
            return dtype
        return getattr(dtype, "numpy_dtype", np.dtype(object))  # of Int64 and the like; text

    @property
    def _is_null(self) -> Any:
        is_float = isinstance(self._pandas.dtype, np.dtype) and self._pandas.dtype.kind == "f"
        return self._pandas.isna() & (not is_float)

    @property
    def null_count(self) -> int:
        return int(self._is_null.sum())

    @property
    def values(self) -> ndarray:
        if self.null_count:
            raise ValueError("Column must have no nulls.")
        if getattr(self.dtype, "kind", "O") not in "biuf":
            raise TypeError("Data must be numeric")
        return ndarray(self._pandas.to_numpy(self.dtype))

    @property
    def iloc(self) -> Any:
        return Rows(lambda rows: Series(self._pandas.iloc[unwrap(rows)]))

    def isnull(self) -> "Series":
        return Series(self._pandas.isna())

    def fillna(self, value: Any) -> "Series":
        return Series(self._pandas.fillna(value))

    def astype(self, dtype: str) -> "Series":
        return Series(self._pandas.astype(dtype))

    @property
    def cat(self) -> Any:
        codes = self._pandas.cat.codes.astype("Int16")
        codes[codes == -1] = None  # cudf's codes of null are null
        categories = self._pandas.cat.categories
        return SimpleNamespace(codes=Series(codes), categories=SimpleNamespace(to_pandas=lambda: categories))

    def to_pandas(self) -> Any:
        return self._pandas


class DataFrame:
    """cudf.DataFrame of a pandas one."""

    def __init__(self, frame: Any) -> None:
        self._pandas = frame
        self.shape, self.columns = frame.shape, frame.columns

    def __iter__(self) -> Any:
        return iter(self._pandas)

    @property
    def iloc(self) -> Any:
        return Rows(lambda at: Series(self._pandas.iloc[at]))

    def to_pandas(self) -> Any:
        return self._pandas


class Rows:
    def __init__(self, take: Any) -> None:
        self.take = take

    def __getitem__(self, index: Any) -> Any:
        return self.take(index)


def cudf() -> ModuleType:
    """The module; its DataFrame.from_pandas and Series.from_pandas are the constructors."""
    fake = ModuleType("cudf")
    fake.__dict__.update(DataFrame=DataFrame, Series=Series, Index=type("Index", (), {}), CategoricalDtype=CategoricalDtype)
    fake.from_pandas = lambda data: DataFrame(data) if data.ndim == 2 else Series(data)  # type: ignore[attr-defined]
    return fake
