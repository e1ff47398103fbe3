"""The clock of a job: whether others have several operations between those of the group with the fewest.

Then one of its operations is one step. That holds at any time: in a part of a step others may have several times as
many without it, as of a forward pass and the begin of a backward pass.
"""

from collections.abc import Collection, Mapping, Sequence

from exporter.meaning.training.paces import Group, StreamName

SAME_COUNT = 4
"""Operations of others over those of the clock from which on the clock counts steps."""

MIN_INTERVALS = 2
"""Intervals in which the clock moved that show where its operations are among those of others."""

UNEVEN = 2
"""Part of that number that others must have in an interval: not all reports arrive in the same one."""

Highest = Mapping[StreamName, int]
"""Highest sequence number by communicator and kind."""


def has_fewer(
    history: Sequence[Highest], groups: Mapping[Group, Sequence[StreamName]], clock: Group, seen: Collection[int]
) -> bool:
    """Return whether others have several times as many operations as the clock since its first one, and in between.

    Before the first one there is a part of a step only, as the forward pass of one that compiles.

    Args:
        history: How far the job was over time.
        groups: Communicators and kinds by group.
        clock: The group with the fewest operations.
        seen: Sequence numbers of one communicator of the clock since the first one; empty if not all of them are known.
    """
    begin = next(index for index, one in enumerate(history) if any(stream in one for stream in groups[clock]))
    moved = {group: _advance(history[begin], history[-1], streams) for group, streams in groups.items()}
    if max(moved.values()) < SAME_COUNT * max(moved[clock], 1):
        return False
    counts = [
        (_advance(before, after, groups[clock]), _most(before, after, groups))
        for before, after in zip(history[begin:], history[begin + 1 :], strict=False)
    ]
    if seen and begin and history[begin - 1]:
        first = max(history[begin].get(stream, -1) for stream in groups[clock]) - min(seen) + 1
        counts.append((first, _most(history[begin - 1], history[begin], groups)))
    counts = [(own, others) for own, others in counts if own > 0]
    return len(counts) >= MIN_INTERVALS and all(UNEVEN * others >= SAME_COUNT * (own - 1) for own, others in counts)


def _most(before: Highest, after: Highest, groups: Mapping[Group, Sequence[StreamName]]) -> int:
    """Return the operations of the group that has most in an interval."""
    return max(_advance(before, after, streams) for streams in groups.values())


def _advance(before: Highest, after: Highest, streams: Sequence[StreamName]) -> int:
    """Return the operations of a group in an interval, of communicators that were known before."""
    return max(
        (after[stream] - before[stream] for stream in streams if stream in before and stream in after), default=0
    )
