"""From a kernel to a function of this machine, by way of the LLVM IR that numba-cuda hands to NVVM.

    CudaKernel → numba-cuda's typing and lowering → IR → a check before whatever may be undefined → LLVM → HostKernel.run

The IR is what machine code for a GPU is made from: widths and wrap-around, signed beside unsigned, float32 beside float64,
shifts, atomics, the layout of shared memory and records, and the parameters as device.pack_arguments lays them out. Left to
trust are NVVM, the assembler and the hardware.

What LLVM or a GPU leaves undefined calls ``undefined`` first, which does not come back (ir_rung.py): an access that lies in no
argument and no shared array, or is not aligned to its size; a shift by the width or more; a cast of a float to an integer that
cannot hold it; a division by zero, or of the least integer by −1.
"""

import ctypes
import json
import re
from contextlib import suppress
from functools import cache
from unittest.mock import patch

import llvmlite.binding as llvm
import numpy as np
from numba.cuda.cudadrv import nvvm

from gpuboost.backend.cuda import compiler, kept
from gpuboost.paths import write_file

CAPABILITY = 9, 0
DYNAMIC_BYTES = 232448  # of shared memory: what a block of a Hopper GPU may ask for
MAX_RANGES = 64  # parts of memory that a kernel may touch
STACK_BYTES = 2**18  # around the frame of ``run`` that count as a thread's own
GUARD_BYTES = 64  # between shared arrays
BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8, "ptr": 8}
REGISTERS = {"tid": "thread", "ctaid": "block", "ntid": "block_size", "nctaid": "grid_size"}  # of PTX: variables of RUNTIME
LIBDEVICE = {"ceil": "double", "fabs": "double", "fabsf": "float", "floor": "double", "sqrt": "double", "sqrtf": "float"}
OUTSIDE, SHIFT, CAST, DIVISION = range(4)  # what ``undefined`` is told, beside a value
UNDEFINED = {
    OUTSIDE: "access to {:#x}, which is out of bounds or misaligned",
    SHIFT: "shift by {} or more bits",
    CAST: "cast of a float that does not fit in {} bits",
    DIVISION: "division of {}-bit integers by zero, or with a quotient that does not fit",
}

