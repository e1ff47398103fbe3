"""Files of CoMMA, Google's NCCL profiler plugin: a JSON list with one object per collective.

`dur` is the time of the enqueue call; the execution time of the collective is `child_dur`, which may be absent. A
process that dies leaves the list open, so objects are also parsed one by one.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec

from exporter.core.collectives import known_kind
from exporter.nccl.decoding import (
    Count,
    FormatError,
    MessageBytes,
    Microseconds,
    Rank,
    ShortText,
    Word,
    decode,
)

MAX_FILE = 64 << 20
"""Bytes of a file."""

MAX_OBJECT = 4 << 20
"""Bytes of one object, including the steps of its proxy operations."""


class EventArguments(msgspec.Struct, frozen=True, gc=False):
    """Arguments of an operation."""

    size: MessageBytes = 0


class CommaEvent(
    msgspec.Struct,
    frozen=True,
    rename={
        "category": "cat",
        "microseconds": "child_dur",
        "communicator": "comm_hash",
        "sequence": "seq_num",
        "arguments": "args",
    },
):
    """One operation of one rank.

    Attributes:
        name: all_reduce …; see `kind`.
        category: COLL, P2P or PROXY.
        communicator: Hash of the communicator; empty for proxy operations.
        rank: Rank in the communicator; None for proxy operations.
        sequence: Sequence number of the collective; None where absent.
        microseconds: Execution time; None where absent, and then the collective is untimed.
        pid: Process ID; 0 where absent.
        arguments: Message size.
    """

    name: Word
    category: ShortText = ""
    communicator: ShortText = ""
    rank: Rank | None = None
    sequence: Count | None = None
    microseconds: Microseconds | None = None
    pid: Count = 0
    arguments: EventArguments = EventArguments()

    @property
    def kind(self) -> str:
        """One of `collectives.KINDS`, or `other`."""
        return known_kind(self.name)


_list = msgspec.json.Decoder(list[msgspec.Raw])
_event = msgspec.json.Decoder(CommaEvent)


def parse_events(data: bytes, lost: Counter[str]) -> Iterator[CommaEvent]:
    """Yield the collectives of a file; objects that cannot be parsed are counted by reason.

    Raises:
        FormatError: The file exceeds MAX_FILE.
    """
    for one in _objects(data):
        try:
            event = decode(_event, one, MAX_OBJECT)
        except FormatError as error:
            lost[error.reason] += 1
            continue
        if event.category == "COLL":
            yield event
        else:
            lost["other_category"] += 1


def _objects(data: bytes) -> Iterator[bytes]:
    if len(data) > MAX_FILE:
        raise FormatError("too_large", f"{len(data)} bytes; at most {MAX_FILE} are read")
    if data.lstrip()[:1] == b"[":
        try:
            yield from (bytes(one) for one in decode(_list, data, MAX_FILE))
        except FormatError:
            pass  # truncated
        else:
            return
    # One object per line, with or without the enclosing list; the last one may be truncated.
    for line in data.split(b"\n"):
        stripped = line.strip().lstrip(b"[").rstrip(b",]")
        if stripped:
            yield stripped
