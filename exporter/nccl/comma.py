"""Files of CoMMA, Google's profiler plugin: a list of JSON objects, one for each collective with its proxy operations.

Its `dur` is the time that enqueueing took; the collective itself took `child_dur`, where that is told. A process that
died leaves the list open, so that objects are also read one by one.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

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
    decode_json,
)

MAX_FILE = 64 << 20
"""Bytes of a file."""

MAX_OBJECT = 4 << 20
"""Bytes of one object, with all the steps of its proxy operations."""


class Arguments(msgspec.Struct, frozen=True, gc=False):
    """Arguments of an operation: its bytes."""

    size: MessageBytes = 0


class ProxyOperation(msgspec.Struct, frozen=True, gc=False, rename={"microseconds": "dur"}):
    """One transfer of a proxy thread.

    Attributes:
        peer: Rank of the other end.
        is_send: Whether it sent.
        microseconds: Time it took.
    """

    peer: Rank = 0
    is_send: bool = False
    microseconds: Microseconds = 0


class Event(
    msgspec.Struct,
    frozen=True,
    rename={
        "category": "cat",
        "enqueue_us": "dur",
        "microseconds": "child_dur",
        "communicator": "comm_hash",
        "sequence": "seq_num",
        "arguments": "args",
        "start_us": "ts",
        "proxy_operations": "proxyops",
    },
):
    """One operation of one rank.

    Attributes:
        name: all_reduce …; see `kind`.
        category: COLL, P2P or PROXY.
        communicator: Hash of the communicator; empty for proxy operations.
        rank: Rank that did it; None for proxy operations.
        sequence: Number of the collective; None where not told.
        enqueue_us: Microseconds that enqueueing took: not the time of the collective.
        microseconds: Time that it took; None where not told, and then it has no time.
        start_us: Microseconds by a clock of the process.
        pid: Its process; 0 where not told.
        arguments: Its bytes.
        proxy_operations: What its proxy threads did.
    """

    name: Word
    category: ShortText = ""
    communicator: ShortText = ""
    rank: Rank | None = None
    sequence: Count | None = None
    enqueue_us: Microseconds = 0
    microseconds: Microseconds | None = None
    start_us: Count = 0
    pid: Count = 0
    arguments: Arguments = Arguments()
    proxy_operations: Annotated[tuple[ProxyOperation, ...], msgspec.Meta(max_length=65536)] = ()

    @property
    def kind(self) -> str:
        """Its kind, as `kinds.KINDS`."""
        return known_kind(self.name)


_list = msgspec.json.Decoder(list[msgspec.Raw])
_event = msgspec.json.Decoder(Event)


def events(data: bytes, lost: Counter[str]) -> Iterator[Event]:
    """Give the collectives of a file; objects that cannot be used are counted by reason.

    Raises:
        FormatError: The file is larger than any that is believed.
    """
    for one in _objects(data):
        try:
            event = decode_json(_event, one, MAX_OBJECT)
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
            yield from (bytes(one) for one in decode_json(_list, data, MAX_FILE))
        except FormatError:
            pass  # torn
        else:
            return
    # one object a line, with or without the list around them, the last one perhaps torn
    for line in data.split(b"\n"):
        stripped = line.strip().lstrip(b"[").rstrip(b",]")
        if stripped:
            yield stripped