# NVVM's intrinsics as calls to Python or loads of variables, and the checks.
RUNTIME = f"""
@dynamic_shared = addrspace(3) global [{DYNAMIC_BYTES} x i8] zeroinitializer, align 16
@dynamic_bytes = global i32 0
@n_ranges = global i64 0
@stack = global i64 0
@ranges = global [{MAX_RANGES} x [2 x i64]] zeroinitializer
declare i32 @shuffle(i32, i32, i32, i32)
declare i32 @vote(i32, i32)
declare void @undefined(i32, i64)
declare double @llvm.copysign.f64(double, double)
define {{i32, i1}} @nvvm.shfl.sync.i32(i32 %mask, i32 %kind, i32 %value, i32 %lane, i32 %clamp) {{
  %x = call i32 @shuffle(i32 %mask, i32 %kind, i32 %value, i32 %lane)
  %r = insertvalue {{i32, i1}} undef, i32 %x, 0
  ret {{i32, i1}} %r
}}
define {{i32, i1}} @nvvm.vote.sync(i32 %mask, i32 %kind, i1 %flag) {{
  %wide = zext i1 %flag to i32
  %x = call i32 @vote(i32 %mask, i32 %wide)
  %r = insertvalue {{i32, i1}} undef, i32 %x, 0
  ret {{i32, i1}} %r
}}
define i32 @dynamic_size() {{
  %x = load i32, ptr @dynamic_bytes
  ret i32 %x
}}
define double @__nv_copysign(double %x, double %y) {{
  %z = call double @llvm.copysign.f64(double %x, double %y)
  ret double %z
}}
define void @check(i1 %fine, i32 %what, i64 %value) noinline {{
  br i1 %fine, label %good, label %bad
bad:
  call void @undefined(i32 %what, i64 %value)
  ret void
good:
  ret void
}}
define void @check_access(i64 %first, i64 %size) noinline {{
start:
  %beyond = add i64 %first, %size
  %low_bits = sub i64 %size, 1
  %rest = and i64 %first, %low_bits
  %aligned = icmp eq i64 %rest, 0
  %stack = load i64, ptr @stack
  %depth = sub i64 %stack, %first
  %local = icmp ult i64 %depth, {STACK_BYTES}
  br i1 %local, label %good, label %elsewhere
elsewhere:
  %n = load i64, ptr @n_ranges
  %end = select i1 %aligned, i64 %n, i64 0
  br label %next
next:
  %i = phi i64 [0, %elsewhere], [%j, %look]
  %more = icmp ult i64 %i, %end
  br i1 %more, label %look, label %bad
look:
  %j = add i64 %i, 1
  %p = getelementptr [2 x i64], ptr @ranges, i64 %i, i64 0
  %q = getelementptr [2 x i64], ptr @ranges, i64 %i, i64 1
  %low = load i64, ptr %p
  %high = load i64, ptr %q
  %above = icmp uge i64 %first, %low
  %below = icmp ule i64 %beyond, %high
  %inside = and i1 %above, %below
  br i1 %inside, label %good, label %next
bad:
  call void @undefined(i32 {OUTSIDE}, i64 %first)
  ret void
good:
  ret void
}}
"""
# prmt: byte i of the result is one of the eight of low and high, or its sign.
RUNTIME += """
define i32 @nvvm.prmt(i32 %low, i32 %high, i32 %selector) {
  %l = zext i32 %low to i64
  %h = zext i32 %high to i64
  %up = shl i64 %h, 32
  %both = or i64 %up, %l
  %r0 = add i32 0, 0
"""
for _i in range(4):
    RUNTIME += f"""  %choice{_i} = lshr i32 %selector, {4 * _i}
  %number{_i} = and i32 %choice{_i}, 7
  %narrow{_i} = shl i32 %number{_i}, 3
  %bits{_i} = zext i32 %narrow{_i} to i64
  %moved{_i} = lshr i64 %both, %bits{_i}
  %byte{_i} = trunc i64 %moved{_i} to i8
  %sign{_i} = ashr i8 %byte{_i}, 7
  %flag{_i} = and i32 %choice{_i}, 8
  %signed{_i} = icmp ne i32 %flag{_i}, 0
  %own{_i} = select i1 %signed{_i}, i8 %sign{_i}, i8 %byte{_i}
  %wide{_i} = zext i8 %own{_i} to i32
  %place{_i} = shl i32 %wide{_i}, {8 * _i}
  %r{_i + 1} = or i32 %r{_i}, %place{_i}
"""
RUNTIME += "  ret i32 %r4\n}\n"
for _register, _variable in REGISTERS.items():
    RUNTIME += f"@{_variable} = global i32 0\n"
    RUNTIME += f"define i32 @nvvm.read.ptx.sreg.{_register}.x() {{\n  %x = load i32, ptr @{_variable}\n  ret i32 %x\n}}\n"
    RUNTIME += "".join(f"define i32 @nvvm.read.ptx.sreg.{_register}.{axis}() {{\n  ret i32 0\n}}\n" for axis in "yz")
for _name, _type in LIBDEVICE.items():
    _own = f"@llvm.{_name.removesuffix('f')}.f32" if _type == "float" else f"@llvm.{_name}.f64"
    RUNTIME += f"declare {_type} {_own}({_type})\n"
    RUNTIME += f"define {_type} @__nv_{_name}({_type} %x) {{\n  %y = call {_type} {_own}({_type} %x)\n  ret {_type} %y\n}}\n"


class HostKernel:
    """A kernel for this machine, one thread at a time. run : function of the address of its parameters.

    callbacks : name -> ctypes function, of what it calls: wait_block, nvvm.bar.warp.sync, shuffle, vote, undefined.
    shared : bytes of each static shared array, by its address. thread : number of the running thread in its block, to be set.
    """

    def __init__(self, kernel, choice, callbacks):
        texts, sizes = zip(*map(_for_this_machine, _kept_ir(kernel, choice)))
        module = _linked(*texts)
        _in_registers(module)
        text = _with_checks(str(module))
        module = _linked(text + _entry(text), RUNTIME)
        _optimise(module)
        self._engine = llvm.create_mcjit_compiler(module, _machine())
        missing = {f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")}
        for name in missing:  # one that is neither here nor in RUNTIME: KeyError
            self._engine.add_global_mapping(module.get_function(name), ctypes.cast(callbacks[name], ctypes.c_void_p).value)
        self._engine.finalize_object()
        self.run = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self._engine.get_function_address("run"))
        self.shared = {self._address(name): n_bytes for part in sizes for name, n_bytes in part.items()}
        self.dynamic_shared = self._address("dynamic_shared")
        self.thread = ctypes.c_int32.from_address(self._address("thread"))

    def _address(self, name):
        return self._engine.get_global_value_address(name)

    def set(self, **variables):
        """Variables of RUNTIME: block, block_size, grid_size, dynamic_bytes."""
        for name, value in variables.items():
            ctypes.c_int32.from_address(self._address(name)).value = value

    def allow(self, parts):
        """The memory that the kernel may touch: (address, bytes) of each part."""
        assert len(parts) <= MAX_RANGES
        bounds = np.array([(first, first + n_bytes) for first, n_bytes in parts], np.int64)
        ctypes.memmove(self._address("ranges"), bounds.ctypes.data, bounds.nbytes)
        ctypes.c_int64.from_address(self._address("n_ranges")).value = len(parts)


