"""The socket on which processes of training jobs tell their timings: datagrams of `fabric_timing.py`.

Anybody on the host may send, so nothing that is said is believed where the kernel says better: it tells the process
and user of each datagram, and /proc tells the control group, hence the job or pod. All is bounded: bytes a second of a
sender, senders, and what waits to be taken; what is refused is counted by reason.
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

from exporter.core.blocking import BlockingCalls
from exporter.linux.cgroup import MAX_TEXT, Owner, owner_of
from exporter.nccl import datagram
from exporter.nccl.datagram import MAX_DATAGRAM, Datagram, DatagramError
from exporter.sources.nccl.identity import job_of

SOCKET = "/run/fabric-exporter/timing.sock"

MAX_SENDERS = 512
"""Processes that are told apart at a time."""

SENDER_RATE = 256 << 10
"""Bytes a second of one sender: some 5,000 collectives …"""

SENDER_BURST = 4 * SENDER_RATE
"""… and how much of it may come at once, after some silence."""

UNSEEN = 16
"""Processes that may be behind one user whose processes cannot be seen, as those of another PID namespace."""

MAX_WAITING = 8 << 20
"""Bytes that wait to be taken, before and after they are read."""

MAX_AT_ONCE = 64
"""Datagrams that are received, or read, at a time, so that the loop gets on with others."""

OWNER_AGE = 10.0
"""Seconds for which it is believed whose a process is: its number may go to another one."""

SILENCE = 300.0
"""Seconds after which a sender is forgotten."""

CALL_DEADLINE = 1.0
"""Seconds that asking /proc may take."""

OUTCOMES = ("accepted", *datagram.REASONS, "no_sender", "foreign_job", "rate", "senders", "queue")
"""What becomes of datagrams."""

_CREDENTIALS = struct.Struct("3i")
_PASSED = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(256 * 4)
"""Room for credentials, and for descriptors that somebody may try to pass."""


class Sender(NamedTuple):
    """Who sends, as the kernel tells it.

    Attributes:
        pid: As this process sees it; 0 where it cannot.
        uid: Its user.
        owner: Whose it is; all empty where that is not told.
    """

    pid: int
    uid: int
    owner: Owner


class Received(NamedTuple):
    """A datagram that is accepted.

    Attributes:
        sender: Who sent it.
        job: Name of the job: by its control group, else as it says itself; `unknown` where nobody says.
        datagram: What it says.
        at: Seconds of the monotonic clock when it came.
    """

    sender: Sender
    job: str
    datagram: Datagram
    at: float


@dataclass(slots=True)
class _Budget:
    """What a sender may still send, whose it is, and when it was heard."""

    left: float
    heard: float
    owner: Owner | None = None
    asked: float = field(default=-OWNER_AGE)


class _Raw(NamedTuple):
    data: bytes
    key: tuple[int, int]
    at: float


class TimingSocket:
    """Receives datagrams; `take` gives those that came since."""

    def __init__(self, path: str = SOCKET, procfs: Path = Path("/proc")) -> None:
        """Take where to listen, and where to ask about processes."""
        self.counts = Counter(dict.fromkeys(OUTCOMES, 0))
        self._path, self._procfs = path, procfs
        self._socket: socket.socket | None = None
        self._senders: dict[tuple[int, int], _Budget] = {}
        self._holders: dict[str, int] = {}
        self._raw: deque[_Raw] = deque()
        self._waiting = 0
        self._serial = BlockingCalls("timing", CALL_DEADLINE, ("timing", str(procfs)))

    @property
    def senders(self) -> int:
        """Give how many processes were heard lately."""
        return len(self._senders)

    async def open(self) -> None:
        """Listen; the folder is made where it is missing, and a socket that nobody listens on any more is replaced.

        Raises:
            OSError: That is not possible, or somebody listens there.
        """
        found = await self._serial.run([("open", partial(_listen, self._path))])
        if isinstance(found["open"], Exception):
            raise found["open"]
        self._socket = found["open"]
        asyncio.get_running_loop().add_reader(self._socket, self._readable)

    async def close(self) -> None:
        """Listen no more, and take the socket away; closing twice does no harm."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            await self._serial.run([("close", partial(_remove, self._path))])
        self._serial.close()

    async def take(self) -> list[Received]:
        """Give what was accepted since the last time; the rest is counted."""
        raw, self._raw, self._waiting = self._raw, deque(), 0
        await self._identify({one.key for one in raw}, monotonic())
        found = []
        for place, one in enumerate(raw, 1):
            if place % MAX_AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                found.append(self._accepted(one))
            except DatagramError as error:
                self.counts[error.reason] += 1
            except _RefusedError as error:
                self.counts[str(error)] += 1
            else:
                self.counts["accepted"] += 1
        self._forget(monotonic())
        return found

    def _readable(self) -> None:
        """Receive what is there, without looking into it."""
        assert self._socket is not None  # noqa: S101  # it is not watched any more once it is closed
        for _ in range(MAX_AT_ONCE):
            try:
                data, passed, _, _ = self._socket.recvmsg(
                    MAX_DATAGRAM + 1, _PASSED
                )  # one byte tells that it is too long
            except BlockingIOError:
                return
            refused = self._take_in(data, passed, monotonic())
            if refused:
                self.counts[refused] += 1

    def _take_in(self, data: bytes, passed: Iterable[tuple[int, int, bytes]], now: float) -> str:
        """Put a datagram where it waits; give why it is refused instead."""
        key = _sender(passed)
        if key is None:
            return "no_sender"
        budget = self._senders.get(key)
        scale = 1 if key[0] else UNSEEN
        if budget is None:
            if len(self._senders) >= MAX_SENDERS:
                return "senders"
            budget = self._senders[key] = _Budget(SENDER_BURST * scale, now)
        budget.left = min(SENDER_BURST * scale, budget.left + (now - budget.heard) * SENDER_RATE * scale)
        budget.heard = now
        if budget.left < len(data):
            return "rate"
        budget.left -= len(data)
        if self._waiting + len(data) > MAX_WAITING:
            return "queue"
        self._waiting += len(data)
        self._raw.append(_Raw(data, key, now))
        return ""

    async def _identify(self, keys: Iterable[tuple[int, int]], now: float) -> None:
        """Ask whose the senders are, where that is not known or was not asked for a while."""
        wanted = {
            f"{key[0]} of user {key[1]}": (str(key[0]), self._senders[key])
            for key in keys
            if key[0] and key in self._senders and now - self._senders[key].asked >= OWNER_AGE
        }
        if not wanted:
            return
        texts = await self._serial.run(
            [(name, partial(_cgroup, self._procfs, pid)) for name, (pid, _) in wanted.items()]
        )
        for name, (_, budget) in wanted.items():
            text = texts[name]
            budget.asked = now
            if isinstance(text, str):
                budget.owner = owner_of(text)
            elif budget.owner is None:
                budget.owner = Owner()  # it has ended already, or may not be looked at
        self._holders = {
            budget.owner.job: uid for (_, uid), budget in self._senders.items() if budget.owner and budget.owner.job
        }

    def _accepted(self, raw: _Raw) -> Received:
        """Read a datagram, and see that it speaks for nobody else.

        Raises:
            DatagramError: It cannot be used.
            _RefusedError: It says that it is of another job than it is.
        """
        told = datagram.parse(raw.data)
        pid, uid = raw.key
        budget = self._senders.get(raw.key)
        owner = (budget.owner if budget else None) or Owner()
        claimed = told.env.get("SLURM_JOB_ID", "")
        if owner.job and claimed not in {"", owner.job}:
            raise _RefusedError("foreign_job")
        job = job_of(told.env, owner, pod=told.host)
        if not owner.job and self._holders.get(job, uid) != uid:
            raise _RefusedError("foreign_job")
        return Received(Sender(pid, uid, owner), job, told, raw.at)

    def _forget(self, now: float) -> None:
        """Drop the senders that were silent for long."""
        self._senders = {key: one for key, one in self._senders.items() if now - one.heard < SILENCE}


