"""kernels/cuda_common.py: the signature of a kernel, and the names that whoever runs it fills in."""

from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from cuda_runners import each_runner
from numba import int64

import gpuboost.kernels
from gpuboost.kernels import structs
from gpuboost.kernels.cuda_common import (
    ArgumentType,
    DeviceFunction,
    all_kernels,
    bind,
    cuda,
    cuda_kernel,
    device_function,
    owner_by_block,
    owner_of,
)

# ---------------------------------------------------------------------------------------------------------------------
# Signatures


def test_a_signature_gives_type_and_dimensions_of_each_argument():
    @cuda_kernel("rows: int32[:], codes: uint8[:, :], gpair: float64[:, :, :], n: int64, scale: float32", registers=32)
    def k(rows, codes, gpair, n, scale): ...

    assert k.arguments == {
        "rows": ArgumentType(np.dtype(np.int32), 1), "codes": ArgumentType(np.dtype(np.uint8), 2),
        "gpair": ArgumentType(np.dtype(np.float64), 3), "n": ArgumentType(np.dtype(np.int64), 0),
        "scale": ArgumentType(np.dtype(np.float32), 0),
    }  # fmt: skip
    assert list(k.arguments) == ["rows", "codes", "gpair", "n", "scale"] and k.choices == {}


def test_records_go_by_their_names():
    @cuda_kernel("nodes: NODE[:], progress: PROGRESS[:]")
    def k(nodes, progress): ...

    assert k.arguments == {"nodes": ArgumentType(structs.NODE, 1), "progress": ArgumentType(structs.PROGRESS, 1)}


def test_a_choice_stays_open():
    @cuda_kernel("codes: code[:, :], bins: bin[:]", code=(np.uint8, np.uint16), bin=(np.int32,))
    def k(codes, bins): ...

    assert k.arguments == {"codes": ArgumentType("code", 2), "bins": ArgumentType("bin", 1)}
    assert k.choices == {"code": (np.dtype(np.uint8), np.dtype(np.uint16)), "bin": (np.dtype(np.int32),)}


def test_a_signature_may_span_lines():
    @cuda_kernel("""a: int32[:, :],
                    b: int64""")
    def k(a, b): ...

    assert k.arguments == {"a": ArgumentType(np.dtype(np.int32), 2), "b": ArgumentType(np.dtype(np.int64), 0)}


@pytest.mark.parametrize("arguments", [
    "a: int32[:]", "a: int32[:], b: int64, c: int64", "b: int64, a: int32[:]", "a: int32[:], x: int64",
])  # fmt: skip
def test_names_that_differ_from_the_functions_raise(arguments):
    def k(a, b): ...

    with pytest.raises(TypeError, match=r"k takes \(a, b\)"):
        cuda_kernel(arguments)(k)


def test_an_unknown_type_raises():
    def k(a): ...

    with pytest.raises(TypeError):
        cuda_kernel("a: NOTE[:]")(k)


def test_a_kernel_that_is_refused_is_not_listed():
    before = all_kernels()
    with pytest.raises(TypeError):
        cuda_kernel("b: int32")(lambda a: None)
    assert all_kernels() == before


@pytest.mark.parametrize("block, registers, blocks_per_sm", [
    (256, 32, 8),  # 2048 threads × 32 registers fill a multiprocessor
    (1024, 32, 2), (256, 64, 4), (512, 40, 3), (256, 255, 1), (256, 16, 8),
])  # fmt: skip
def test_as_many_blocks_share_a_multiprocessor_as_threads_and_registers_allow(block, registers, blocks_per_sm):
    k = cuda_kernel("a: int32", block=block, registers=registers)(lambda a: None)
    assert k.blocks_per_sm == blocks_per_sm
    assert k.blocks_per_sm * block <= 2048 and k.blocks_per_sm * block * registers <= 65536


def test_blocks_of_a_multiprocessor_can_be_given():
    assert cuda_kernel("a: int32", blocks_per_sm=3)(lambda a: None).blocks_per_sm == 3


# ---------------------------------------------------------------------------------------------------------------------
# bind

factor = 10


@device_function
def scaled(x):
    return x * factor


def outer(x):
    return scaled(x) + factor


def replaced(values):
    """A replace function by identity, that remembers what it was asked for."""
    asked = []

    def replace(value):
        asked.append(value)
        return next((new for old, new in values if old is value), value)

    return replace, asked


