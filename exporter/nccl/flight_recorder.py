"""Dumps of PyTorch's Flight Recorder in JSON: the last collectives of one rank, each with its state.

Schemas 2.3 to 2.10 differ in the fields they omit. Most dumps are pickles, which are detected and rejected: loading one
runs code chosen by its writer. The rank is not in the dump, but in the file name.
"""

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

import msgspec

from exporter.core.collectives import known_kind
from exporter.nccl.decoding import (
    MAX_BYTES,
    MAX_MICROSECONDS,
    MAX_RANKS,
    Count,
    FormatError,
    SequenceNumber,
    ShortText,
    Text,
    decode,
    reject_pickle,
)

MAX_FILE = 64 << 20
"""Bytes of a dump: 20,000 collectives of 500 bytes each are 10 MB."""

MAX_ENTRY = 1 << 20
"""Bytes of one entry."""

Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_MICROSECONDS / 1000)]
Sizes = Annotated[tuple[Annotated[tuple[Count, ...], msgspec.Meta(max_length=16)], ...], msgspec.Meta(max_length=65536)]
Types = Annotated[tuple[ShortText, ...], msgspec.Meta(max_length=65536)]


class GroupConfig(msgspec.Struct, frozen=True, gc=False):
    """Configuration of a process group; `ranks` is a string in all published schemas."""

    name: Text = ""
    desc: Text = ""
    ranks: str | tuple[int, ...] = ""


class RecorderEntry(msgspec.Struct, frozen=True, rename={"sequence": "collective_seq_id", "name": "profiling_name"}):
    """One operation of the rank that wrote the dump.

    Attributes:
        record_id: Number among all operations of the process.
        process_group: Name and description of the group; empty where the schema lacks it.
        pg_id: Number of the group.
        sequence: Number among the collectives of the group; 0 where absent.
        name: "nccl:all_reduce", "nccl:send 1->2" …, unchanged.
        state: scheduled, started or completed, unchanged.
        time_created_ns: Host time of the enqueue in nanoseconds since 1970; None if unknown.
        duration_ms: Duration in milliseconds; None unless the job measures it (TORCH_NCCL_ENABLE_TIMING).
        time_discovered_started_ns: When the watchdog first saw it started; None if unknown.
        time_discovered_completed_ns: When the watchdog first saw it completed; None if unknown.
        input_sizes: Shapes of the inputs.
        input_dtypes: Data types of the inputs.
        is_p2p: Whether it is a send or a receive.
    """

    name: Text
    record_id: Count = 0
    process_group: Annotated[tuple[Text, ...], msgspec.Meta(max_length=8)] = ()
    pg_id: Count = 0
    sequence: SequenceNumber = 0
    state: ShortText = ""
    time_created_ns: Count | None = None
    duration_ms: Milliseconds | None = None
    time_discovered_started_ns: Count | None = None
    time_discovered_completed_ns: Count | None = None
    input_sizes: Sizes = ()
    input_dtypes: Types = ()
    is_p2p: bool = False

    @property
    def kind(self) -> str:
        """One of `collectives.KINDS`, or `other`."""
        operation = self.name.partition(":")[2] or self.name
        return known_kind(operation.split(" ", 1)[0])

    @property
    def ends(self) -> tuple[int, int] | None:
        """Sender and receiver of a send or a receive, as ranks of the group; None for collectives."""
        found = _ENDS.search(self.name)
        if found is None:
            return None
        first, arrow, second = int(found[1]), found[2], int(found[3])
        return (first, second) if arrow == "->" else (second, first)

    @property
    def input_bytes(self) -> int | None:
        """Bytes of the inputs; None where shapes or data types are unknown."""
        if not self.input_sizes or len(self.input_sizes) != len(self.input_dtypes):
            return None
        total = 0
        for shape, name in zip(self.input_sizes, self.input_dtypes, strict=True):
            elements = _TYPE_BYTES.get(name)
            if elements is None:
                return None
            for length in shape:
                elements *= length
            total += elements
            if total > MAX_BYTES:
                return None
        return total


