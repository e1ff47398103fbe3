"""Client side of NCCL's RAS protocol, without sockets: the conditions for polling, and the dialogue.

Polling has crashed jobs in several releases, mostly during the initialisation of communicators. It is therefore off by
default, rate-limited, and not done during the first minutes of a job. Commands that change a job or walk all of its
memory are not implemented. No reply means unknown, not healthy.
"""

import re
from dataclasses import dataclass
from typing import Literal

from exporter.nccl.decoding import FormatError
from exporter.nccl.ras import MAX_ANSWER

PORT = 28028
"""TCP port of the service, on either 127.0.0.1 or ::1, in the network namespace of the job."""

MIN_JOB_AGE_SECONDS = 300.0
"""Minimum age of a job: communicators are initialised at its start."""

MIN_INTERVAL_SECONDS = 15.0
"""Minimum time between two polls of a job."""

MIN_JSON_VERSION = (2, 28, 7)

MAX_LINE = 4096
"""Bytes of a line that precedes the reply."""

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
    """Parse "2.28.9", "2.26.2+cuda12.4" or NCCL_VERSION_CODE, 22809; None if malformed."""
    if found := re.match(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\d])", text, re.ASCII):
        return int(found[1]), int(found[2]), int(found[3])
    if re.fullmatch(r"\d{4,6}", text, re.ASCII):
        number = int(text)
        # Up to 2.8 the minor version has one digit.
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
    """Return why a job must not be polled now; None if it may be.

    Args:
        version: NCCL version of the job; None if unknown.
        age: Seconds since the job started; None if unknown.
        since_last: Seconds since the last poll; None if never polled.
        enabled: Whether polling is enabled.
        forced: Whether to poll unknown releases, and those known to crash.
        others: Whether another process polls the job.
        initialising: Whether a communicator of the job is being initialised.
    """
    checks: tuple[tuple[bool, Refusal], ...] = (
        (not enabled, "off"),
        (not forced and version is None, "version_unknown"),
        (not forced and version is not None and version < MIN_JSON_VERSION, "version_crashes"),
        (age is None, "age_unknown"),
        (age is not None and age < MIN_JOB_AGE_SECONDS, "too_young"),
        (others, "another_poller"),
        (initialising, "initialising"),
        (since_last is not None and since_last < MIN_INTERVAL_SECONDS, "too_soon"),
    )
    return next((refusal for failed, refusal in checks if failed), None)


@dataclass(frozen=True, slots=True)
class QueryStep:
    """Next step of the dialogue.

    Attributes:
        send: Bytes to send; empty if none.
        answer: The complete reply, once the peer has closed; else None.
    """

    send: bytes = b""
    answer: bytes | None = None


class StatusQuery:
    """State machine of one STATUS request: pass it the bytes received, send the bytes that it returns.

    The dialogue is CLIENT PROTOCOL, SET FORMAT json, STATUS; then the service replies and closes.
    """

    __slots__ = ("_data", "_waiting")

    def __init__(self) -> None:
        self._data = bytearray()
        self._waiting = "protocol"

    def begin(self) -> QueryStep:
        """Return the first bytes to send."""
        return QueryStep(b"CLIENT PROTOCOL 2\n")

    def receive(self, data: bytes) -> QueryStep:
        """Process received bytes.

        Raises:
            FormatError: The service refuses, violates the protocol, or sends too much.
        """
        self._data += data
        while self._waiting != "answer":
            line, end, rest = self._data.partition(b"\n")
            if len(line) > MAX_LINE:
                raise FormatError("too_large", "RAS: unterminated line")
            if not end:
                return QueryStep()
            self._data = bytearray(rest)
            if send := self._line(line.strip().decode("utf-8", "replace")):
                return QueryStep(send)
        if len(self._data) > MAX_ANSWER:
            raise FormatError("too_large", f"RAS: a reply of more than {MAX_ANSWER} bytes")
        return QueryStep()

    def closed(self) -> QueryStep:
        """Return the reply, after the peer has closed.

        Raises:
            FormatError: It closed before it replied.
        """
        if self._waiting != "answer" or not self._data.strip():
            raise FormatError("refused", f"RAS: closed without a reply, while waiting for its {self._waiting}")
        return QueryStep(answer=bytes(self._data))

    def _line(self, line: str) -> bytes:
        if self._waiting == "protocol":
            if not re.fullmatch(r"SERVER PROTOCOL \d{1,4}", line, re.ASCII):
                raise FormatError("refused", f"RAS: {line!r} instead of its protocol")
            self._waiting = "format"
            return b"SET FORMAT json\n"
        if line != "OK":
            raise FormatError("refused", f"RAS: {line!r} instead of OK")
        self._waiting = "answer"
        return b"STATUS\n"
