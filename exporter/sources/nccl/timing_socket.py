"""The Unix socket on which processes of training jobs send their timings: datagrams of `fabric_timing.py`.

Every process on the host may send, so what the kernel reports takes precedence: PID and user of each datagram, and the
control group in /proc with the job or pod. Everything is bounded: bytes per second and sender, number of senders, and
the queue; where these are full, the user with most of them loses. Rejected datagrams are counted by reason.
"""

import asyncio
import os
import socket
import stat
import struct
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls, Turns
from exporter.core.shares import Admission, Shares
from exporter.linux.cgroup import MAX_TEXT, Owner, owner_of
from exporter.nccl import datagram
from exporter.nccl.datagram import MAX_DATAGRAM, Datagram
from exporter.nccl.decoding import FormatError
from exporter.sources.common.job_files import TIMING_SOCKET
from exporter.sources.nccl.identity import job_of

MAX_SENDERS = 512
"""Processes tracked at a time."""

SENDER_RATE = 256 << 10
"""Bytes per second of one sender: some 5,000 collectives."""

SENDER_BURST = 4 * SENDER_RATE
"""Bytes that a sender may send at once after a pause."""

HIDDEN_SENDERS = 16
"""Processes allowed for per user where PIDs are not visible, as for processes of another PID namespace."""

MAX_QUEUED = 8 << 20
"""Bytes queued between receiving and parsing."""

MAX_AT_ONCE = 64
"""Datagrams received, or parsed, before the event loop can run other tasks."""

OWNER_CACHE_SECONDS = 10.0
"""Time for which the owner of a process is cached: PIDs are reused."""

EXPIRY_SECONDS = 300.0
"""Time without a datagram after which a sender expires."""

CALL_TIMEOUT_SECONDS = 1.0
"""Timeout of reading /proc."""

OUTCOMES = (
    "accepted",
    *datagram.REASONS,
    "no_credentials",
    "job_mismatch",
    "rate_limited",
    "too_many_senders",
    "queue_full",
)
"""Outcomes of datagrams."""

_CREDENTIALS = struct.Struct("3i")
_ANCILLARY_SIZE = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(256 * 4)
"""Room for the credentials, and for file descriptors that a sender may try to pass."""


class Sender(NamedTuple):
    """Sender of a datagram, as the kernel reports it.

    Attributes:
        pid: Process ID in the namespace of this process; 0 if not visible.
        uid: User ID.
        owner: Owner by its control group; all empty if unknown.
    """

    pid: int
    uid: int
    owner: Owner


class Received(NamedTuple):
    """An accepted datagram.

    Attributes:
        sender: Sender of the datagram.
        job: Job name: from the control group, else from the environment in the datagram, else `unknown`.
        datagram: The parsed datagram.
        at: Monotonic time of reception in seconds.
    """

    sender: Sender
    job: str
    datagram: Datagram
    at: float


@dataclass(slots=True)
class _SenderState:
    """Budget, last datagram and cached owner of a sender."""

    budget: float
    last_seen: float
    owner: Owner | None = None
    owner_read: float = field(default=-OWNER_CACHE_SECONDS)


class _Raw(NamedTuple):
    data: bytes
    key: tuple[int, int]
    at: float