def test_bind_replaces_globals():
    replace, _ = replaced([(factor, 3), (scaled, lambda x: -x)])
    assert bind(outer, replace)(5) == -5 + 3


def test_bind_leaves_the_original_alone():
    bind(outer, lambda value: None)
    assert outer(5) == 60 and factor == 10


def test_bind_asks_for_the_names_that_the_function_uses_and_no_others():
    replace, asked = replaced([])
    bind(outer, replace)
    assert sorted(map(str, asked)) == sorted(map(str, [scaled, factor]))


def test_bind_follows_no_calls():
    replace, _ = replaced([(factor, 3)])
    assert bind(outer, replace)(5) == 5 * 10 + 3


def test_bind_replaces_closure_values():
    def make(step):
        def add(x):
            return x + step

        return add

    one = make(1)
    two = bind(one, lambda value: value + 1)
    assert (one(0), two(0)) == (1, 2)


def test_bind_sees_names_of_nested_code():
    def squares(n):
        return [factor * i for i in range(n)] + list(map(lambda i: factor + i, range(n)))

    replace, _ = replaced([(factor, 2)])
    assert bind(squares, replace)(2) == [0, 2, 2, 3]


def test_bind_keeps_name_and_defaults():
    def f(x, y=4):
        return x + y

    copy = bind(f, lambda value: value)
    assert copy.__name__ == "f" and copy(1) == 5


# ---------------------------------------------------------------------------------------------------------------------
# Names


def test_cuda_names_raise_outside_a_kernel():
    for use in (lambda: cuda.threadIdx.x, lambda: cuda.syncthreads(), lambda: cuda.atomic.add):
        with pytest.raises(RuntimeError, match="exists only inside a CUDA kernel"):
            use()


def test_a_device_function_remains_a_function():
    assert isinstance(scaled, DeviceFunction) and scaled(2) == 20 and scaled.py_func(2) == 20


def test_a_kernel_is_named_by_file_function_and_formula():
    from gpuboost.kernels.scalar import mix32

    def hash_kernel(a): ...

    assert cuda_kernel("a: int32")(hash_kernel).name == "test_cuda_common.hash_kernel"
    around_formula = cuda_kernel("a: int32", formula=mix32)(hash_kernel)
    assert around_formula.name == "test_cuda_common.hash_kernel[gpuboost.kernels.scalar.mix32]"


def test_kernels_of_the_package_have_different_names():
    for module in iter_modules(gpuboost.kernels.__path__):
        import_module(f"gpuboost.kernels.{module.name}")
    # Factories list their kernels once for each formula; those of other tests may be called alike. A module that a test loads
    # anew defines the same ones again: a name must stand for one place in the source.
    places: dict = {}
    for k in all_kernels():
        functions = [k.function] if k.formula is None else [k.function, k.formula.py_func]
        if all(function.__module__.startswith("gpuboost.") for function in functions):
            places.setdefault(k.name, set()).add(tuple((f.__code__.co_filename, f.__code__.co_firstlineno) for f in functions))
    assert places and [name for name, found in places.items() if len(found) > 1] == []


# ---------------------------------------------------------------------------------------------------------------------
# Whose an item is


@cuda_kernel("first: int64[:], n: int64, owners: int64[:, :]", registers=40)
def find_owners_kernel(first, n, owners):
    """owners : int64 (2, items), OUT, as a block and as each thread finds them."""
    partial = cuda.shared.array(32, int64)
    item = int64(cuda.blockIdx.x)
    while item < owners.shape[1]:
        owner = owner_by_block(first, n, item, partial)
        if cuda.threadIdx.x == 0:
            owners[0, item], owners[1, item] = owner, owner_of(first, n, item)
        item += int64(cuda.gridDim.x)


@each_runner
@pytest.mark.parametrize("sizes", [[3], [0, 2, 0, 0, 1, 0], [1] * 31, [2, 0] * 16, [0, 1, 3] * 11, [1, 0, 0] * 400])
def test_owners_of_items(run, sizes):
    """Also where some own nothing, and there are fewer than lanes, as many, or more than their square."""
    first, owners = np.cumsum([0, *sizes]), np.full((2, sum(sizes)), -1)
    run(find_owners_kernel, first, len(sizes), owners, blocks=3)
    assert (owners == np.repeat(np.arange(len(sizes)), sizes)).all()
