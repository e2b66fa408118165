"""Workers over TCP: sums and maxima, what strangers can do (nothing), and what happens when a worker goes, hangs or errs."""

import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from certificates import make_certificate
from playing import TOKEN, run_tcp

from gpuboost.communicator import current_communicator
from gpuboost.network import Listener, WorkerLost, join
from gpuboost.network.links import neighbours
from gpuboost.network.wire import HEADER, MAGIC
from gpuboost.network.worker import TREE_BYTES

SIZES = pytest.mark.parametrize("size", [1, 2, 3, 5])


@SIZES
@pytest.mark.parametrize("n", [1, 7, TREE_BYTES // 8, TREE_BYTES // 8 + 1, 50_001])
def test_every_worker_gets_the_sum_and_maximum_of_all(size, n):
    arrays = np.random.default_rng(n).integers(-(2**59), 2**59, (size, n)) >> np.arange(n) % 60

    def work(rank):
        comm, total, largest = current_communicator(), arrays[rank].copy(), np.array(arrays[rank].reshape(1, n), order="F")
        comm.allreduce_sum(total)
        comm.allreduce_max(largest)
        whole = np.stack([arrays[rank]] * 2, axis=1)
        comm.allreduce_sum(whole[:, 1])  # a view that is not contiguous
        return total, largest[0], whole

    for rank, (total, largest, whole) in enumerate(run_tcp(size, work)):
        np.testing.assert_array_equal(total, arrays.sum(axis=0))
        np.testing.assert_array_equal(largest, arrays.max(axis=0))
        np.testing.assert_array_equal(whole, np.stack([arrays[rank], arrays.sum(axis=0)], axis=1))


@SIZES
def test_ring_sends_twice_the_array_less_two_parts(size):
    n = 60 * 1024  # whole blocks in every part

    def work(rank):
        comm = current_communicator()
        comm.allreduce_sum(np.full(n, 2**40))
        return comm.bytes_sent

    sent = run_tcp(size, work)
    expected = 2 * (size - 1) / size * 8 * n
    assert all(expected <= n_bytes <= 1.01 * expected for n_bytes in sent)


def test_every_worker_is_connected_to_ring_and_tree_and_to_few():
    for size in (1, 2, 3, 4, 7, 1000):
        peers = [neighbours(rank, size) for rank in range(size)]
        assert max(map(len, peers)) <= 5
        for rank in range(size):
            assert all(rank in peers[peer] for peer in peers[rank]) and rank not in peers[rank]
            assert {(rank + 1) % size} - {rank} <= set(peers[rank])


def test_calls_that_do_not_match_are_an_error_on_all():
    results = run_tcp(3, lambda rank: current_communicator().allreduce_sum(np.zeros(2 + (rank == 2), np.int64)))
    assert all(isinstance(error, ValueError | ConnectionError) for error in results)
    assert any("different arrays" in str(error) for error in results)


def test_worker_that_finishes_early_does_not_leave_the_others_waiting():
    results = run_tcp(2, lambda rank: rank == 0 or current_communicator().allgather_int(rank))
    assert all(isinstance(error, RuntimeError | ConnectionError) for error in results)
    assert any("All workers must make the same calls" in str(error) for error in results)


@pytest.mark.parametrize("failing", [0, 1, 3])
def test_error_in_one_worker_ends_all_and_is_told(failing):
    def work(rank):
        comm = current_communicator()
        comm.allgather_int(rank)
        if rank == failing:
            raise KeyError("a broken disk")
        for _ in range(100):
            comm.allreduce_sum(np.zeros(10_000, np.int64))

    results = run_tcp(4, work)
    assert isinstance(results[failing], KeyError)
    assert all(isinstance(error, WorkerLost) for rank, error in enumerate(results) if rank != failing)
    assert any("a broken disk" in str(error) for error in results if isinstance(error, WorkerLost))


def test_slow_worker_is_waited_for():
    """Longer than the timeout: it shows that it lives."""

    def work(rank):
        if rank == 1:
            time.sleep(1.5)
        return current_communicator().allgather_int(rank)

    assert run_tcp(3, work, timeout=0.5) == [[0, 1, 2]] * 3


# ---- strangers


def talk(address, data):
    with socket.create_connection(address, timeout=5) as sock:
        try:
            sock.sendall(data)
        except OSError:  # hung up on
            pass


@pytest.fixture
def thousand_files():
    """As many may be open in this process, however many the machine allows."""
    if os.name == "nt":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("n", [200, pytest.param(2_000, marks=pytest.mark.slow)])
def test_strangers_have_no_effect(n, thousand_files):
    """Malformed greetings, headers of frames, a wrong token, nothing at all: while workers meet, and while they work."""
    listener, late = Listener("127.0.0.1"), Listener("127.0.0.1")
    addresses, names, rng = [listener.address, late.address], ["first", "second"], np.random.default_rng(0)
    joined = {}

    def come(rank, door):
        joined[rank] = join(door, rank, addresses, names, TOKEN, meeting_timeout=600, timeout=20)

    first = threading.Thread(target=come, args=(0, listener))
    first.start()
    half_open = [socket.create_connection(listener.address) for _ in range(20)]
    for i in range(n):
        size = int(rng.integers(0, 200))
        frame = HEADER.pack(MAGIC, 0, 1, 0, 2**32 - 1, 2**63)
        data = [rng.bytes(size), b"gpuboost" + rng.bytes(52), frame, b"gpuboost" + struct.pack("!I", 1) + bytes(48)][i % 4]
        talk(listener.address, data)
    with pytest.raises(WorkerLost, match=r"worker 0 \(first\).* cannot be reached"):
        join(Listener("127.0.0.1"), 1, addresses, names, b"another token", meeting_timeout=0.3)
    second = threading.Thread(target=come, args=(1, late))
    second.start()
    first.join(30)
    second.join(30)
    with pytest.raises(OSError):
        socket.create_connection(listener.address, timeout=2).recv(1)  # the door is closed
    arrays = [np.arange(30_000), np.arange(30_000) * 3]
    threads = [threading.Thread(target=joined[rank].allreduce_sum, args=(arrays[rank],)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(np.array_equal(array, np.arange(30_000) * 4) for array in arrays)
    for sock in half_open:
        sock.close()
    leaving = [threading.Thread(target=comm.leave) for comm in joined.values()]
    for thread in leaving:
        thread.start()
    for thread in leaving:
        thread.join(30)


def test_worker_that_never_comes_is_named():
    listener, absent = Listener("127.0.0.1"), Listener("127.0.0.1")
    with pytest.raises(WorkerLost, match=r"worker 1 \(machine 1\) has not come within 0.2 s"):
        join(listener, 0, [listener.address, absent.address], ["machine 0", "machine 1"], TOKEN, meeting_timeout=0.2)
    absent.close()


@pytest.mark.parametrize("data", [b"\xff" * 40, HEADER.pack(MAGIC, 0, 1, 1, 2**32 - 1, 2**62), HEADER.pack(MAGIC, 0, 9, 1, 5, 3)])
def test_malformed_frames_of_a_worker_end_the_job_with_an_error(data):
    """Of one that knows the token: there is no going on, and no crash, and no memory for what it announces."""

    def work(rank):
        comm = current_communicator()
        if rank == 1:
            comm._links[0].socket.setblocking(True)
            comm._links[0].socket.sendall(data)
            time.sleep(0.2)
        comm.allreduce_sum(np.zeros(5, np.int64))

    results = run_tcp(2, work)
    assert all(isinstance(error, ConnectionError | ValueError) for error in results)


def test_tls(tmp_path):
    certificate, key = make_certificate(tmp_path)
    contexts = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context(cafile=certificate)
    contexts[0].load_cert_chain(certificate, key)
    contexts[1].check_hostname = False

    def work(rank):
        comm, array = current_communicator(), np.arange(200_000) * (rank + 1)
        for _ in range(3):
            comm.allreduce_max(array)
        return int(array.sum()), comm.allgather_int(rank)

    assert run_tcp(3, work, timeout=0.6, ssl_contexts=contexts) == [(int(np.arange(200_000).sum()) * 3, [0, 1, 2])] * 3


# ---- processes


def worker_process(rank, size, ports):
    """Sum for ever; print the error that ends it."""
    listener = Listener("127.0.0.1", port=ports[rank])
    addresses = [("127.0.0.1", port) for port in ports]
    comm = join(listener, rank, addresses, [f"machine {r}" for r in range(size)], TOKEN, timeout=1.5)
    print("joined", flush=True)
    try:
        while True:
            comm.allreduce_sum(np.ones(20_000, np.int64))
            comm.allreduce_max(np.ones(20, np.int64))
    except WorkerLost as error:
        print(f"{error.name}|{error.is_silent}|{error}", flush=True)


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGSTOP")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
def test_worker_that_is_killed_or_stopped_is_named_by_all_others(name):
    ports = []
    for sock in [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]:
        ports.append(sock.getsockname()[1])
        sock.close()
    folders = os.pathsep.join(str(folder) for folder in (Path(__file__).parent, *list(Path(__file__).parents)[1:3]))
    env = {**os.environ, "PYTHONPATH": folders}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"from test_worker import worker_process as run; run({rank}, 4, {ports})"],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(4)
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout.readline().strip() == "joined", process.stderr.read()
        time.sleep(0.3)
        processes[2].send_signal(getattr(signal, name))
        others = [process.communicate(timeout=60)[0] for rank, process in enumerate(processes) if rank != 2]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert all(line.startswith(f"machine 2|{name == 'SIGSTOP'}|worker 2 (machine 2) is lost") for line in others), others
