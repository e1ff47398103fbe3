"""How to ask NCCL's RAS service, without sockets: whether it is safe to, and what to send after what came.

Polling has crashed jobs in several releases, above all while communicators are being made. So it is off unless asked
for, rare, and never before a job is some minutes old; commands that change a job or walk all of its memory are not
even known here. An answer that does not come means unknown, not healthy.
"""

import re
from dataclasses import dataclass
from typing import Literal

from exporter.nccl.decoding import FormatError
from exporter.nccl.ras import MAX_ANSWER

PORT = 28028
"""Where the service listens, on 127.0.0.1 or on ::1 alone, in the network namespace of the job."""

YOUNGEST = 300.0
"""Seconds that a job must have run: communicators are made at its start."""

SHORTEST_INTERVAL = 15.0
"""Seconds between two polls of a job."""

FIRST_WITH_JSON = (2, 28, 7)

MAX_LINE = 4096
"""Bytes of a line that precedes an answer."""

Refusal = Literal[
    "off",
    "version_unknown",
    "version_crashes",
    "too_young",
    "age_unknown",
    "too_soon",
    "another_poller",
    "initialising",
]


def parse_version(text: str) -> tuple[int, int, int] | None:
    """Read "2.28.9", "2.26.2+cuda12.4" or the number of nccl.h, 22809; None for anything else."""
    if found := re.match(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\d])", text, re.ASCII):
        return int(found[1]), int(found[2]), int(found[3])
    if re.fullmatch(r"\d{4,6}", text, re.ASCII):
        number = int(text)
        # up to 2.8 the minor version had one digit
        scale = 10_000 if number >= 10_000 else 1000
        return number // scale, number % scale // 100, number % 100
    return None


def may_poll(
    version: tuple[int, int, int] | None,
    age: float | None,
    since_last: float | None,
    *,
    enabled: bool,
    forced: bool = False,
    others: bool = False,
    initialising: bool = False,
) -> Refusal | None:
    """Say why a job must not be polled now; None if it may.

    Args:
        version: Of the job's NCCL; None where unknown.
        age: Seconds that the job runs; None where unknown.
        since_last: Seconds since it was polled; None if never.
        enabled: Whether polling was asked for.
        forced: Whether releases that crash, or that are not known, were asked for too.
        others: Whether another process polls the job.
        initialising: Whether a communicator of it is known to be in the making.
    """
    checks: tuple[tuple[bool, Refusal], ...] = (
        (not enabled, "off"),
        (not forced and version is None, "version_unknown"),
        (not forced and version is not None and version < FIRST_WITH_JSON, "version_crashes"),
        (age is None, "age_unknown"),
        (age is not None and age < YOUNGEST, "too_young"),
        (others, "another_poller"),
        (initialising, "initialising"),
        (since_last is not None and since_last < SHORTEST_INTERVAL, "too_soon"),
    )
    return next((refusal for holds, refusal in checks if holds), None)


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next.

    Attributes:
        send: Bytes to send; empty if none.
        answer: The whole answer, once the peer has closed; else None.
    """

    send: bytes = b""
    answer: bytes | None = None


class StatusQuery:
    """One question for the status: feed it what comes, send what it says.

    The dialogue is CLIENT PROTOCOL, SET FORMAT json, STATUS; then the service answers and closes.
    """

    __slots__ = ("_data", "_text", "_waiting")

    def __init__(self, *, text: bool = False) -> None:
        """Begin.

        Args:
            text: Whether to ask for text, which is all that releases before 2.28.7 know.
        """
        self._data = bytearray()
        self._text = text
        self._waiting = "protocol"

    def begin(self) -> Step:
        """Give the first bytes to send."""
        return Step(b"CLIENT PROTOCOL 2\n")

    def receive(self, data: bytes) -> Step:
        """Take bytes that came.

        Raises:
            FormatError: The service refuses, says something else than it should, or says too much.
        """
        self._data += data
        while self._waiting != "answer":
            line, end, rest = self._data.partition(b"\n")
            if len(line) > MAX_LINE:
                raise FormatError("too_large", "RAS: a line without end")
            if not end:
                return Step()
            self._data = bytearray(rest)
            if send := self._line(line.strip().decode("utf-8", "replace")):
                return Step(send)
        if len(self._data) > MAX_ANSWER:
            raise FormatError("too_large", f"RAS: an answer of more than {MAX_ANSWER} bytes")
        return Step()

    def closed(self) -> Step:
        """Take that the peer has closed, and give the answer.

        Raises:
            FormatError: It closed before it answered.
        """
        if self._waiting != "answer" or not self._data.strip():
            raise FormatError("refused", f"RAS: closed without an answer, while waiting for its {self._waiting}")
        return Step(answer=bytes(self._data))

    def _line(self, line: str) -> bytes:
        if self._waiting == "protocol":
            if not re.fullmatch(r"SERVER PROTOCOL \d{1,4}", line, re.ASCII):
                raise FormatError("refused", f"RAS: {line!r} instead of its protocol")
            if self._text:
                self._waiting = "answer"
                return b"STATUS\n"
            self._waiting = "format"
            return b"SET FORMAT json\n"
        if line != "OK":
            raise FormatError("refused", f"RAS: {line!r} instead of OK")
        self._waiting = "answer"
        return b"STATUS\n"
