"""Answers of NCCL's RAS service: communicators with their ranks, how far each has launched, and who is missing.

Counts are of what hosts launched, without point-to-point and (as a rule) without what a CUDA graph replays. While they
move, unequal counts are normal; the difference between two polls is the signal, not one poll. See `ras_protocol` for
how to ask, and whether.
"""

import re
from dataclasses import dataclass
from typing import Annotated

import msgspec

from exporter.nccl.decoding import (
    Count,
    FormatError,
    Host,
    Rank,
    Ranks,
    ShortText,
    Text,
    Word,
    decode_json,
)

MAX_ANSWER = 16 << 20
"""Bytes of an answer."""

Device = Annotated[int, msgspec.Meta(ge=-1, le=1 << 16)]
Result = Annotated[int, msgspec.Meta(ge=-1, le=1 << 16)]


class RankStatus(msgspec.Struct, frozen=True, gc=False):
    """State of a rank.

    Attributes:
        init_state: 0 done, 7 in progress, others an error of NCCL (8: time-out).
        async_error: Likewise.
        finalize_called: Whether the job began to end it.
        destroy_flag: Whether it is being destroyed.
        abort_flag: Whether it was aborted.
    """

    init_state: Result = 0
    async_error: Result = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False


class RasRank(msgspec.Struct, frozen=True, gc=False):
    """A rank that answered.

    Attributes:
        rank: In the communicator.
        host: Address of its host.
        pid: Its process.
        cuda_dev: Its GPU as the job numbers them.
        nvml_dev: Its GPU as the host numbers them; -1 where not told.
        status: Its state.
        collective_counts: Operations launched, by kind.
    """

    rank: Rank
    host: Host = ""
    pid: Count = 0
    cuda_dev: Device = -1
    nvml_dev: Device = -1
    status: RankStatus = RankStatus()
    collective_counts: Annotated[dict[ShortText, Count], msgspec.Meta(max_length=64)] = {}


class MissingStatus(msgspec.Struct, frozen=True, gc=False):
    """Why a rank is missing."""

    unresponsive: bool = False
    considered_dead: bool = False


class MissingRank(msgspec.Struct, frozen=True, gc=False):
    """A rank that did not answer; fields as of those that did."""

    rank: Rank
    host: Host = ""
    pid: Count = 0
    cuda_dev: Device = -1
    nvml_dev: Device = -1
    status: MissingStatus = MissingStatus()


class Communicator(msgspec.Struct, frozen=True):
    """A communicator; `hash` alone is not unique, with `secondary_hash` it is.

    Attributes:
        hash: `commId` in the log, `id` in Inspector.
        secondary_hash: What makes it unique.
        size: Its ranks.
        ranks: Those that answered.
        missing_ranks: Those that did not.
    """

    hash: Word
    size: Ranks
    secondary_hash: ShortText = ""
    ranks: tuple[RasRank, ...] = ()
    missing_ranks: tuple[MissingRank, ...] = ()


class Collection(msgspec.Struct, frozen=True, gc=False):
    """How the answer was gathered.

    Attributes:
        collection_time_sec: Seconds it took.
        timeouts_count: Legs that gave up: if there are any, the answer is partial.
    """

    collection_time_sec: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    timeouts_count: Count = 0


class Report(msgspec.Struct, frozen=True):
    """One answer to STATUS.

    Attributes:
        nccl_version: "2.29.1".
        timestamp: Of the answering host, local and without zone.
        communicators: Of the whole job.
        ras: How it was gathered.
    """

    nccl_version: Word
    communicators: tuple[Communicator, ...]
    timestamp: ShortText = ""
    ras: Collection = Collection()


class Peer(msgspec.Struct, frozen=True):
    """The process that an event is about."""

    host: Host = ""
    pid: Count = 0
    cuda_devs: Annotated[tuple[Device, ...], msgspec.Meta(max_length=256)] = ()
    nvml_devs: Annotated[tuple[Device, ...], msgspec.Meta(max_length=256)] = ()


class MonitorEvent(msgspec.Struct, frozen=True):
    """One event of MONITOR.

    Attributes:
        event: PEER_DEAD, PEER_NEW, PEER_UNRESPONSIVE …
        group: LIFECYCLE or TRACE.
        timestamp: Of the answering host, local and without zone.
        peer: Whom it is about.
        details: Text of NCCL; often empty.
    """

    event: Word
    group: ShortText = ""
    timestamp: ShortText = ""
    peer: Peer = Peer()
    details: Text = ""


_report = msgspec.json.Decoder(Report)
_event = msgspec.json.Decoder(MonitorEvent)
_NO_COMMA = re.compile(rb'("nvml_dev"[ \t]{0,8}:[ \t]{0,8}-?\d{1,9})([ \t\r\n]{1,64}"status"[ \t]{0,8}:)')


def parse_report(data: bytes) -> Report:
    """Read an answer to STATUS.

    Releases 2.28.7 and 2.28.9 forget a comma where ranks are missing, between `nvml_dev` and `status`; it is put there
    if without it this is no JSON, and nothing else is repaired.

    Raises:
        FormatError: It is no such answer, or too large.
    """
    try:
        report = decode_json(_report, data, MAX_ANSWER)
    except FormatError as error:
        repaired = _NO_COMMA.sub(rb"\1,\2", data) if error.reason == "malformed" else data
        if repaired == data:
            raise
        report = decode_json(_report, repaired, MAX_ANSWER * 2)
    for communicator in report.communicators:
        if len(communicator.ranks) + len(communicator.missing_ranks) > communicator.size:
            raise FormatError("invalid", f"{communicator.hash}: more ranks than its size, {communicator.size}")
    return report


def parse_event(data: bytes) -> MonitorEvent:
    """Read one event of MONITOR.

    Raises:
        FormatError: It is none, or too large.
    """
    return decode_json(_event, data, 1 << 20)


@dataclass(frozen=True, slots=True)
class Unequal:
    """Ranks of a communicator that launched different numbers of one kind.

    Attributes:
        kind: As RAS names it.
        least: Operations of those behind.
        most: Operations of those ahead.
        behind: Ranks with the lowest number, however many: these did not arrive, though RAS's own text lists the
            smaller group.
    """

    kind: str
    least: int
    most: int
    behind: tuple[int, ...]


def unequal(communicator: Communicator) -> tuple[Unequal, ...]:
    """Give the kinds of which not all ranks that answered launched the same number."""
    kinds = dict.fromkeys(kind for rank in communicator.ranks for kind in rank.collective_counts)
    found = []
    for kind in kinds:
        counts = {
            rank.rank: rank.collective_counts[kind] for rank in communicator.ranks if kind in rank.collective_counts
        }
        least, most = min(counts.values()), max(counts.values())
        if least < most:
            found.append(Unequal(kind, least, most, tuple(sorted(rank for rank in counts if counts[rank] == least))))
    return tuple(found)


def frozen(before: Communicator, now: Communicator) -> bool | None:
    """Tell whether nothing was launched between two polls; None where the same ranks did not answer both times."""
    first = {rank.rank: rank.collective_counts for rank in before.ranks}
    second = {rank.rank: rank.collective_counts for rank in now.ranks}
    if not first or first.keys() != second.keys() or before.hash != now.hash:
        return None
    return first == second