class _File(msgspec.Struct, frozen=True):
    """A dump whose entries and groups are decoded separately, so that an invalid one does not affect the others."""

    version: ShortText
    pg_config: dict[Text, msgspec.Raw] = {}
    entries: list[msgspec.Raw] = []


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group.

    Attributes:
        name: Name of the group.
        description: "default_pg", "data parallel" …; empty where absent.
        ranks: Global ranks of the group; None where absent.
    """

    name: str
    description: str
    ranks: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class RecorderDump:
    """The dump of one rank.

    Attributes:
        version: Schema version.
        groups: Process groups by the keys of the file.
        entries: Operations, oldest first.
        bad: Number of entries and groups that could not be parsed.
        first_error: Error of the first of them; empty if none.
    """

    version: str
    groups: dict[str, ProcessGroup]
    entries: tuple[RecorderEntry, ...]
    bad: int
    first_error: str


_ENDS = re.compile(r" (\d{1,9})(->|<-)(\d{1,9})$", re.ASCII)
_RANKS = re.compile(r"\[\s*(?:\d{1,9}\s*(?:,\s*\d{1,9}\s*)*)?\]", re.ASCII)
_TYPE_BYTES = MappingProxyType(
    {
        "Float": 4,
        "Double": 8,
        "Half": 2,
        "BFloat16": 2,
        "Byte": 1,
        "Char": 1,
        "Short": 2,
        "Int": 4,
        "Long": 8,
        "Bool": 1,
        "Float8_e4m3fn": 1,
        "Float8_e5m2": 1,
        "ComplexFloat": 8,
        "ComplexDouble": 16,
    }
)

_file = msgspec.json.Decoder(_File)
_entry = msgspec.json.Decoder(RecorderEntry)
_config = msgspec.json.Decoder(GroupConfig)


def parse_dump(data: bytes) -> RecorderDump:
    """Parse a dump; invalid entries and groups are counted and skipped.

    Raises:
        FormatError: It is a pickle, too large, or not a dump.
    """
    reject_pickle(data)
    file = decode(_file, data, MAX_FILE)
    errors: list[str] = []
    entries = []
    for raw in file.entries:
        try:
            entries.append(_known_times(decode(_entry, bytes(raw), MAX_ENTRY)))
        except FormatError as error:
            errors.append(str(error))
    groups = {}
    for key, raw in file.pg_config.items():
        try:
            groups[key] = _group(key, raw)
        except FormatError as error:
            errors.append(str(error))
    return RecorderDump(file.version, groups, tuple(entries), len(errors), errors[0] if errors else "")


def _known_times(entry: RecorderEntry) -> RecorderEntry:
    """Replace times of 0, which some schemas write for unknown times, by None."""
    if entry.time_created_ns and entry.time_discovered_started_ns != 0 and entry.time_discovered_completed_ns != 0:
        return entry
    return msgspec.structs.replace(
        entry,
        time_created_ns=entry.time_created_ns or None,
        time_discovered_started_ns=entry.time_discovered_started_ns or None,
        time_discovered_completed_ns=entry.time_discovered_completed_ns or None,
    )


def _group(key: str, raw: msgspec.Raw) -> ProcessGroup:
    config = decode(_config, bytes(raw), MAX_FILE)
    return ProcessGroup(config.name or key, config.desc, _ranks(config.ranks))


def _ranks(ranks: str | tuple[int, ...]) -> tuple[int, ...] | None:
    """Parse "[0, 1]"."""
    if isinstance(ranks, str):
        if not _RANKS.fullmatch(ranks):
            return None
        ranks = tuple(int(number) for number in re.findall(r"\d+", ranks, re.ASCII))
    return ranks if ranks and all(0 <= rank < MAX_RANKS for rank in ranks) and len(ranks) <= MAX_RANKS else None