# ---- From numba-cuda's IR to that of this machine


def _kept_ir(kernel, choice):
    """_nvvm_ir, from the cache that kept.py has on disk where the kernel is one of the package: typing takes up to 10 s."""
    if not all(f.__module__.startswith("gpuboost.") for f in (kernel.function, kernel.formula and kernel.formula.py_func) if f):
        return _nvvm_ir(kernel, choice)
    path = kept._kept_path(kernel, choice, CAPABILITY).with_suffix(".ir.json")
    with suppress(OSError, ValueError):
        return json.loads(path.read_text())
    modules = _nvvm_ir(kernel, choice)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(str(path), json.dumps(modules).encode())
    return modules


def _nvvm_ir(kernel, choice):
    """The modules that numba-cuda hands to NVVM, the kernel's first. Their pointers are typed; today's LLVM reads that, and
    forgets the types."""
    found = []

    class Stop(Exception):
        pass

    def stop(modules, **options):
        found.extend(modules)
        raise Stop

    with patch.object(nvvm, "compile_ir", stop), patch.dict(compiler._latest, clear=True), suppress(Stop):
        compiler.to_ptx(kernel, choice, CAPABILITY)
    return found


def _for_this_machine(text):
    """IR with functions of RUNTIME and callbacks in place of NVVM's; and its shared arrays, {name: bytes}."""
    text = re.sub(r'^(?:target |!nvvm|@"llvm.used").*$', "", text, flags=re.MULTILINE)
    text = text.replace('asm sideeffect "mov.u32 $0, %dynamic_smem_size;", "=r"()', "@dynamic_size()")
    for name in re.findall(r'^@("\w+") = external addrspace\(3\)', text, re.MULTILINE):
        text = text.replace(f"@{name}", "@dynamic_shared")
    before, first, others = text.partition("@dynamic_shared = external")  # arrays of any type are one memory
    text = before + first + re.sub(r"^@dynamic_shared = external.*\n", "", others, flags=re.MULTILINE)
    array = r'^@"(\w+)" = addrspace\(3\) global \[(\d+) x (\w+)\].*$'
    shared = re.findall(array, text, re.MULTILINE)
    assert len(shared) == text.count("= addrspace(3) global")
    guard = rf"\g<0>\n@guard_\1 = addrspace(3) global [{GUARD_BYTES} x i8] zeroinitializer"  # or two arrays might touch
    text = re.sub(array, guard, text, flags=re.MULTILINE)
    barriers = iter(range(text.count("@")))  # each in the text has a number, to tell when threads wait at different ones
    text = re.sub(r'call void @"llvm.nvvm.barrier0"\(\)', lambda _: f"call void @wait_block(i32 {next(barriers)})", text)
    text = re.sub(r'^declare void @"llvm.nvvm.barrier0".*$', "", text, flags=re.MULTILINE).replace('"llvm.nvvm.', '"nvvm.')
    text += "\ndeclare void @wait_block(i32)\ndeclare i32 @dynamic_size()\n"
    return text, {name: int(n) * BYTES[element] for name, n, element in shared}


def _entry(text):
    """The function ``run``, which takes the kernel's arguments from slots of eight bytes, and notes where its stack is."""
    name, parameters = re.search(r"^define void @(\S+?)\((.*)\) .*{$", text, re.MULTILINE).groups()
    types = re.findall(r"(\w+) %", parameters)
    loads = "".join(
        f"  %p{i} = getelementptr i64, ptr %slots, i64 {i}\n  %a{i} = load {t}, ptr %p{i}\n" for i, t in enumerate(types)
    )
    return f"""
@stack = external global i64
define void @run(ptr %slots) {{
  %top = alloca i64
  %here = ptrtoint ptr %top to i64
  %above = add i64 %here, {STACK_BYTES // 2}
  store i64 %above, ptr @stack
{loads}  call void @{name}({", ".join(f"{t} %a{i}" for i, t in enumerate(types))})
  ret void
}}
"""


