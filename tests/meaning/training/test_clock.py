"""Which group of communicators counts steps, by how far they are over time."""

import pytest

from exporter.meaning.training.clock import has_fewer

LAYERS = 100

GATHER, SCATTER, NORM = ("AllGather", 16, 2), ("ReduceScatter", 16, 2), ("AllReduce", 16, 2)


def history(*groups, at):
    """Return the highest numbers at some times; -1 is that of a communicator without operations yet."""
    return [{("c", kind): number for (kind, _, _), of in groups if (number := of(time) - 1) >= 0} for time in at]


def gathered(time):
    """Layers of FSDP that are gathered after a number of steps: those of the forward pass in the first third."""
    step, part = divmod(time, 1)
    return int(2 * LAYERS * step + LAYERS * (min(3 * part, 1) + max(3 * part - 1, 0) / 2))


def scattered(time):
    """Layers whose gradients are scattered: those of the backward pass."""
    step, part = divmod(time, 1)
    return int(LAYERS * (step + max(3 * part - 1, 0) / 2))


GROUPS = {group: [("c", group[0])] for group in (GATHER, SCATTER)}


@pytest.mark.parametrize("first", [0.0, 0.1, 0.3, 0.37, 0.5, 0.9])
@pytest.mark.parametrize("apart", [0.2, 0.45, 0.9, 1.0, 3.3])
def test_a_pass_without_the_clock_is_no_step_of_it(first, apart):
    """Reports of a part of a step each, of one, or of several: two layers are gathered for each that is scattered."""
    times = [first + apart * count for count in range(12)]
    for until in range(2, 13):
        known = history((GATHER, gathered), (SCATTER, scattered), at=times[:until])
        if ("c", "ReduceScatter") in known[-1]:
            assert not has_fewer(known, GROUPS, SCATTER, range(scattered(times[until - 1])))


@pytest.mark.parametrize("apart", [0.3, 1.0, 4.0])
def test_one_operation_at_the_end_of_each_step_counts_steps(apart):
    groups = {GATHER: [("c", "AllGather")], NORM: [("c", "AllReduce")]}
    times = [apart * count for count in range(24)]
    known = history((GATHER, gathered), (NORM, int), at=times)
    assert has_fewer(known, groups, NORM, range(int(times[-1])))


def test_a_communicator_that_is_seen_late_has_not_begun_then():
    """An exporter that starts beside a running job receives reports of one communicator before those of the other."""
    groups = {GATHER: [("c", "AllGather")], NORM: [("c", "AllReduce")]}
    known = history((GATHER, gathered), (NORM, int), at=[5000.0 + count for count in range(6)])
    del known[0]["c", "AllReduce"]
    assert has_fewer(known, groups, NORM, range(5000, 5005))
