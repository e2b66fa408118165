"""Workers over TCP that are threads of the test's process."""

import threading
from concurrent.futures import ThreadPoolExecutor

from gpuboost.communicator import use_communicator
from gpuboost.network import Listener, join

TOKEN = b"the token of the job"


def run_tcp(size, work, timeout=20.0, ssl_contexts=None):
    """Run work(rank) in threads that are each other's workers; what each returned or raised, in rank order."""
    listeners = [Listener("127.0.0.1", ssl_contexts) for _ in range(size)]
    addresses, names = [listener.address for listener in listeners], [f"machine {rank}" for rank in range(size)]
    start = threading.Barrier(size)

    def run(rank):
        start.wait()
        try:
            comm = join(listeners[rank], rank, addresses, names, TOKEN, timeout=timeout)
        except BaseException as error:
            return error
        try:
            with use_communicator(comm):
                result = work(rank)
            comm.leave()
            return result
        except BaseException as error:
            comm.abort(error)
            return error
        finally:
            comm.close()

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
        return [future.result(60) for future in futures]
