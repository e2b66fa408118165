"""Where workers that somebody else has started find each other: XGBoost's tracker.

A worker calls, and proves that it knows the tracker's token, which itself is never sent; the tracker answers when all are there:

    tracker → nonce a                                                        16 bytes
    worker  → nonce b, its Entry as JSON, HMAC(token, a, b, JSON)            16 bytes, length and text, 32 bytes
    tracker → its Place as JSON, HMAC(token, b, a, JSON)                     length and text, 32 bytes
    worker  → END, when it has finished; without it, it is lost

Whoever says anything else, or nothing for HANDSHAKE_SECONDS, is hung up on. One that goes before all are there has its seat taken
by the next. What the workers then say to each other does not pass here (gpuboost.network).
"""

import hmac
import json
import secrets
import selectors
import socket
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from struct import Struct
from time import monotonic, sleep
from typing import Any, Self

from gpuboost.config import log

__all__ = ["Place", "RabitTracker", "TrackerCall"]

NONCE_BYTES, PROOF_BYTES = 16, 32
LENGTH = Struct("!I")
LONGEST_ENTRY, LONGEST_PLACE = 1 << 16, 1 << 26  # bytes of JSON
HANDSHAKE_SECONDS = 10.0  # a worker answers in milliseconds
MOST_STRANGERS = 64  # callers that have proven nothing yet; more are hung up on, and call again
LOOK_SECONDS = 0.1
END = b"!"


@dataclass(frozen=True)
class Entry:
    """What a worker tells of itself. host, port : where the others reach it. task : a name to sort by."""

    host: str
    port: int
    task: str


@dataclass(frozen=True)
class Place:
    """What a worker is told. addresses : of all, by rank. names : what messages call them."""

    rank: int
    addresses: list[tuple[str, int]]
    names: list[str]


class RabitTracker:
    """Brings n_workers workers together (collective.CommunicatorContext), once. XGBoost's names.

    host_ip : of an interface that the workers can reach; None for this machine's usual one. port : 0 for a free one.
    sortby : ranks in the order of "host" names, or of "task" names (dmlc_task_id); equal ones as they came. The model is that of
    the rows of rank 0, 1, …, one below the other, so "task" makes it the same each time where rows are sampled.
    timeout : seconds for all to come, 0 for any.

        tracker = RabitTracker(n_workers=2, host_ip="10.0.0.1")
        tracker.start()
        args = tracker.worker_args()      # for the workers, and nobody else
        ...
        tracker.wait_for()
    """

    def __init__(
        self, n_workers: int, host_ip: str | None = None, port: int = 0, *, sortby: str = "host", timeout: float = 0
    ) -> None:
        if n_workers < 1:
            raise ValueError(f"n_workers must be at least 1, got {n_workers}.")
        if sortby not in ("host", "task"):
            raise ValueError(f"sortby must be 'host' or 'task', got {sortby!r}.")
        host = _own_host() if host_ip is None else host_ip
        family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._socket = socket.create_server(where[:2], family=family, backlog=128)
        self._socket.settimeout(LOOK_SECONDS)
        self._address: tuple[str, int] = self._socket.getsockname()[:2]
        self._token = secrets.token_hex(32)
        self._n_workers, self._sortby, self._timeout = n_workers, sortby, float(timeout or 0)
        self._come: list[_Caller] = []
        self._lock = threading.Lock()
        self._problem: Exception | None = None
        self._is_freed = False
        self._thread = threading.Thread(target=self._serve, daemon=True, name="gpuboost-tracker")

    def start(self) -> None:
        """Let workers come, in a thread of its own."""
        self._thread.start()

    def worker_args(self) -> dict[str, str | int]:
        """What CommunicatorContext needs in every worker. Whoever knows it can take part."""
        host, port = self._address
        return {"dmlc_tracker_uri": host, "dmlc_tracker_port": port, "gpuboost_token": self._token}

    def wait_for(self, timeout: float | None = None) -> None:
        """Until all workers have finished. Raises ValueError after timeout seconds, RuntimeError where one was lost or not all
        came in time."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise ValueError(f"the workers have not finished within {timeout:g} s.")
        if self._problem is not None:
            raise self._problem

    def free(self) -> None:
        """Let nobody come any more, and forget those who came."""
        self._is_freed = True
        self._socket.close()
        with self._lock:
            for caller in self._come:
                caller.hang_up()

    def _serve(self) -> None:
        try:
            self._gather()
            self._socket.close()
            lost = [caller.name for caller in self._come if not caller.has_ended()]
            if lost:
                raise RuntimeError(f"workers were lost before they had finished: {', '.join(lost)}.")
        except (RuntimeError, OSError) as problem:
            self._problem = RuntimeError("the tracker was freed before the workers had finished.") if self._is_freed else problem
        finally:
            self.free()

    def _gather(self) -> None:
        """Let workers in until all are there, and tell them their places."""
        places, deadline = threading.Semaphore(MOST_STRANGERS), monotonic() + self._timeout
        while True:
            with self._lock:
                self._come = [caller for caller in self._come if not caller.is_gone()]
                if len(self._come) == self._n_workers:
                    break
            if self._timeout and monotonic() > deadline:
                n = len(self._come)
                raise RuntimeError(f"{n} of {self._n_workers} workers have come within {self._timeout:g} s. Start the others.")
            with suppress(TimeoutError):
                sock, _ = self._socket.accept()
                if places.acquire(blocking=False):
                    threading.Thread(target=self._let_in, args=(sock, places), daemon=True).start()
                else:
                    sock.close()
        self._come.sort(key=lambda caller: getattr(caller.entry, self._sortby))  # equal ones as they came
        addresses, names = [(c.entry.host, c.entry.port) for c in self._come], [c.name for c in self._come]
        for rank, caller in enumerate(self._come):
            with suppress(OSError):  # it has gone: the others find out when they meet
                caller.tell(Place(rank, addresses, names), self._token)

    def _let_in(self, sock: socket.socket, places: threading.Semaphore) -> None:
        try:
            caller = _Caller.proven(sock, self._token)
        except (OSError, ValueError, TypeError):  # whatever a stranger does
            sock.close()
            return
        finally:
            places.release()
        with self._lock:
            if len(self._come) < self._n_workers and not self._is_freed:
                self._come.append(caller)
                return log(2, f"{caller.name} has come, {len(self._come)} of {self._n_workers}")
        caller.hang_up()


@dataclass
class _Caller:
    """A worker that has proven itself, seen from the tracker."""

    sock: socket.socket
    entry: Entry
    nonces: tuple[bytes, bytes]

    @property
    def name(self) -> str:
        return f"{self.entry.host}:{self.entry.port}" + (f" ({self.entry.task})" if self.entry.task else "")

    @classmethod
    def proven(cls, sock: socket.socket, token: str) -> Self:
        """Raises OSError, ValueError or TypeError for anybody else."""
        sock.settimeout(HANDSHAKE_SECONDS)
        own = secrets.token_bytes(NONCE_BYTES)
        sock.sendall(own)
        theirs = _read(sock, NONCE_BYTES)
        said = Entry(**_receive(sock, token, own + theirs, LONGEST_ENTRY))
        entry = Entry(str(said.host), int(said.port), str(said.task))
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return cls(sock, entry, (own, theirs))

    def tell(self, place: Place, token: str) -> None:
        own, theirs = self.nonces
        _send(self.sock, asdict(place), token, theirs + own)

    def is_gone(self) -> bool:
        """Before it is told its place, when there is nothing else to read from it than its end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            return bool(selector.select(0))

    def has_ended(self) -> bool:
        """Wait until it goes: whether it said so before."""
        with suppress(OSError):
            return self.sock.recv(1) == END
        return False

    def hang_up(self) -> None:
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


