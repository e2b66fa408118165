"""A tree on 1 to 1,000 workers, computed: what every worker sends, in how many steps, and how long it takes.

    python benchmarks/scaling.py                    # 2,000,000 × 28 on each worker (weak) and in all (strong)

Measured are a tree of one process on one thread, the sizes of all its sums as they go over the wire, and what messages between
two processes of this machine cost. The rest is arithmetic (network/worker.py):

    tree of log2 W levels, small sums     2 log2 W messages one after another, each: latency + bytes / bandwidth
    ring, large sums                      2 (W − 1) messages, together 2 (W − 1) / W of the bytes
    seconds(W) = seconds(1) / W (strong) or seconds(1) (weak) + Σ over the sums

The same is measured with 2 and more local processes, as many as there are cores, to see how far the arithmetic is off. Other
networks are named ones: 10 Gbit/s with 50 µs, 100 Gbit/s with 10 µs.
"""

import argparse
import json
import multiprocessing
import socket
import time
from math import ceil, log2
from statistics import median
from typing import Any

import numpy as np
import workers
from measure import write_record

NETWORKS = {"10 Gbit/s, 50 µs": (50e-6, 1.25e9), "100 Gbit/s, 10 µs": (10e-6, 12.5e9)}  # seconds, bytes a second
SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]


def sums_of_a_tree(options: argparse.Namespace) -> list[tuple[int, int]]:
    """Of every sum that a tree needs the bytes, in memory and on the wire: those of a worker whose peer is a stand-in."""
    import gpuboost as gb
    from gpuboost.communicator import Communicator, use_communicator
    from gpuboost.network.wire import pack_values

    class Counting(Communicator):
        size = 2
        counted: list[tuple[int, int]] | None = None

        def allreduce_sum(self, array: Any) -> None:
            if self.counted is not None and array.size:
                packed = pack_values(np.ascontiguousarray(array).reshape(-1))
                self.counted.append((array.nbytes, sum(map(len, packed))))

        allreduce_max = allreduce_sum

        def allgather(self, array: Any) -> Any:
            return np.stack([array, array])

    counting = Counting()
    with use_communicator(counting):
        dtrain = gb.DMatrix(*workers.make_rows(options.rows, options.features, 0, 1))
        booster = gb.Booster({"objective": "binary:logistic", "max_depth": 6, "device": "cpu"})
        booster.update(dtrain)
        counting.counted = []
        booster.update(dtrain)
        booster.num_boosted_rounds()
    return counting.counted


def play(rank: int, ports: list[int], answers: Any) -> None:
    """Exchange arrays of two sizes with another process."""
    from gpuboost.network import Listener, join

    listener = Listener("127.0.0.1", port=ports[rank])
    comm = join(listener, rank, [("127.0.0.1", port) for port in ports], ["a", "b"], b"scaling")
    seconds = {}
    for n_values, repeats in ((16, 300), (2**20, 10)):
        array, taken = np.full(n_values, 2**40 // 2 ** len(ports)), []
        for _ in range(repeats):
            array[...] = 2**33
            begin = time.perf_counter()
            comm.allreduce_sum(array)
            taken.append(time.perf_counter() - begin)
        seconds[n_values] = median(taken)
    comm.leave()
    answers.put(seconds)


def measure_link() -> tuple[float, float]:
    """Seconds of a message, and bytes a second, both packing and adding included."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=play, args=(rank, ports, answers)) for rank in (0, 1)]
    for process in processes:
        process.start()
    seconds = answers.get(timeout=300)
    for process in processes:
        process.join()
    latency = seconds[16] / 2  # up and down
    return latency, 8 * 2**20 / (seconds[2**20] - 2 * latency)  # of two workers each sends half of it twice


def exchange_seconds(
    sizes: list[tuple[int, int]], n_workers: int, latency: float, bandwidth: float
) -> tuple[float, float, int]:
    """Of one tree: seconds, bytes that a worker sends, messages one after another."""
    from gpuboost.network.worker import TREE_BYTES

    if n_workers == 1:
        return 0.0, 0.0, 0
    seconds, n_bytes, n_steps = 0.0, 0.0, 0
    for n_in_memory, size in sizes:
        if n_in_memory <= TREE_BYTES:
            steps, sent = 2 * ceil(log2(n_workers)), 2.0 * size
            seconds += steps * (latency + size / bandwidth)
        else:
            steps, sent = 2 * (n_workers - 1), 2 * (n_workers - 1) / n_workers * size
            seconds += steps * latency + sent / bandwidth
        n_bytes += sent
        n_steps += steps
    return seconds, n_bytes, n_steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--local", type=int, nargs="*", default=[2], help="numbers of local processes to compare with")
    options = parser.parse_args()
    facts = {"rows": options.rows, "features": options.features, "rounds": options.rounds}
    tree_seconds = workers.measure(1, argparse.Namespace(**facts, threads=1))["seconds_a_tree"]
    sizes, local = sums_of_a_tree(options), measure_link()
    networks, record = {"this machine": local, **NETWORKS}, {}
    n_bytes = sum(size for _, size in sizes)
    print(f"one thread: {1000 * tree_seconds:.1f} ms a tree, {len(sizes)} sums of {n_bytes / 1e6:.2f} MB on the wire")
    print(f"a message: {1e6 * local[0]:.0f} µs, {local[1] / 1e6:.0f} MB/s")
    for name, (latency, bandwidth) in networks.items():
        rows = []
        for n_workers in SIZES:
            seconds, n_bytes, n_steps = exchange_seconds(sizes, n_workers, latency, bandwidth)
            rows.append(
                {"workers": n_workers, "exchange_seconds": seconds, "bytes": n_bytes, "steps": n_steps,
                 "weak_efficiency": tree_seconds / (tree_seconds + seconds),
                 "strong_speedup": tree_seconds / (tree_seconds / n_workers + seconds)}
            )  # fmt: skip
        record[name] = rows
        for row in rows:
            print(name, json.dumps({key: round(value, 4) for key, value in row.items()}))
    checked = []
    for n_workers in options.local:
        measured = workers.measure(n_workers, argparse.Namespace(**facts, threads=n_workers))
        computed = tree_seconds / n_workers + exchange_seconds(sizes, n_workers, *local)[0]
        checked.append({"workers": n_workers, "computed_seconds": computed, **measured})
        print(f"{n_workers} processes: computed {1000 * computed:.1f} ms, measured {1000 * measured['seconds_a_tree']:.1f} ms")
    computed = {"tree_seconds": tree_seconds, "sums": sizes, "networks": record}
    write_record("scaling", {**vars(options), **computed, "checked": checked})


if __name__ == "__main__":
    main()