class _RefusedError(Exception):
    """A datagram is refused; the text is one of OUTCOMES."""


def _sender(passed: Iterable[tuple[int, int, bytes]]) -> tuple[int, int] | None:
    """Give process and user; None where the kernel does not tell. Descriptors that were passed are closed."""
    found = None
    for level, kind, data in passed:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_CREDENTIALS and len(data) == _CREDENTIALS.size:
            pid, uid, _ = _CREDENTIALS.unpack(data)
            found = (pid, uid)
        elif kind == socket.SCM_RIGHTS:
            for (descriptor,) in struct.iter_unpack("i", data[: len(data) // 4 * 4]):
                os.close(descriptor)
    return found


def _cgroup(procfs: Path, pid: str) -> str:
    with (procfs / pid / "cgroup").open(encoding="utf-8", errors="replace") as file:
        return file.read(MAX_TEXT)


def _listen(path: str) -> socket.socket:
    """Make the socket, to which everybody may send."""
    place = Path(path)
    if not place.parent.exists():
        place.parent.mkdir(parents=True)
        place.parent.chmod(0o755)  # whatever the mask of this process is
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
    """Remove a socket that nobody listens on.

    Raises:
        OSError: Somebody does, or it is no socket.
    """
    try:
        kind = place.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise FileExistsError(f"{place} is there and is no socket; remove it, or name another place")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.connect(str(place))
        except ConnectionRefusedError:
            place.unlink()
        else:
            raise FileExistsError(f"{place}: another exporter listens there; end it, or name another place")


def _remove(path: str) -> None:
    with suppress(OSError):
        Path(path).unlink()
