"""The rung between simulator and hardware: kernels run on the CPU as numba-cuda's LLVM IR (ir_compiler.py), thread by thread.

The simulator runs a kernel's text as Python, whose integers have no width; the compile rung makes machine code that nothing runs.
Here the code that numba-cuda types and lowers computes the results: they must be those of the CPU twin, too.

A thread is a greenlet that calls the compiled kernel. Its barriers, shuffles and votes call back into Python and wait in the
simulator's own scheduler, so that its checks, orders of threads and poison hold here as well.

    execute(kernel, *arrays_and_scalars, grid=, block=, shared=, order=, poison=)        as simulator.simulate
"""

import ctypes
import threading
from functools import cache
from types import SimpleNamespace

import numpy as np
from greenlet import getcurrent
from ir_compiler import UNDEFINED, HostKernel
from simulator import POISON, Block, SimulationError, Watcher, in_order, wait

from gpuboost.backend.cuda.device import _choice, pack_arguments

_lock = threading.Lock()


def execute(kernel, *arguments, grid=1, block=32, shared=0, order="forward", poison=POISON):
    """Run a CudaKernel in place on NumPy arrays; parameters as simulator.simulate.

    Raises SimulationError where the simulator's scheduler does, and for what ir_compiler.UNDEFINED lists.
    """
    with _lock:  # where a thread is lies in variables of the compiled kernel
        code = _compiled(kernel, tuple(_choice(kernel, arguments).values()))
        slots = pack_arguments(kernel, tuple(_on_device(a) if isinstance(a, np.ndarray) else a for a in arguments))
        areas = [*code.shared.items(), (code.dynamic_shared, shared)]
        code.allow([*areas, *((a.ctypes.data, a.nbytes) for a in arguments if isinstance(a, np.ndarray))])
        code.set(block_size=block, grid_size=grid, dynamic_bytes=shared)
        facts = SimpleNamespace(block=block, shared={}, watcher=Watcher(), code=code)

        def run():
            code.thread.value = getcurrent().thread.number
            code.run(slots.ctypes.data)

        for number in in_order(range(grid), order, seed=0):
            for address, n_bytes in areas:
                ctypes.memset(address, poison, n_bytes)
            code.set(block=number)
            threads = Block(facts, number, order)
            try:
                threads.run(run, ())
            except BaseException:
                _abandon(threads)
                raise


@cache
def _compiled(kernel, dtypes):
    return HostKernel(kernel, dict(zip(kernel.choices, dtypes)), CALLBACKS)


def _on_device(array):
    """What pack_arguments asks of an array of CuPy."""
    pointer = SimpleNamespace(ptr=array.ctypes.data)
    return SimpleNamespace(size=array.size, itemsize=array.itemsize, data=pointer, shape=array.shape, strides=array.strides)


def _abandon(block):
    """Threads amid machine code can neither go on nor be unwound: nobody may free their greenlets, which would wake them."""
    for thread in block.threads:
        if thread.greenlet and not thread.greenlet.dead:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thread.greenlet))


# ---- What a compiled kernel calls


def _wait(operation, mask, *value):
    thread = getcurrent().thread
    answer = wait(operation, mask, *value)
    thread.block.run_facts.code.thread.value = thread.number
    return answer


def _shuffle(mask, kind, value, lane):
    name = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")[kind]
    return _wait(name, mask, value, lane)


def _undefined(what, value):
    """The thread ends here: what comes next may do anything."""
    getcurrent().parent.throw(SimulationError(UNDEFINED[what].format(value)))


def _callback(result, function, *arguments):
    return ctypes.PYFUNCTYPE(result, *arguments)(function)


CALLBACKS = {
    "wait_block": _callback(None, lambda place: _wait("syncthreads", 0, place), ctypes.c_int32),
    "nvvm.bar.warp.sync": _callback(None, lambda mask: _wait("syncwarp", mask), ctypes.c_uint32),
    "shuffle": _callback(ctypes.c_uint32, _shuffle, ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint32, ctypes.c_int32),
    "vote": _callback(
        ctypes.c_uint32, lambda mask, flag: int(_wait("ballot_sync", mask, bool(flag))), ctypes.c_uint32, ctypes.c_int32
    ),
    "undefined": _callback(None, _undefined, ctypes.c_int32, ctypes.c_int64),
}
