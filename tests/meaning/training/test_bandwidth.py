"""The bandwidth of operations of which reports are missing."""

import random

import pytest

from exporter.meaning.training.alignment import Collectives
from exporter.meaning.training.bandwidth import Baseline, bandwidth_shares
from exporter.meaning.training.records import Stream, Timing

SIZE = 64 << 20
TRANSFER = 2000.0
"""Microseconds of an operation from the start of its last rank."""


def observed(ranks, loss, *, spread=5000.0, silent=None, seed=1):
    """Return the only job, after three minutes with two operations a second of which reports are lost."""
    chance, known = random.Random(seed), Collectives()
    for number in range(360):
        now = number / 2
        came = [chance.uniform(0, spread) for _ in range(ranks)]
        took = TRANSFER * chance.gauss(1, 0.04)
        for rank, at in enumerate(came):
            if chance.random() >= loss and not (rank == silent and number):
                stream = Stream("j", "0xa", "AllReduce", str(rank), ranks, ranks // 8 + 1, f"h{rank // 8}", ranks)
                known.add(stream, [Timing(number, SIZE, took + max(came) - at)], now)
        if number % 10 == 9:
            known.settle(now)
    return known.jobs["j"]


def share(job):
    factor = 2 * (len(job.communicators["0xa"].members) - 1) / len(job.communicators["0xa"].members)
    baseline = Baseline({("AllReduce", SIZE): SIZE / TRANSFER * 1e6 * factor})
    return bandwidth_shares(job, {}, baseline, 180.0).get("0xa")


@pytest.mark.parametrize("ranks", [8, 32, 256])
@pytest.mark.parametrize("loss", [0.0, 0.05, 0.3])
def test_the_bandwidth_is_that_of_the_last_rank_whatever_is_lost(ranks, loss):
    assert share(observed(ranks, loss)) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_by_chance_most_times_of_last_ranks_may_be_missing(seed):
    """Of the few operations of half a minute, two thirds lost the time of the last rank, and a third each other one."""
    chance, known = random.Random(seed), Collectives()
    for number in range(200):
        for rank in range(16):
            is_lost = chance.random() < 0.3 if rank else number % 3 > 0
            if not is_lost:
                stream = Stream("j", "0xa", "AllReduce", str(rank), 16, 3, f"h{rank // 8}", 16)
                known.add(stream, [Timing(number, SIZE, TRANSFER + 1000.0 * rank)], number * 0.9)
        if number % 5 == 4:
            known.settle(number * 0.9)
    assert share(known.jobs["j"]) > 0.8


def test_nothing_is_known_with_a_rank_that_is_silent():
    assert share(observed(16, 0.0, silent=3)) is None
    assert share(observed(16, 0.0)) == pytest.approx(1.0, rel=0.1)