class TrackerCall:
    """A worker's call to a tracker. host : of the interface that reaches it, for the other workers to connect to.

    patience : seconds for the tracker to be there. Raises ConnectionError where it is not.
    """

    def __init__(self, address: tuple[str, int], patience: float) -> None:
        self._tracker = f"the tracker at {address[0]}:{address[1]}"
        deadline = monotonic() + patience
        while True:
            try:
                self._socket = socket.create_connection(address, timeout=HANDSHAKE_SECONDS)
                break
            except OSError as error:
                if monotonic() > deadline:
                    raise ConnectionError(f"{self._tracker} cannot be reached: {error}. Start it first.") from None
                sleep(LOOK_SECONDS)
        self.host: str = self._socket.getsockname()[0]

    def place(self, port: int, task: str, token: str) -> Place:
        """Take part, on that port; what the tracker answers when all are there. Raises ConnectionError where it hangs up."""
        try:
            theirs, own = _read(self._socket, NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
            self._socket.sendall(own)
            _send(self._socket, asdict(Entry(self.host, port, task)), token, theirs + own)
            self._socket.settimeout(None)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            told = _receive(self._socket, token, own + theirs, LONGEST_PLACE)
            return Place(told["rank"], [(host, port) for host, port in told["addresses"]], told["names"])
        except (OSError, ValueError) as error:
            self._socket.close()
            raise ConnectionError(
                f"{self._tracker} does not take this worker: {error}. It has its workers, or another token (worker_args)."
            ) from None

    def end(self, is_done: bool) -> None:
        """is_done : this worker has finished; otherwise it is lost."""
        with suppress(OSError):
            if is_done:
                self._socket.sendall(END)
        self._socket.close()


def _send(sock: socket.socket, message: dict[str, Any], token: str, nonces: bytes) -> None:
    text = json.dumps(message).encode()
    sock.sendall(LENGTH.pack(len(text)) + text + _proof(token, nonces, text))


def _receive(sock: socket.socket, token: str, nonces: bytes, longest: int) -> dict[str, Any]:
    """Raises ValueError for one who does not know the token."""
    n = LENGTH.unpack(_read(sock, LENGTH.size))[0]
    if n > longest:
        raise ValueError("a message is too long")
    text = _read(sock, n)
    if not hmac.compare_digest(_read(sock, PROOF_BYTES), _proof(token, nonces, text)):
        raise ValueError("a message is not proven")
    return json.loads(text)


def _read(sock: socket.socket, n: int) -> bytes:
    data = bytearray()
    while len(data) < n:
        part = sock.recv(min(n - len(data), 1 << 16))
        if not part:
            raise ConnectionError("the connection was closed")
        data += part
    return bytes(data)


def _proof(token: str, nonces: bytes, text: bytes) -> bytes:
    return hmac.digest(token.encode(), nonces + text, "sha256")


def _own_host() -> str:
    """The address of the interface to other machines, or this machine's own where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("10.255.255.255", 1))  # sends nothing
        return str(probe.getsockname()[0])
    return "127.0.0.1"