class TimingSocket:
    """Receives datagrams; `take` returns those received since."""

    def __init__(self, path: str = TIMING_SOCKET, procfs: Path = Path("/proc"), turns: Turns | None = None) -> None:
        """Create the receiver for a socket path, the procfs to identify senders with, and the turns of its calls."""
        self.counts = Counter(dict.fromkeys(OUTCOMES, 0))
        self._path, self._procfs = path, procfs
        self._socket: socket.socket | None = None
        self._senders: dict[tuple[int, int], _SenderState] = {}
        self._admission: Admission[tuple[int, int], int] = Admission()
        self._job_users: dict[str, int] = {}
        self._raw: dict[int, deque[_Raw]] = {}  # by user
        self._queued: Shares[int] = Shares()
        self._serial = BlockingCalls("timing", CALL_TIMEOUT_SECONDS, turns)

    @property
    def senders(self) -> int:
        """Number of processes that sent recently."""
        return len(self._senders)

    async def open(self) -> None:
        """Bind the socket; a missing folder is created, and a socket without a listener is replaced.

        Raises:
            OSError: That fails, or another process listens on it.
        """
        found = await self._serial.run([("open", partial(_listen, self._path))])
        if isinstance(found["open"], Exception):
            raise found["open"]
        self._socket = found["open"]
        asyncio.get_running_loop().add_reader(self._socket, self._readable)

    async def close(self) -> None:
        """Close and remove the socket; closing twice is harmless."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            await self._serial.run([("close", partial(_remove, self._path))])
        self._serial.close()

    async def take(self) -> list[Received]:
        """Return the datagrams accepted since the last call; the others are counted."""
        raw = [one for queued in self._raw.values() for one in queued]
        self._raw, self._queued = {}, Shares()
        await self._identify({one.key for one in raw}, monotonic())
        found = []
        for place, one in enumerate(raw, 1):
            if place % MAX_AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                found.append(self._accepted(one))
            except FormatError as error:
                self.counts[error.reason] += 1
            except _RejectedError as error:
                self.counts[str(error)] += 1
            else:
                self.counts["accepted"] += 1
        self._expire(monotonic())
        return found

    def _readable(self) -> None:
        """Receive queued datagrams without parsing them."""
        assert self._socket is not None  # noqa: S101  # it is not watched any more once it is closed
        for _ in range(MAX_AT_ONCE):
            try:
                # One byte more than the maximum, to detect datagrams that are too long.
                data, ancillary, _, _ = self._socket.recvmsg(MAX_DATAGRAM + 1, _ANCILLARY_SIZE)
            except BlockingIOError:
                return
            rejected = self._enqueue(data, ancillary, monotonic())
            if rejected:
                self.counts[rejected] += 1

    def _enqueue(self, data: bytes, ancillary: Iterable[tuple[int, int, bytes]], now: float) -> str:
        """Queue a datagram; return why it is rejected, or an empty string."""
        key = _credentials(ancillary)
        if key is None:
            return "no_credentials"
        sender = self._senders.get(key)
        scale = 1 if key[0] else HIDDEN_SENDERS
        admitted, evicted = self._admission.report(key, key[1], now, MAX_SENDERS)
        if evicted is not None:
            del self._senders[evicted]
        if not admitted:
            return "too_many_senders"
        if sender is None:
            sender = self._senders[key] = _SenderState(SENDER_BURST * scale, now)
        sender.budget = min(SENDER_BURST * scale, sender.budget + (now - sender.last_seen) * SENDER_RATE * scale)
        sender.last_seen = now
        if sender.budget < len(data):
            return "rate_limited"
        sender.budget -= len(data)
        if not self._has_room(key[1], len(data)):
            return "queue_full"
        self._queued.add(key[1], len(data))
        self._raw.setdefault(key[1], deque()).append(_Raw(data, key, now))
        return ""

    def _has_room(self, uid: int, size: int) -> bool:
        """Return whether a datagram of a user fits into the queue; it replaces others of a user that has more in it."""
        while self._queued.total + size > MAX_QUEUED:
            greediest = max(self._raw, key=self._queued.held, default=uid)
            if self._queued.held(greediest) <= self._queued.held(uid) + size:
                return False
            self._queued.remove(greediest, len(self._raw[greediest].pop().data))
            self.counts["queue_full"] += 1
        return True

    async def _identify(self, keys: Iterable[tuple[int, int]], now: float) -> None:
        """Read the owners of senders that are not cached."""
        wanted = {
            f"{key[0]} of user {key[1]}": (str(key[0]), self._senders[key])
            for key in keys
            if key[0] and key in self._senders and now - self._senders[key].owner_read >= OWNER_CACHE_SECONDS
        }
        if not wanted:
            return
        texts = await self._serial.run(
            [(name, partial(_read_cgroup, self._procfs, pid)) for name, (pid, _) in wanted.items()]
        )
        for name, (_, sender) in wanted.items():
            text = texts[name]
            sender.owner_read = now
            if isinstance(text, str):
                sender.owner = owner_of(text)
            elif sender.owner is None:
                sender.owner = Owner()  # it ended already, or is not readable
        self._job_users = {
            sender.owner.job: uid for (_, uid), sender in self._senders.items() if sender.owner and sender.owner.job
        }

    def _accepted(self, raw: _Raw) -> Received:
        """Parse a datagram, and check that its job is that of its sender.

        Raises:
            FormatError: It cannot be used.
            _RejectedError: It claims to be of another job.
        """
        received = datagram.parse_datagram(raw.data)
        pid, uid = raw.key
        sender = self._senders.get(raw.key)
        if sender is None:  # it gave way to one of another user
            raise _RejectedError("too_many_senders")
        owner = sender.owner or Owner()
        claimed = received.env.get("SLURM_JOB_ID", "")
        if owner.job and claimed not in {"", owner.job}:
            raise _RejectedError("job_mismatch")
        job = job_of(received.env, owner, pod=received.host)
        if not owner.job and self._job_users.get(job, uid) != uid:
            raise _RejectedError("job_mismatch")
        return Received(Sender(pid, uid, owner), job, received, raw.at)

    def _expire(self, now: float) -> None:
        """Drop the senders that expired."""
        for key in [key for key, one in self._senders.items() if now - one.last_seen >= EXPIRY_SECONDS]:
            del self._senders[key]
            self._admission.forget(key)


class _RejectedError(Exception):
    """A datagram is rejected; the text is one of OUTCOMES."""


def _credentials(ancillary: Iterable[tuple[int, int, bytes]]) -> tuple[int, int] | None:
    """Return PID and UID (SCM_CREDENTIALS); None if absent. File descriptors that were passed are closed."""
    found = None
    for level, kind, data in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_CREDENTIALS and len(data) == _CREDENTIALS.size:
            pid, uid, _ = _CREDENTIALS.unpack(data)
            found = (pid, uid)
        elif kind == socket.SCM_RIGHTS:
            for (descriptor,) in struct.iter_unpack("i", data[: len(data) // 4 * 4]):
                os.close(descriptor)
    return found


def _read_cgroup(procfs: Path, pid: str) -> str:
    with (procfs / pid / "cgroup").open(encoding="utf-8", errors="replace") as file:
        return file.read(MAX_TEXT)


def _listen(path: str) -> socket.socket:
    """Create the socket, with write permission for all users."""
    place = Path(path)
    if not place.parent.exists():
        place.parent.mkdir(parents=True)
        place.parent.chmod(0o755)  # independent of the umask
    _replace_stale(place)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        made.bind(path)
        place.chmod(0o666)
    except OSError:
        made.close()
        raise
    return made


def _replace_stale(place: Path) -> None:
    """Remove a socket without a listener.

    Raises:
        OSError: It has a listener, or is not a socket.
    """
    try:
        kind = place.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise FileExistsError(f"{place}: exists and is not a socket; remove it, or configure another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.connect(str(place))
        except ConnectionRefusedError:
            place.unlink()
        else:
            raise FileExistsError(f"{place}: another exporter is listening; stop it, or configure another path")


def _remove(path: str) -> None:
    with suppress(OSError):
        Path(path).unlink()
