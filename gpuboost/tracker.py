"""Where workers that somebody else has started find each other: XGBoost's tracker.

A worker calls, and proves that it knows the tracker's token, which itself is never sent; the tracker answers when all are there:

    tracker → nonce a                                                        16 bytes
    worker  → nonce b, its Entry as JSON, HMAC(token, a, b, JSON)            16 bytes, length and text, 32 bytes
    tracker → SEATED, or REFUSED: another token, or all are there            1 byte
    tracker → its Place as JSON, HMAC(token, b, a, JSON)                     length and text, 32 bytes
    worker  → END, when it has finished; without it, it is lost

Whoever has proven nothing after HANDSHAKE_SECONDS is hung up on; so is the one who came first of more than MOST_STRANGERS of
these, and a worker calls again. One that goes before all are there has its seat taken by the next. What the workers then say to
each other does not pass here (gpuboost.network).
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
from gpuboost.network.links import read_exactly

__all__ = ["Place", "RabitTracker", "TrackerCall"]

NONCE_BYTES, PROOF_BYTES = 16, 32
LENGTH = Struct("!I")
LONGEST_ENTRY, LONGEST_PLACE = 1 << 12, 1 << 26  # bytes of JSON
HANDSHAKE_SECONDS = 10.0  # a worker answers in milliseconds
MOST_STRANGERS = 64  # callers that have proven nothing yet
LOOK_SECONDS = 0.1
SEATED, REFUSED, END = b"+", b"-", b"!"
# Seconds of silence after which a machine is asked whether it is there, between questions, and how many are asked.
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


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
        if not n_workers >= 1 or n_workers % 1:
            raise ValueError(f"n_workers must be an integer at least 1, got {n_workers!r}.")
        if sortby not in ("host", "task"):
            raise ValueError(f"sortby must be 'host' or 'task', got {sortby!r}.")
        if not 0 <= port < 1 << 16:
            raise ValueError(f"port must lie between 0, for a free one, and 65535, got {port}.")
        if not (timeout or 0) >= 0:
            raise ValueError(f"timeout must be at least 0, got {timeout}.")
        host = _own_host() if host_ip is None else host_ip
        family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._socket = socket.create_server(where[:2], family=family, backlog=128)
        self._socket.settimeout(LOOK_SECONDS)
        self._address: tuple[str, int] = self._socket.getsockname()[:2]
        self._token = secrets.token_hex(32)
        self._n_workers, self._sortby, self._timeout = n_workers, sortby, float(timeout or 0)
        self._come: list[_Caller] = []
        self._strangers: list[socket.socket] = []
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
        came in time, or the tracker has not been started."""
        if self._thread.ident is None:
            raise RuntimeError("the tracker has not been started. Call start() first.")
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
            for sock in [*self._strangers, *(caller.sock for caller in self._come)]:
                _hang_up(sock)

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
        deadline = monotonic() + self._timeout
        while True:
            with self._lock:
                for caller in filter(_Caller.is_gone, list(self._come)):
                    self._come.remove(caller)
                    _hang_up(caller.sock)
                if len(self._come) == self._n_workers:
                    break
            if self._timeout and monotonic() > deadline:
                n = len(self._come)
                raise RuntimeError(f"{n} of {self._n_workers} workers have come within {self._timeout:g} s. Start the others.")
            with suppress(TimeoutError, ConnectionError):
                sock, _ = self._socket.accept()
                with self._lock:
                    self._strangers.append(sock)
                    if len(self._strangers) > MOST_STRANGERS:
                        _hang_up(self._strangers[0])
                threading.Thread(target=self._let_in, args=(sock,), daemon=True).start()
        self._come.sort(key=lambda caller: getattr(caller.entry, self._sortby))  # equal ones as they came
        addresses, names = [(c.entry.host, c.entry.port) for c in self._come], [c.name for c in self._come]
        for rank, caller in enumerate(self._come):
            with suppress(OSError):  # it has gone: the others find out when they meet
                caller.tell(Place(rank, addresses, names), self._token)

    def _let_in(self, sock: socket.socket) -> None:
        try:
            caller = _Caller.proven(sock, self._token)
        except (OSError, ValueError, TypeError):  # whatever a stranger does
            caller = None
        with self._lock:
            self._strangers.remove(sock)
            has_seat = caller is not None and len(self._come) < self._n_workers and not self._is_freed
            with suppress(OSError):
                sock.sendall(SEATED if has_seat else REFUSED)
            if caller is not None and has_seat:
                self._come.append(caller)
                return log(2, f"{caller.name} has come, {len(self._come)} of {self._n_workers}")
        _hang_up(sock)


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
        deadline, own = monotonic() + HANDSHAKE_SECONDS, secrets.token_bytes(NONCE_BYTES)
        sock.settimeout(HANDSHAKE_SECONDS)
        sock.sendall(own)
        theirs = read_exactly(sock, NONCE_BYTES, deadline)
        said = Entry(**_receive(sock, token, own + theirs, LONGEST_ENTRY, deadline))
        entry = Entry(str(said.host), int(said.port), str(said.task))
        _stay(sock)
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


