"""Connections between workers: how they are made, who is let in, and what is read and written without ever blocking for good.

Two workers of a job have one connection; the one of the higher rank makes it. Both prove that they know the job's token, which
itself is never sent:

    who accepts → nonce a                                              16 bytes
    who connects → GREETING, its rank, nonce b, HMAC(token, a, b, ranks)
    who accepts → HMAC(token, b, a, ranks)
    who connects → READY: it has not given up on an answer that was slow

Whoever says anything else, or nothing for HANDSHAKE_SECONDS, is hung up on, and the job does not notice. The listening socket is
there only until all workers have met.
"""

import hmac
import secrets
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from struct import Struct
from time import monotonic, sleep

import numpy as np

from gpuboost.network.wire import ABORT, DATA, HEADER, MAGIC, PULSE, Header, largest_payload, unpack_values

__all__ = ["Link", "Listener", "WorkerLost", "neighbours", "read_exactly", "wait_for"]

GREETING = b"gpuboost"
RANK = Struct("!I")
NONCE_BYTES, PROOF_BYTES = 16, 32
READY = b"!"
HANDSHAKE_SECONDS = 10.0  # a worker of the job answers in milliseconds
MOST_STRANGERS = 64  # connections that have proven nothing yet, at one time; more are hung up on, and workers try again
RETRY_SECONDS = 0.05
SLICE_BYTES = 1 << 18  # what is written or read at once
LONGEST_REASON = 2000  # bytes of the text of an ABORT


class WorkerLost(ConnectionError):
    """A worker that others wait for has gone, or is silent. name : which. is_silent : it was not heard from for too long, but its
    connection stands, as when it was stopped."""

    def __init__(self, message: str, name: str = "", is_silent: bool = False) -> None:
        super().__init__(message)
        self.name, self.is_silent = name, is_silent

    def __reduce__(self) -> tuple[type["WorkerLost"], tuple[str, str, bool]]:
        return type(self), (str(self), self.name, self.is_silent)


