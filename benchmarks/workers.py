"""What workers cost: processes of one thread that exchange sums over TCP, beside one process of as many threads; and Dask.

    python benchmarks/workers.py                    # 2 workers, 2,000,000 × 28, 10 rounds
    python benchmarks/workers.py --parts tcp dask   # and on a LocalCluster, beside xgboost.dask, from partitions to a model

The two ways take turns. Bytes and messages are those that a worker sends per tree. XGBoost's are computed: it sums 16 bytes a
bin of every node that it builds (the same nodes) around the same ring. LightGBM's data-parallel learner scatters such sums and
gathers no bins: half as many.
"""

import argparse
import multiprocessing
import secrets
import socket
import sys
import time
from statistics import median
from typing import Any

import numpy as np
from measure import ROOT, forget_peak_mb, memory_mb, write_record

sys.path.insert(0, str(ROOT))  # also of the processes that are started
XGBOOST_BYTES = 16  # a bin: gradient and hessian in float64


def make_rows(n_rows: int, n_features: int, worker: int, n_workers: int) -> tuple[np.ndarray, np.ndarray]:
    """A worker's rows of the table."""
    begin, end = (n_rows * i // n_workers for i in (worker, worker + 1))
    rng = np.random.default_rng(0)
    weights = rng.normal(size=n_features)
    rng = np.random.default_rng([1, worker, n_workers])
    X = rng.standard_normal((end - begin, n_features), np.float32)
    return X, (X @ weights.astype(np.float32) + X[:, 0] * X[:, 1] > 0).astype(np.float32)


def work(rank: int, ports: list[int], options: argparse.Namespace, token: bytes, answers: Any) -> None:
    """One worker: put (seconds of the rounds, bytes and messages sent in them) into answers."""
    import gpuboost as gb
    from gpuboost.communicator import current_communicator, use_communicator
    from gpuboost.network import Listener, join

    params = {"objective": "binary:logistic", "max_depth": 6, "nthread": max(1, options.threads // len(ports)), "device": "cpu"}

    class Watch(gb.callback.TrainingCallback):
        def before_training(self, model: Any) -> Any:
            comm = current_communicator()
            comm.any(False)  # all are there
            self.begin, self.sent = time.perf_counter(), (getattr(comm, "bytes_sent", 0), getattr(comm, "n_messages", 0))
            return model

        def after_training(self, model: Any) -> Any:
            comm = current_communicator()
            model.num_boosted_rounds()
            seconds = time.perf_counter() - self.begin
            now = getattr(comm, "bytes_sent", 0), getattr(comm, "n_messages", 0)
            answers.put((rank, seconds, now[0] - self.sent[0], now[1] - self.sent[1]))
            return model

    listener = Listener("127.0.0.1", port=ports[rank])
    addresses = [("127.0.0.1", port) for port in ports]
    dtrain = gb.DMatrix(*make_rows(options.rows, options.features, rank, len(ports)))
    comm = join(listener, rank, addresses, [f"worker {r}" for r in range(len(ports))], token, meeting_timeout=600)
    with use_communicator(comm):
        gb.train(params, dtrain, 2)
        gb.train(params, dtrain, options.rounds, callbacks=[Watch()])
        comm.leave()


def measure(n_workers: int, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of the slowest worker, and what one sends, per tree."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n_workers)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    context = multiprocessing.get_context("spawn")
    answers, token = context.Queue(), secrets.token_bytes(32)
    processes = [context.Process(target=work, args=(rank, ports, options, token, answers)) for rank in range(n_workers)]
    for process in processes:
        process.start()
    told = [answers.get(timeout=1200) for _ in processes]
    for process in processes:
        process.join()
    _, seconds, n_bytes, n_messages = zip(*told)
    return {
        "seconds_a_tree": max(seconds) / options.rounds, "bytes_a_tree": max(n_bytes) / options.rounds,
        "messages_a_tree": max(n_messages) / options.rounds,
    }  # fmt: skip


def on_dask(library: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds from persisted partitions to a model, after a training that warms up; and the most memory that a worker takes for
    it beside its partitions, as a multiple of them."""
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    params = {"objective": "binary:logistic", "max_depth": 6}
    with LocalCluster(
        n_workers=options.workers, threads_per_worker=options.threads // options.workers, dashboard_address=None, memory_limit=0
    ) as cluster, Client(cluster) as client:  # fmt: skip
        if library == "gpuboost":
            import gpuboost.dask as library_dask
        else:
            import xgboost.dask as library_dask
        rng = da.random.default_rng(0)
        X = rng.standard_normal((options.rows, options.features), chunks=(options.rows // 8, -1)).astype(np.float32)
        y = (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(np.float32)
        X, y = client.persist([X, y])
        wait([X, y])
        for rounds in (2, options.rounds):
            before, begin = client.run(forget_peak_mb), time.perf_counter()
            library_dask.train(client, params, library_dask.DaskQuantileDMatrix(client, X, y), num_boost_round=rounds)
            seconds, peaks = time.perf_counter() - begin, client.run(memory_mb, "VmHWM")
        most = max(peaks[worker] - before[worker] for worker in before)
        return {"seconds": seconds, "memory": 1e6 * most / (X.nbytes / options.workers)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of all workers together")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=["tcp", "dask"], default=["tcp"])
    options = parser.parse_args()
    record: dict[str, Any] = dict(vars(options))
    if "tcp" in options.parts:
        record |= beside_one_process(options)
    if "dask" in options.parts:
        record["dask"] = beside_xgboost(options)
    write_record("workers", record)


def beside_one_process(options: argparse.Namespace) -> dict[str, Any]:
    turns: dict[int, list[dict[str, float]]] = {1: [], options.workers: []}
    for _ in range(options.repeats):
        for n_workers, own in turns.items():
            own.append(measure(n_workers, options))
    alone, together = ({name: median(turn[name] for turn in own) for name in own[0]} for own in turns.values())
    built = 1 + sum(2**depth // 2 for depth in range(1, 6))  # nodes of a full tree of depth 6 that are built, not subtracted
    ring = 2 * (options.workers - 1) / options.workers
    overhead = together["seconds_a_tree"] / alone["seconds_a_tree"] - 1
    xgboost_bytes = ring * built * options.features * 256 * XGBOOST_BYTES
    print(f"one process    {1000 * alone['seconds_a_tree']:8.1f} ms a tree")
    print(f"{options.workers} workers      {1000 * together['seconds_a_tree']:8.1f} ms, {100 * overhead:.1f} % more")
    print(f"a worker sends {together['bytes_a_tree'] / 1e6:.2f} MB in {together['messages_a_tree']:.0f} messages a tree")
    print(f"XGBoost's      {xgboost_bytes / 1e6:.2f} MB, LightGBM's {xgboost_bytes / 2e6:.2f} MB (computed)")
    return {
        "one_process": alone, "workers_together": together, "turns": turns, "overhead": overhead,
        "xgboost_bytes_a_tree_computed": xgboost_bytes,
    }  # fmt: skip


def beside_xgboost(options: argparse.Namespace) -> dict[str, Any]:
    turns: dict[str, list[dict[str, float]]] = {"gpuboost": [], "xgboost": []}
    for _ in range(options.repeats):
        for library, own in turns.items():
            own.append(on_dask(library, options))
    own, peer = ({name: median(turn[name] for turn in each) for name in each[0]} for each in turns.values())
    speed_up = peer["seconds"] / own["seconds"]
    print(f"on Dask        {own['seconds']:.2f} s, xgboost.dask {peer['seconds']:.2f} s: {speed_up:.2f} times")
    print(f"memory         {own['memory']:.2f} times the partitions, beside them; xgboost.dask {peer['memory']:.2f}")
    return {"turns": turns, "speed_up": speed_up}


if __name__ == "__main__":
    main()