class TrackerCall:
    """A worker's call to a tracker. host : of the interface that reaches it, for the other workers to connect to.

    patience : seconds for the tracker to be there, and to listen. Raises ConnectionError where it is not.
    """

    def __init__(self, address: tuple[str, int], patience: float) -> None:
        self._address, self._deadline = address, monotonic() + patience
        self._socket = self._connected()
        self.host: str = self._socket.getsockname()[0]

    def place(self, port: int, task: str, token: str) -> Place:
        """Take part, on that port; what the tracker answers when all are there. Raises ConnectionError where it does not."""
        while True:
            try:
                own, theirs = self._say_who(port, task, token)
                break
            except _Refused:
                self._socket.close()
                why = "it has its workers, or another token. Pass what its worker_args() returns."
                raise ConnectionError(f"{self._tracker} does not take this worker: {why}") from None
            except OSError:  # too many call at once
                self._socket.close()
                sleep(LOOK_SECONDS)
                self._socket = self._connected()
        try:
            told = _receive(self._socket, token, own + theirs, LONGEST_PLACE)
        except (OSError, ValueError) as error:
            self._socket.close()
            raise ConnectionError(f"{self._tracker} has ended before all workers were there: {error}.") from None
        return Place(told["rank"], [(host, port) for host, port in told["addresses"]], told["names"])

    @property
    def _tracker(self) -> str:
        return f"the tracker at {self._address[0]}:{self._address[1]}"

    def _connected(self) -> socket.socket:
        while True:
            try:
                return socket.create_connection(self._address, timeout=HANDSHAKE_SECONDS)
            except OSError as error:
                if monotonic() > self._deadline:
                    raise ConnectionError(f"{self._tracker} cannot be reached: {error}. Start it first.") from None
                sleep(LOOK_SECONDS)

    def _say_who(self, port: int, task: str, token: str) -> tuple[bytes, bytes]:
        """Both nonces, own first, once there is a seat. Raises _Refused, or OSError where the tracker hangs up before."""
        theirs, own = read_exactly(self._socket, NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
        self._socket.sendall(own)
        _send(self._socket, asdict(Entry(self.host, port, task)), token, theirs + own)
        if read_exactly(self._socket, 1) != SEATED:
            raise _Refused
        _stay(self._socket)
        return own, theirs

    def end(self, is_done: bool) -> None:
        """is_done : this worker has finished; otherwise it is lost."""
        with suppress(OSError):
            if is_done:
                self._socket.sendall(END)
        self._socket.close()


class _Refused(Exception):
    """A tracker has no seat for a worker."""


def _send(sock: socket.socket, message: dict[str, Any], token: str, nonces: bytes) -> None:
    text = json.dumps(message).encode()
    sock.sendall(LENGTH.pack(len(text)) + text + _proof(token, nonces, text))


def _receive(sock: socket.socket, token: str, nonces: bytes, longest: int, deadline: float | None = None) -> dict[str, Any]:
    """Raises ValueError for one who does not know the token, TimeoutError after the deadline."""
    n = LENGTH.unpack(read_exactly(sock, LENGTH.size, deadline))[0]
    if n > longest:
        raise ValueError("a message is too long")
    text = read_exactly(sock, n, deadline)
    if not hmac.compare_digest(read_exactly(sock, PROOF_BYTES, deadline), _proof(token, nonces, text)):
        raise ValueError("a message is not proven")
    return json.loads(text)


def _proof(token: str, nonces: bytes, text: bytes) -> bytes:
    return hmac.digest(token.encode(), nonces + text, "sha256")


def _stay(sock: socket.socket) -> None:
    """From now on wait as long as the other machine is there."""
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _hang_up(sock: socket.socket) -> None:
    """Whoever reads from it finds its end."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def _own_host() -> str:
    """The address of the interface to other machines, or this machine's own where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("10.255.255.255", 1))  # sends nothing
        return str(probe.getsockname()[0])
    return "127.0.0.1"