def neighbours(rank: int, size: int) -> list[int]:
    """The workers that one exchanges something with: of the ring, and of the tree."""
    tree = [(rank - 1) // 2] if rank else []
    tree += [child for child in (2 * rank + 1, 2 * rank + 2) if child < size]
    return sorted({(rank + 1) % size, (rank - 1) % size, *tree} - {rank})


class Link:
    """One end of a proven connection. Frames go out and come in whole; the main thread reads and writes values, and another one
    may put signs of life between its frames.

    name : of the worker at the other end. heard : when something came from it last, by time.monotonic.
    """

    def __init__(self, sock: socket.socket, rank: int, name: str) -> None:
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.rank, self.name, self.heard = sock, rank, name, monotonic()
        self.bytes_sent = 0
        self._lock = threading.Lock()  # of the socket: TLS cannot read in one thread while another writes
        self._out: list[memoryview] = []  # the rest of what is being sent
        self._header = bytearray()
        self._payload: bytearray | None = None
        self._filled = 0
        self.arrived: Header | None = None  # of values whose payload comes next

    # -- sending ------------------------------------------------------------------------------------------------------

    def start_sending(self, header: Header, payload: Sequence[memoryview]) -> None:
        """Queue a frame; push() sends it."""
        with self._lock:
            self._out += [memoryview(HEADER.pack(*header)), *payload]

    def push(self) -> bool:
        """Send what the socket takes; whether it took anything. Raises WorkerLost where the connection is gone."""
        try:
            with self._lock:
                return self._push()
        except WorkerLost as lost:
            raise self._last_word(lost) from None

    def _last_word(self, lost: WorkerLost) -> WorkerLost:
        """Why the other end has hung up, if it has said so: that lies behind the values that it sent before."""
        try:
            while self.poll() or self.arrived is not None:
                if self.arrived is not None and not self.pull():
                    break
                if self.is_whole:
                    self.take()
        except WorkerLost as said:
            return said if said.name != self.name or not said.name else lost
        return lost

    def _push(self) -> bool:
        has_moved = False
        try:
            while self._out:
                n = self.socket.send(self._out[0][:SLICE_BYTES])
                has_moved = True
                self.bytes_sent += n
                self._out[0] = self._out[0][n:]
                if not self._out[0]:
                    self._out.pop(0)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except (OSError, ValueError) as error:
            raise self.lost(f"its connection broke ({error})") from None
        return has_moved

    @property
    def is_sending(self) -> bool:
        return bool(self._out)

    def signal(self, kind: int, text: str = "") -> None:
        """Send a sign of life or a reason to give up, unless values are on their way or the connection is gone."""
        payload = text.encode()[:LONGEST_REASON]
        with self._lock, suppress(WorkerLost):
            if not self._out:
                self._out = [memoryview(HEADER.pack(MAGIC, kind, 0, 0, 0, len(payload)) + payload)]
                self._push()

    # -- receiving ----------------------------------------------------------------------------------------------------

    def poll(self) -> bool:
        """Read up to the next values; whether anything came. Their header is in ``arrived``.

        Raises WorkerLost where the connection is gone, where the other end gives up, or what it says is no frame.
        """
        has_moved = False
        while self.arrived is None:
            wanted = HEADER.size - len(self._header) if self._payload is None else len(self._payload) - self._filled
            if wanted:
                data = self._receive(wanted)
                if data is None:
                    return has_moved
                has_moved = True
                if self._payload is None:
                    self._header += data
                    if len(self._header) < HEADER.size:
                        continue
                else:
                    self._payload[self._filled : self._filled + len(data)] = data
                    self._filled += len(data)
                    if self._filled < len(self._payload):
                        continue
            self._take_header()
        return has_moved

    def _take_header(self) -> None:
        """A header is whole, or the payload of an ABORT."""
        header = Header(*HEADER.unpack(self._header))
        if self._payload is not None:
            text, name = bytes(self._payload).decode(errors="replace"), ""
            is_silent, _, text = text.partition("\n")
            name, _, text = text.partition("\n")
            raise WorkerLost(text, name, is_silent == "1")
        is_known = header.magic == MAGIC and header.kind in (DATA, PULSE, ABORT)
        if not is_known or header.n_bytes > (largest_payload(header.n_values) if header.n_values else LONGEST_REASON):
            raise self.lost("it sent something else than this version of gpuboost does")
        if header.kind == ABORT:
            self._payload, self._filled = bytearray(header.n_bytes), 0
        elif header.kind == PULSE:
            self._header.clear()
        else:
            self.arrived = header

    def pull(self) -> bool:
        """Read values whose header has arrived, and is what was awaited; whether anything came."""
        assert self.arrived is not None
        if self._payload is None:
            self._payload, self._filled = bytearray(self.arrived.n_bytes), 0
        has_moved = False
        while self._filled < len(self._payload):
            data = self._receive(min(len(self._payload) - self._filled, SLICE_BYTES))
            if data is None:
                return has_moved
            has_moved = True
            self._payload[self._filled : self._filled + len(data)] = data
            self._filled += len(data)
        return has_moved

    @property
    def is_whole(self) -> bool:
        """Whether values have come to their end."""
        return self.arrived is not None and self._payload is not None and self._filled == len(self._payload)

    def take(self) -> np.ndarray:
        """The values that have come, int64 (n,)."""
        assert self.arrived is not None and self._payload is not None
        n_values, payload = self.arrived.n_values, self._payload
        self.arrived = self._payload = None
        self._header.clear()
        try:
            return unpack_values(payload, n_values)
        except ValueError as error:
            raise self.lost(f"it sent something else than values: {error}") from None

    def _receive(self, n: int) -> bytes | None:
        """Up to n bytes; None where there are none now."""
        try:
            with self._lock:
                data = self.socket.recv(n)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except (OSError, ValueError) as error:
            raise self.lost(f"its connection broke ({error})") from None
        if not data:
            raise self.lost("it has closed its connection")
        self.heard = monotonic()
        return data

    def lost(self, why: str, is_silent: bool = False) -> WorkerLost:
        return WorkerLost(f"worker {self.rank} ({self.name}) is lost: {why}.", self.name, is_silent)

    def hang_up(self, how: int = socket.SHUT_RDWR) -> None:
        """No more is sent; the other end reads what is on its way, and then an end."""
        with self._lock, suppress(OSError):
            self.socket.shutdown(how)

    def close(self) -> None:
        with suppress(OSError):
            self.socket.close()


class Listener:
    """A worker's door, open while the workers of a job find each other.

    host : of the worker's own interface. ssl_contexts : of those who accept and those who connect, where the job uses TLS.
    """

    def __init__(self, host: str, ssl_contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None, port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=128)
        self._socket.settimeout(0.1)  # how long close() takes to be noticed
        self._ssl = ssl_contexts
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._accepted: dict[int, socket.socket] = {}
        self._changed = threading.Condition()
        self._is_closed = False

    def meet(
        self, rank: int, addresses: Sequence[tuple[str, int]], names: Sequence[str], token: bytes, *,
        meeting_timeout: float = 60.0, is_given_up: Callable[[], bool] = bool,
    ) -> dict[int, Link]:  # fmt: skip
        """Connect to the neighbours of a worker: their ranks and links. Nobody is let in afterwards.

        addresses : (host, port) of every worker's listener, by rank. names : what messages call the workers. token : known to the
        job's workers only. meeting_timeout : seconds for all to come. is_given_up : asked now and then.
        Raises WorkerLost naming who has not come.
        """
        peers, deadline = neighbours(rank, len(addresses)), monotonic() + meeting_timeout
        lower, higher = [p for p in peers if p < rank], {p for p in peers if p > rank}
        door = threading.Thread(target=self._let_in, args=(rank, higher, token), daemon=True)
        door.start()
        made: dict[int, socket.socket] = {}
        try:
            for peer in lower:
                made[peer] = self._connect(rank, peer, addresses[peer], names[peer], token, deadline, is_given_up)
            with self._changed:
                while missing := higher - self._accepted.keys():
                    if monotonic() > deadline or is_given_up():
                        first = min(missing)
                        raise WorkerLost(
                            f"worker {first} ({names[first]}) has not come within {meeting_timeout:g} s. Give the job's workers "
                            "threads that are free, and let them reach each other.", names[first],
                        )  # fmt: skip
                    self._changed.wait(0.1)
                made |= self._accepted
                self._accepted = {}
        except BaseException:
            for sock in made.values():
                sock.close()
            raise
        finally:
            self.close()
        return {peer: Link(sock, peer, names[peer]) for peer, sock in made.items()}

    def close(self) -> None:
        """Let nobody in any more."""
        with self._changed:
            self._is_closed = True
            for sock in self._accepted.values():
                sock.close()
            self._accepted = {}
        self._socket.close()

    def _let_in(self, rank: int, expected: Collection[int], token: bytes) -> None:
        """Answer every caller in a thread of its own, until the door is closed."""
        places = threading.Semaphore(MOST_STRANGERS)
        while not self._is_closed:
            try:
                caller, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            if not places.acquire(blocking=False):
                caller.close()
                continue
            threading.Thread(target=self._prove, args=(caller, rank, expected, token, places), daemon=True).start()

    def _prove(
        self, caller: socket.socket, rank: int, expected: Collection[int], token: bytes, places: threading.Semaphore
    ) -> None:
        is_kept = False
        try:
            caller.settimeout(HANDSHAKE_SECONDS)
            if self._ssl is not None:
                caller = self._ssl[0].wrap_socket(caller, server_side=True)
            own = secrets.token_bytes(NONCE_BYTES)
            caller.sendall(own)
            said = read_exactly(caller, len(GREETING) + RANK.size + NONCE_BYTES + PROOF_BYTES)
            greeting, rest = said[: len(GREETING)], said[len(GREETING) :]
            peer, theirs = RANK.unpack(rest[: RANK.size])[0], rest[RANK.size : RANK.size + NONCE_BYTES]
            proof = _proof(token, own, theirs, peer, rank)
            if greeting != GREETING or peer not in expected or not hmac.compare_digest(proof, rest[-PROOF_BYTES:]):
                return
            caller.sendall(_proof(token, theirs, own, peer, rank))
            if read_exactly(caller, len(READY)) != READY:
                return
            with self._changed:
                if not self._is_closed:
                    before, self._accepted[peer], is_kept = self._accepted.get(peer), caller, True
                    if before is not None:  # that the worker has given up on
                        before.close()
                    self._changed.notify()
        except (OSError, ValueError):  # of ssl, too: whatever a stranger does
            pass
        finally:
            places.release()
            if not is_kept:
                caller.close()

    def _connect(
        self, rank: int, peer: int, address: tuple[str, int], name: str, token: bytes, deadline: float,
        is_given_up: Callable[[], bool],
    ) -> socket.socket:  # fmt: skip
        """A proven connection to a worker, which may not be there yet."""
        why = "no answer"
        while monotonic() < deadline and not is_given_up():
            sock = None
            try:
                sock = socket.create_connection(address, timeout=HANDSHAKE_SECONDS)
                if self._ssl is not None:
                    sock = self._ssl[1].wrap_socket(sock)
                theirs, own = read_exactly(sock, NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
                sock.sendall(GREETING + RANK.pack(rank) + own + _proof(token, theirs, own, rank, peer))
                if hmac.compare_digest(read_exactly(sock, PROOF_BYTES), _proof(token, own, theirs, rank, peer)):
                    sock.sendall(READY)
                    return sock
                why = "it does not know the job's token"
            except (OSError, ValueError) as error:
                why = str(error)
            if sock is not None:
                sock.close()
            sleep(RETRY_SECONDS)
        raise WorkerLost(f"worker {peer} ({name}) at {address[0]}:{address[1]} cannot be reached: {why}.", name)


def wait_for(links: Collection[Link], awaited: Collection[Link], seconds: float) -> None:
    """Until one of the links can be written where it has something to send, or read where signs of life or awaited values come,
    or the time is over."""
    with selectors.DefaultSelector() as selector:
        for link in links:
            wanted = selectors.EVENT_READ if link.arrived is None or link in awaited else 0
            wanted |= selectors.EVENT_WRITE if link.is_sending else 0
            if wanted:
                with suppress(ValueError, OSError, KeyError):  # closed by another thread: whoever reads it finds out
                    selector.register(link.socket, wanted)
        selector.select(seconds)


def read_exactly(sock: socket.socket, n: int, deadline: float | None = None) -> bytes:
    """The next n bytes. Raises ConnectionError where there are fewer, TimeoutError after the deadline, by monotonic()."""
    data = bytearray()
    while len(data) < n:
        if deadline is not None:
            sock.settimeout(max(deadline - monotonic(), 1e-3))
        part = sock.recv(min(n - len(data), SLICE_BYTES))
        if not part:
            raise ConnectionError("the connection was closed")
        data += part
    return bytes(data)


def _proof(token: bytes, first: bytes, second: bytes, rank: int, peer: int) -> bytes:
    return hmac.digest(token, first + second + RANK.pack(rank) + RANK.pack(peer), "sha256")
