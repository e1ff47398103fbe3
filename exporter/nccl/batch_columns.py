"""The operations of a stream of a batch as columns, and back.

How long operations were queued, where that is known, is another stream beside their own: its kind has the ending
`_queued`, and its times are that. Rows have a fixed length, so that they cannot get another column, and readers that do
not know a kind ignore its streams.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, pairwise, repeat
from typing import Annotated, Any

import msgspec

from exporter.nccl.batch import MAX_OPERATIONS, Operation
from exporter.nccl.decoding import MAX_MICROSECONDS, Count, FormatError, MessageBytes, Rank

TENTHS = 10
"""Resolution of times: parts of a microsecond."""

QUEUED = "_queued"
"""End of the kind of a stream whose times are how long the operations of the stream without it were queued."""

_TIMED = (False, True, None)
"""Values of the column `timed`, by number."""

Index = Annotated[int, msgspec.Meta(ge=0, lt=MAX_OPERATIONS)]
Step = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
Tenths = Annotated[int, msgspec.Meta(ge=0, le=MAX_MICROSECONDS * TENTHS)]

_operation: Callable[[tuple[Any, ...]], Operation] = partial(tuple.__new__, Operation)
"""Create an operation from a tuple without a Python-level constructor, which is three times as fast."""


class Columns(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """One stream: indices into the tables, and its operations by column."""

    communicator: Index
    process: Index
    kind: Index
    rank: Rank
    first: Count
    steps: Annotated[list[Step], msgspec.Meta(max_length=MAX_OPERATIONS)]
    sizes: Annotated[list[MessageBytes], msgspec.Meta(min_length=1, max_length=MAX_OPERATIONS)]
    size_indices: Annotated[list[Index], msgspec.Meta(max_length=MAX_OPERATIONS)]
    tenths: Annotated[list[Tenths], msgspec.Meta(min_length=1, max_length=MAX_OPERATIONS)]
    timed: Annotated[
        list[Annotated[int, msgspec.Meta(ge=0, le=2)]], msgspec.Meta(min_length=1, max_length=MAX_OPERATIONS)
    ]


# --- encoding


def columns_of(communicator: int, process: int, kind: int, rank: int, operations: Sequence[Operation]) -> Columns:
    """Return operations, in order of their numbers, as columns; the other values are those of the row."""
    numbers, sizes, times, timed, _ = (list(column) for column in zip(*operations, strict=True))
    indices = {size: index for index, size in enumerate(dict.fromkeys(sizes))}
    timings = [_TIMED.index(one) for one in timed]
    return Columns(
        communicator,
        process,
        kind,
        rank,
        numbers[0],
        _steps(numbers),
        list(indices),
        [indices[size] for size in sizes] if len(indices) > 1 else [],
        [round(time * TENTHS) for time in times],
        timings if any(one != timings[0] for one in timings) else timings[:1],
    )


def queued_columns(communicator: int, process: int, kind: int, rank: int, operations: Sequence[Operation]) -> Columns:
    """Return for how long operations were queued as columns; it is known of one of them at least."""
    numbers = [one.sequence for one in operations if one.queued is not None]
    tenths = [round(one.queued * TENTHS) for one in operations if one.queued is not None]
    return Columns(
        communicator, process, kind, rank, numbers[0], _steps(numbers), [0], [], tenths, [_TIMED.index(None)]
    )


def _steps(numbers: Sequence[int]) -> list[int]:
    steps = [after - before for before, after in pairwise(numbers)]
    return steps if any(step != 1 for step in steps) else []


# --- decoding


def check_columns(columns: Columns) -> None:
    """Validate that columns have the same length.

    Raises:
        FormatError: They do not.
    """
    count = len(columns.tenths)
    if columns.size_indices or len(columns.sizes) != 1:
        _check_sizes(columns, count)
    if columns.steps and len(columns.steps) != count - 1:
        raise FormatError("invalid", f"{len(columns.steps)} steps for {count} operations")
    if len(columns.timed) not in (1, count):
        raise FormatError("invalid", f"{len(columns.timed)} values of timed for {count} operations")
    if columns.first + (sum(columns.steps) or count) >= 1 << 63:
        raise FormatError("invalid", "sequence number out of range")


def _check_sizes(columns: Columns, count: int) -> None:
    if max(columns.size_indices, default=0) >= len(columns.sizes):
        raise FormatError("invalid", f"size {max(columns.size_indices)} of {len(columns.sizes)}")
    if len(columns.size_indices) != count:
        raise FormatError("invalid", f"{len(columns.size_indices)} sizes for {count} operations")


def operations_of(columns: Columns, queued: Columns | None) -> Iterator[Operation]:
    """Return the operations of checked columns, and for how long they were queued, from the columns of that."""
    count = len(columns.tenths)
    sizes, timed = columns.sizes, columns.timed
    size = map(sizes.__getitem__, columns.size_indices) if columns.size_indices else repeat(sizes[0], count)
    known = map(_TIMED.__getitem__, timed) if len(timed) == count else repeat(_TIMED[timed[0]], count)
    waits: Iterable[float | None] = repeat(None, count)
    if queued is not None and (queued.first, queued.steps, len(queued.tenths)) == (columns.first, columns.steps, count):
        waits = _times(queued)
    elif queued is not None:
        waits = map(dict(zip(_numbers(queued), _times(queued), strict=True)).get, _numbers(columns))
    return map(_operation, zip(_numbers(columns), size, _times(columns), known, waits, strict=True))


def _numbers(columns: Columns) -> Iterable[int]:
    first, steps = columns.first, columns.steps
    return accumulate(chain((first,), steps)) if steps else range(first, first + len(columns.tenths))


def _times(columns: Columns) -> list[float]:
    return [tenths / TENTHS for tenths in columns.tenths]