_TYPE = r"(\w+|\[\d+ x \w+\]|\{ [\w, ]+ \})"  # a number, or numbers that a function returns together through memory
_ACCESS = re.compile(
    rf"(?:= load (?:volatile )?{_TYPE}, |store (?:volatile )?{_TYPE} .+?, (?=ptr)|= atomicrmw \w+ )"
    r"(ptr(?: addrspace\([13]\))?) ([%@][^,\s]+)(?:, (\w+))?"
)
_SHIFT = re.compile(r"= (?:shl|lshr|ashr) (?:nuw |nsw |exact )*i(\d+) [^,]+, (%\S+)")
_CAST = re.compile(r"= fpto([su])i (float|double) (%\S+) to i(\d+)")
_DIVISION = re.compile(r"= ([su])(?:div|rem) (?:exact )?i(\d+) ([^,]+), (%\S+)")


def _with_checks(text):
    """IR with a check before whatever may be undefined. What is left of variables in memory is the thread's own."""
    lines = []
    for n, line in enumerate(text.splitlines()):
        lines += [*_checks_of(line, n), line]
    return "\n".join(lines) + "\ndeclare void @check(i1, i32, i64)\ndeclare void @check_access(i64, i64)\n"


def _checks_of(line, n):
    if not line.startswith(" "):
        return []
    if m := _ACCESS.search(line):
        checks = [f"%c{n} = ptrtoint {m[3]} {m[4]} to i64"]
        for k, (offset, size) in enumerate(_layout(m[1] or m[2] or m[5])):
            checks.append(f"%c{n}_{k} = add i64 %c{n}, {offset}")
            checks.append(f"call void @check_access(i64 %c{n}_{k}, i64 {size})")
        return checks
    assert not re.search(r"= (?:load|atomicrmw|cmpxchg) |^ +store ", line), line
    checks = []
    if m := _SHIFT.search(line):
        what, bits = SHIFT, m[1]
        checks = [f"%c{n} = icmp ult i{bits} {m[2]}, {bits}"]
    elif m := _CAST.search(line):
        what, bits = CAST, m[4]
        least = f"oge {m[2]} {m[3]}, {-(2.0 ** (int(bits) - 1)):.1f}" if m[1] == "s" else f"ogt {m[2]} {m[3]}, -1.0"
        beyond = 2.0 ** (int(bits) - (m[1] == "s"))
        checks = [f"%l{n} = fcmp {least}", f"%h{n} = fcmp olt {m[2]} {m[3]}, {beyond:.1f}", f"%c{n} = and i1 %l{n}, %h{n}"]
    elif m := _DIVISION.search(line):
        what, bits = DIVISION, m[2]
        checks = [f"%c{n} = icmp ne i{bits} {m[4]}, 0"]
        if m[1] == "s":
            least = f"%l{n} = icmp ne i{bits} {m[3]}, {-(2 ** (int(bits) - 1))}"
            fits = [least, f"%m{n} = icmp ne i{bits} {m[4]}, -1", f"%f{n} = or i1 %l{n}, %m{n}"]
            checks = [f"%z{n} = icmp ne i{bits} {m[4]}, 0", *fits, f"%c{n} = and i1 %z{n}, %f{n}"]
    return [*checks, f"call void @check(i1 %c{n}, i32 {what}, i64 {bits})"] if checks else []


def _layout(kind):
    """(offset, size) in bytes of each number of a type that _TYPE matches: aligned to its size, as LLVM lays them out."""
    count, element = re.fullmatch(r"(?:\[(\d+) x )?(.+?)\]?", kind).groups()
    numbers, end = [], 0
    for number in element.strip("{ }").split(", ") * int(count or 1):
        offset = -(-end // BYTES[number]) * BYTES[number]
        numbers.append((offset, BYTES[number]))
        end = offset + BYTES[number]
    return numbers


# ---- LLVM


@cache
def _initialise():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _machine():
    """A new one: an engine owns its own."""
    _initialise()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1, jit=True
    )


def _linked(text, *others):
    module = llvm.parse_assembly(text)
    for other in others:
        module.link_in(llvm.parse_assembly(other))
    return module


def _in_registers(module):
    """Variables move to registers, and nothing else changes: loads and stores that remain are those of the kernel."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.run(module, llvm.create_pass_builder(_machine(), llvm.create_pipeline_tuning_options(speed_level=0)))


def _optimise(module):
    builder = llvm.create_pass_builder(_machine(), llvm.create_pipeline_tuning_options(speed_level=1))
    builder.getModulePassManager().run(module, builder)
