"""Replies of NCCL's RAS service: communicators with their ranks, collective counts, and missing ranks.

Counts are launches by the host, without point-to-point operations and (usually) without the replays of CUDA graphs.
Unequal counts are normal while they increase; the signal is the difference between two polls. `ras_protocol` has the
dialogue, and the conditions for polling.
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
    Word,
    decode,
)

MAX_ANSWER = 16 << 20
"""Bytes of a reply."""

Device = Annotated[int, msgspec.Meta(ge=-1, le=1 << 16)]
Result = Annotated[int, msgspec.Meta(ge=-1, le=1 << 16)]


class RankStatus(msgspec.Struct, frozen=True, gc=False):
    """State of a rank.

    Attributes:
        init_state: ncclResult_t: 0 success, 7 in progress, others an error (8: timeout).
        async_error: Likewise.
    """

    init_state: Result = 0
    async_error: Result = 0


class RasRank(msgspec.Struct, frozen=True, gc=False):
    """A rank that responded.

    Attributes:
        rank: Rank in the communicator.
        host: Address of its host.
        pid: Process ID.
        nvml_dev: NVML device number; -1 where absent.
        status: State.
        collective_counts: Collectives launched, by kind.
    """

    rank: Rank
    host: Host = ""
    pid: Count = 0
    nvml_dev: Device = -1
    status: RankStatus = RankStatus()
    collective_counts: Annotated[dict[ShortText, Count], msgspec.Meta(max_length=64)] = {}


class MissingStatus(msgspec.Struct, frozen=True, gc=False):
    """Why a rank is missing."""

    unresponsive: bool = False
    considered_dead: bool = False


class MissingRank(msgspec.Struct, frozen=True, gc=False):
    """A rank that did not respond; fields as in RasRank."""

    rank: Rank
    host: Host = ""
    pid: Count = 0
    nvml_dev: Device = -1
    status: MissingStatus = MissingStatus()


class RasCommunicator(msgspec.Struct, frozen=True):
    """A communicator; `hash` is unique only together with `secondary_hash`.

    Attributes:
        hash: `commId` in the log, `id` in Inspector.
        secondary_hash: Second part of the identity.
        size: Number of ranks.
        ranks: Ranks that responded.
        missing_ranks: Ranks that did not respond.
    """

    hash: Word
    size: Ranks
    secondary_hash: ShortText = ""
    ranks: tuple[RasRank, ...] = ()
    missing_ranks: tuple[MissingRank, ...] = ()


class CollectionStats(msgspec.Struct, frozen=True, gc=False):
    """How the reply was collected.

    Attributes:
        collection_time_sec: Duration in seconds.
        timeouts_count: Collection timeouts; if there are any, the reply is partial.
    """

    collection_time_sec: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    timeouts_count: Count = 0


class RasReport(msgspec.Struct, frozen=True):
    """One reply to STATUS.

    Attributes:
        nccl_version: "2.29.1".
        communicators: Communicators of the job.
        ras: How the reply was collected.
    """

    nccl_version: Word
    communicators: tuple[RasCommunicator, ...]
    ras: CollectionStats = CollectionStats()


_report = msgspec.json.Decoder(RasReport)
_NO_COMMA = re.compile(rb'("nvml_dev"[ \t]{0,8}:[ \t]{0,8}-?\d{1,9})([ \t\r\n]{1,64}"status"[ \t]{0,8}:)')


def parse_report(data: bytes) -> RasReport:
    """Parse a reply to STATUS.

    Releases 2.28.7 and 2.28.9 omit a comma between `nvml_dev` and `status` of missing ranks. It is inserted where the
    reply is not JSON without it; nothing else is repaired.

    Raises:
        FormatError: It is not such a reply, or too large.
    """
    try:
        report = decode(_report, data, MAX_ANSWER)
    except FormatError as error:
        repaired = _NO_COMMA.sub(rb"\1,\2", data) if error.reason == "malformed" else data
        if repaired == data:
            raise
        report = decode(_report, repaired, MAX_ANSWER * 2)
    for communicator in report.communicators:
        if len(communicator.ranks) + len(communicator.missing_ranks) > communicator.size:
            raise FormatError("invalid", f"{communicator.hash}: more ranks than its size, {communicator.size}")
    return report


@dataclass(frozen=True, slots=True)
class CountMismatch:
    """Ranks of a communicator that launched different numbers of one kind.

    Attributes:
        kind: RAS's name.
        least: Lowest count.
        most: Highest count.
        behind: Ranks with the lowest count: they have not launched the collective yet. RAS's text output lists the
            smaller group instead, which may be the other one.
    """

    kind: str
    least: int
    most: int
    behind: tuple[int, ...]


def count_mismatches(communicator: RasCommunicator) -> tuple[CountMismatch, ...]:
    """Return the kinds whose counts differ between the ranks that responded."""
    kinds = dict.fromkeys(kind for rank in communicator.ranks for kind in rank.collective_counts)
    found = []
    for kind in kinds:
        counts = {
            rank.rank: rank.collective_counts[kind] for rank in communicator.ranks if kind in rank.collective_counts
        }
        least, most = min(counts.values()), max(counts.values())
        if least < most:
            found.append(
                CountMismatch(kind, least, most, tuple(sorted(rank for rank in counts if counts[rank] == least)))
            )
    return tuple(found)


def is_stalled(before: RasCommunicator, now: RasCommunicator) -> bool | None:
    """Return whether nothing was launched between two polls; None if the ranks that responded differ."""
    first = {rank.rank: rank.collective_counts for rank in before.ranks}
    second = {rank.rank: rank.collective_counts for rank in now.ranks}
    if not first or first.keys() != second.keys() or before.hash != now.hash:
        return None
    return first == second
