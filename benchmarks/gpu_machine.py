"""A GPU in numbers, and how long one takes for some work. Each number is a fact of a data sheet, or named: measured on an H200
on 2026-11-27 (results/gpu-ceilings.json) where a figure of gpu_ceilings.py is named, but for launches, for busy memory and for
adds to shared memory, which histograms make in 1.5 clocks, all that goes with them included; else assumed.
smaller_child is of trees of 11M × 28 at depth 8 there, whose eight levels added up 29.7M rows.

    issue       instructions of warps
    pipe        the load/store pipe: atomic adds to shared memory, bank passes of loads and stores there, lines of global memory
    float64     instructions on float64
    adds        64-bit adds to global memory, in the second-level cache
    memory      bytes moved
    latency     rounds of items, each a chain of instructions and of loads that wait for one another

Idle, an H100 takes 479 clocks to read memory, 262 the second-level cache, 41 the first (Luo et al. 2024, arXiv 2402.13499).
"""

from dataclasses import Field, dataclass, field, fields, replace

EACH, OF_THE_DEVICE = "of a multiprocessor for a", "µs of the device"
PER_INSTRUCTION, OWN_PASS = "ns per instruction", "ns per bank pass, own banks"
CAUTIOUS = {  # what is least certain, less favourable
    "add_ns": 0.02, "dependent_clocks": 8.0, "latency_ns": 600.0, "cached_ns": 200.0, "launch_us": 3.0, "graph_us": 1.8,
    "host_us": 6.5, "small_us": 3.0, "busy": 0.7,
}  # fmt: skip


def assumed(value: float, unit: str, what: str, item: str, figure: str = "") -> float:
    """A number that nobody has measured. item, figure : of gpu_ceilings.py, what will; its ns count as clocks where the unit is
    clocks. Without a figure: of which part of gpu.py it follows."""
    known: float = field(default=value, metadata={"unit": unit, "what": what, "item": item, "figure": figure})
    return known


@dataclass(frozen=True)
class Machine:
    """A GPU. Facts first: of an H200's data sheet and CUDA's programming guide."""

    name: str = "H200"
    capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 132
    shared_limit: int = 232_448  # bytes of a block
    shared_bytes: int = 233_472  # of a multiprocessor; each block takes BLOCK_BYTES of its own
    registers: int = 65_536
    threads: int = 2048
    clock_ghz: float = 1.98

    memory_gb_s: float = assumed(4219, "GB/s", "that a copy moves, of the data sheet's 4,800", "copy", "GB/s, read and written")
    issue_clocks: float = assumed(0.33, "clocks", f"{EACH} warp's instruction: 4 schedulers", "instructions", PER_INSTRUCTION)
    double_clocks: float = assumed(0.56, "clocks", "the same for float64", "instructions", f"{PER_INSTRUCTION}, float64")
    shared_add_clocks: float = assumed(1.5, "clocks", f"{EACH} warp's shared add, to 32 banks", "shared adds", OWN_PASS)
    pass_clocks: float = assumed(1, "clocks", f"{EACH} bank pass of a load or store of shared memory", "kernels")
    line_clocks: float = assumed(1, "clocks", f"{EACH} line of 128 bytes that a warp loads", "lines", "ns per line")
    add_ns: float = assumed(0.0075, "ns", "of the whole GPU for a 64-bit add to global memory", "global adds", "ns per add")
    dependent_clocks: float = assumed(6.6, "clocks", "from an instruction to one that needs it", "chains", PER_INSTRUCTION)
    latency_ns: float = assumed(450, "ns", "to wait for a load from memory that is busy", "chains", "ns per load, memory")
    cached_ns: float = assumed(147, "ns", "to wait for a load from the second-level cache", "chains", "ns per load, cache")
    launch_us: float = assumed(2.5, "µs", "of the GPU for an operation beside its work", "launch", f"{OF_THE_DEVICE}, prepared")
    graph_us: float = assumed(1.3, "µs", "the same in a graph", "launch", f"{OF_THE_DEVICE}, replayed in a graph")
    host_us: float = assumed(5.5, "µs", "of the host for an operation in no graph", "launch", "µs of the host, prepared")
    small_us: float = assumed(2.0, "µs", "of a kernel of few dependent steps, beside its launch", "kernels")
    busy: float = assumed(0.85, "", "share of a rate that a kernel reaches", "kernels")
    smaller_child: float = assumed(0.25, "", "share of a node's rows in the child of which a histogram is built", "kernels")

    @classmethod
    def assumptions(cls) -> "list[Field[float]]":
        return [f for f in fields(cls) if f.metadata]

    def cautious(self) -> "Machine":
        """With what is least certain less favourable."""
        return replace(self, **CAUTIOUS)

    def measured(self, items: dict[str, dict[str, float]]) -> "Machine":
        """With what gpu_ceilings.py has measured. items : of gpu-ceilings.json."""
        found = {f.name: items.get(f.metadata["item"], {}).get(f.metadata["figure"]) for f in self.assumptions()}
        units = {f.name: self.clock_ghz if f.metadata["unit"] == "clocks" else 1.0 for f in self.assumptions()}
        return replace(self, **{name: value * units[name] for name, value in found.items() if value is not None})


@dataclass(frozen=True)
class Work:
    """What a launch does. An item is what a warp does before it takes the next one.

    items : of the launch. resident : warps that are at work at once. Of each item: instructions; doubles, those on float64;
    others, of another warp that it waits for; shared_adds, atomic adds to shared memory; passes of loads and stores there; lines
    of global memory; waits for loads from memory, cached_waits for those from the second-level cache.
    bytes moved and adds to global memory are those of the whole launch. add_passes : of an add to shared memory, only to be told.
    """

    items: float
    resident: float
    instructions: float
    doubles: float = 0.0
    others: float = 0.0
    shared_adds: float = 0.0
    passes: float = 0.0
    lines: float = 0.0
    waits: float = 0.0
    cached_waits: float = 0.0
    bytes: float = 0.0
    adds: float = 0.0
    add_passes: float = 0.0

    def us(self, machine: Machine) -> dict[str, float]:
        """Microseconds that the launch needs of each resource at the rate it reaches; it takes as long as the largest."""
        clocks = {
            "issue": self.instructions * machine.issue_clocks, "float64": self.doubles * machine.double_clocks,
            "pipe": self.shared_adds * machine.shared_add_clocks + self.passes * machine.pass_clocks
                    + self.lines * machine.line_clocks,
        }  # fmt: skip
        per_clock = self.items / (machine.multiprocessors * machine.clock_ghz)
        rates = {name: per_clock * each for name, each in clocks.items()}
        rates |= {"adds": self.adds * machine.add_ns, "memory": self.bytes / machine.memory_gb_s}
        chain_ns = (self.instructions + self.others) * machine.dependent_clocks / machine.clock_ghz
        chain_ns += self.waits * machine.latency_ns + self.cached_waits * machine.cached_ns
        latency = 1e-3 * max(1.0, self.items / self.resident) * chain_ns
        return {name: 1e-3 * ns / machine.busy for name, ns in rates.items()} | {"latency": latency}
