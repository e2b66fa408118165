"""Machine code of a CUDA kernel as a list of instructions with its loops, read from what nvdisasm prints.

    .L_x_2:
            /*0080*/                   LDG.E R2, desc[UR4][R2.64] ;
            /*0090*/                   IADD3 R0, R0, 0x1, RZ ;
            /*00a0*/              @!P0 BRA `(.L_x_2) ;                  -> a loop of three instructions

A loop is what lies between a label and the last branch back to it. The assembler may put what a loop rarely does behind the
kernel's end: that is not counted.
"""

import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gpuboost.backend.cuda.compiler import compile_kernel
from gpuboost.kernels.cuda_common import CudaKernel

INSTALL = "pip install 'gpuboost-trees[cuda13]' cuda-core nvidia-nvjitlink nvidia-cuda-nvdisasm"
LINE = re.compile(r"^(?P<label>\.L\w+):|^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z][\w.]*)(?P<rest>[^;]*);", re.M)


@dataclass(frozen=True)
class Instruction:
    """name : with its modifiers, LDG.E.128. target : label that it branches to, or "". """

    name: str
    target: str = ""


@dataclass(frozen=True)
class Loop:
    """Instructions first to last of a listing, both included."""

    first: int
    last: int
    body: tuple[Instruction, ...]

    def __len__(self) -> int:
        return len(self.body)

    def count(self, names: str) -> int:
        """Instructions whose names begin like this regular expression."""
        return sum(re.match(names, i.name) is not None for i in self.body)

    def holds(self, other: "Loop") -> bool:
        return self is not other and self.first <= other.first and other.last <= self.last


@dataclass(frozen=True)
class Listing:
    """registers : of a thread. loops : the shortest first."""

    instructions: tuple[Instruction, ...]
    loops: tuple[Loop, ...]
    registers: int = 0

    def inner_loops(self, *names: str) -> list[Loop]:
        """Loops around no other one that have instructions of each of these names (Loop.count), the shortest first.

        Raises LookupError where there is none."""
        inner = [loop for loop in self.loops if not any(map(loop.holds, self.loops))]
        found = [loop for loop in inner if all(loop.count(name) for name in names)]
        if not found:
            lengths = ", ".join(str(len(loop)) for loop in inner)
            raise LookupError(f"no inner loop has {' and '.join(names)}; there are loops of {lengths} instructions")
        return found

    def around(self, inner: Loop) -> Loop:
        """The shortest loop around another one."""
        return min((loop for loop in self.loops if loop.holds(inner)), key=len)


def parse(text: str, registers: int = 0) -> Listing:
    """What ``nvdisasm -c`` prints of one kernel."""
    instructions: list[Instruction] = []
    labels, ends = {}, {}
    for match in LINE.finditer(text):
        if match["label"]:
            labels[match["label"]] = len(instructions)
            continue
        target = re.search(r"`\((\.L\w+)\)", match["rest"]) if match["name"].startswith("BRA") else None
        instructions.append(Instruction(match["name"], target[1] if target else ""))
        if target and target[1] in labels:
            ends[target[1]] = len(instructions) - 1
    loops = [Loop(labels[x], end, tuple(instructions[labels[x] : end + 1])) for x, end in ends.items()]
    loops = [loop for loop in loops if len(loop) > 1]  # the endless one behind the end only fills
    return Listing(tuple(instructions), tuple(sorted(loops, key=len)), registers)


def disassembler() -> Path:
    """nvdisasm. Raises ImportError, saying how to get it."""
    name = "nvdisasm.exe" if sys.platform == "win32" else "nvdisasm"
    for folder in sorted(Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*/bin")):
        if (folder / name).exists():
            return folder / name
    raise ImportError(f"machine code is read by nvdisasm: {INSTALL}")


@cache
def disassemble(kernel: CudaKernel, capability: tuple[int, int]) -> Listing:
    """The kernel compiled for a compute capability, of the first of its types. No GPU is needed."""
    choice: dict[str, np.dtype[Any]] = {name: dtypes[0] for name, dtypes in kernel.choices.items()}
    tool, compiled = disassembler(), compile_kernel(kernel, choice, capability)
    if compiled.is_ptx:
        raise ImportError(f"machine code is made by cuda-core and nvJitLink: {INSTALL}")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(compiled.image)
        done = subprocess.run([tool, "-c", file], capture_output=True, text=True, check=True)
    return parse(done.stdout, compiled.registers)
