"""Workers that are processes, on one machine or many: a Communicator over TCP.

    wire        arrays of int64 on the wire, each block as narrow as its values allow, and the headers before them
    links       a connection between two workers: how it is made and proven, what is sent and received over it
    worker      sums and maxima over all workers: by a tree where they are small, by a ring where they are large
    gpus        the same of arrays on GPUs, by NCCL

Whoever starts the workers hands each of them the addresses of all and a token that nobody else knows (gpuboost/dask):

    listener = Listener(host)                                    # on every worker; listener.address is told to the others
    with use_communicator(join(listener, rank, addresses, names, token)) as workers:
        train(...)
        workers.leave()
"""

from gpuboost.network.links import Listener, WorkerLost
from gpuboost.network.worker import TcpWorker, join

__all__ = ["Listener", "TcpWorker", "WorkerLost", "join"]
