"""Memory of a GPU, and the rule that all work on it is done with its device current, in phases that have names."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from gpuboost.backend.contract import Array, Memory
from gpuboost.backend.cuda.device import Device
from gpuboost.backend.cuda.staging import StagedPages
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.kernels.cuda_common import CudaKernel
from gpuboost.storage.pages import StoredPages

__all__ = ["DeviceMemory", "Launcher", "on_device"]

TABLE_SHARE = 2  # a table may take one part in so many of the memory that is free, while it is binned: codes need a part, too

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def on_device(*contracts: type) -> Callable[[C], C]:
    """Class decorator: every operation of these contracts runs with the device of ``self.device`` current, and is a phase that
    profilers see, "Trees.build_histograms"."""

    def wrap(method: Callable[P, R], phase: str) -> Callable[P, R]:
        @wraps(method)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            device: Device = args[0].device  # type: ignore[attr-defined]
            with device.current(), device.phase(phase):
                return method(*args, **kwargs)

        return wrapped

    def decorate(cls: C) -> C:
        for name in {name for contract in contracts for name in vars(contract)}:
            if not name.startswith("_") and callable(method := cls.__dict__.get(name)):
                setattr(cls, name, wrap(method, f"{cls.__name__.removeprefix('Cuda')}.{name}"))
        return cls

    return decorate


class Launcher:
    """Launches the kernels of one training. Their arguments are arrays that live as long as it, and scalars that repeat: what is
    prepared for a launch is kept for the next one like it (Device.launch), and what a tree launches for the next tree."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._prepared: dict[object, Callable[[], None]] = {}
        self._done: dict[Hashable, tuple[object, ...]] = {}  # by keys of steps that were done one by one, their arrays
        self._recorded: dict[Hashable, Callable[[], None] | None] = {}

    def __call__(self, kernel: CudaKernel, *arguments: object, **work: int) -> None:
        self.device.launch(kernel, *arguments, prepared=self._prepared, **work)

    def repeat(self, key: Hashable, steps: Callable[[], None], *arrays: object) -> None:
        """Do steps that this launcher can record (Device.record): one by one when the key and these very arrays come first, since
        then kernels are loaded and arrays allocated; later in one go. The arrays are kept: what follows one in its place would be
        taken for it."""
        key = key, *map(id, arrays)
        if key not in self._done:
            steps()
            self._done[key] = arrays
            return
        if key not in self._recorded:
            self._recorded[key] = self.device.record(steps)
        (self._recorded[key] or steps)()

    def forget(self) -> None:
        """Arrays were replaced."""
        self._prepared.clear()
        self._done.clear()
        self._recorded.clear()


@on_device(Memory)
class DeviceMemory(Memory):
    """CuPy arrays on one device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.name = device.memory_name

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype | type | str) -> Array:
        return self.device.zeros(shape, dtype)

    def may_keep(self, n_bytes: int) -> bool:
        return n_bytes <= self.device.free_bytes() // TABLE_SHARE

    def put(self, array: Array) -> Array:
        return self.device.put(array)

    def spread(self, values: np.ndarray, n: int) -> Array:
        array = self.device.empty((len(values), n), values.dtype)
        array[...] = self.device.put(values)[:, None]
        return array

    def copy(self, source: Array, target: Array) -> None:
        super().copy(source, target)

    def fetch(self, array: Array) -> np.ndarray:
        return self.device.fetch(array)

    def move_table(self, binned: BinnedMatrix) -> BinnedMatrix:
        stored = binned.pages.home
        if binned.memory == self.name or not isinstance(stored, StoredPages):
            return super().move_table(binned)
        return replace(binned, pages=StagedPages(self.device, stored), memory=self.name)
