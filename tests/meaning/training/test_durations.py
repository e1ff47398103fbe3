"""Times of collectives: their distribution by kind and size class, and the longest over the mean of those alike."""

import random
from dataclasses import dataclass, field

import pytest

from exporter.core.table import HistogramValue
from exporter.meaning.training import jobs
from exporter.meaning.training.durations import BUCKETS, Durations, size_class
from exporter.sources.nccl.streams import StreamTableBuilder

KIB, MIB = 1 << 10, 1 << 20
TICK = 2.0


@dataclass
class Bench:
    """Jobs whose collectives are given by the microseconds of their ranks, judged every two seconds."""

    now: float = 1000.0
    state: object = None
    values: dict = field(default_factory=dict)
    done: dict = field(default_factory=dict)

    def ticks(self, *collectives, count=1, expected=None):
        """Judge ticks with these collectives each: communicator, bytes, and microseconds by rank or of four ranks."""
        for _ in range(count):
            self.now += TICK
            made = StreamTableBuilder()
            reported = {}
            for communicator, size, times in collectives:
                by_rank = times if isinstance(times, dict) else dict.fromkeys(range(4), times)
                number = self.done[communicator] = self.done.get(communicator, -1) + 1
                for rank, microseconds in by_rank.items():
                    reported.setdefault((communicator, str(rank)), []).append((number, size, microseconds, True))
            for (communicator, rank), operations in reported.items():
                key = ("llm", communicator, "AllReduce", rank)
                made.add(
                    key, operations, ranks=4, nodes=2, host=f"gpu-{rank}", expected=4 if expected is None else expected
                )
            self.state, tables = jobs.step(jobs.JobKnowledge(), self.state, made.table(self.now))
            self.values = {
                (column.metric.ending, *key): value
                for table in tables
                for column in table.columns.values()
                for key, value in zip(table.rows.keys, column.values, strict=True)
                if value is not None
            }

    def histogram(self, size="medium"):
        return self.values.get(("collective_transfer_seconds", "llm", "AllReduce", size))

    def longest(self, size="medium"):
        return self.values.get(("collective_longest_ratio", "llm", "AllReduce", size))


def times(*microseconds, size=4 * MIB):
    return [("0xa", size, one) for one in microseconds]


# --- the distribution


def test_collectives_are_counted_by_the_bucket_of_their_time():
    found = Durations()
    for microseconds in (299.0, 300.0, 301.0, 1_000_000.0, 2_000_000.0):
        found.add("AllReduce", 4 * MIB, microseconds)
    value = found.histograms()["AllReduce", "medium"]
    by_bound = dict(zip((*BUCKETS, float("inf")), value.counts, strict=True))
    assert by_bound == {0.0003: 2, 0.001: 3, 0.003: 3, 0.01: 3, 0.03: 3, 0.1: 3, 0.3: 3, 1: 4, float("inf"): 5}
    assert value.sum == pytest.approx(3.0009)


@pytest.mark.parametrize(
    ("size", "name"),
    [(1, "small"), (MIB - 1, "small"), (MIB, "medium"), (64 * MIB - 1, "medium"), (64 * MIB, "large")],
)
def test_size_classes(size, name):
    assert size_class(size) == name


def test_the_time_is_that_of_the_last_rank_to_start():
    bench = Bench()
    bench.ticks(("0xa", 4 * MIB, {0: 5000.0, 1: 5000.0, 2: 2000.0, 3: 5000.0}), ("0xa", 8 * KIB, 40.0))
    assert bench.histogram() == HistogramValue((0, 0, 1, 1, 1, 1, 1, 1, 1), pytest.approx(0.002))
    assert bench.histogram("small") == HistogramValue((1,) * 9, pytest.approx(0.00004))


def test_a_collective_counts_only_if_all_ranks_that_report_here_reported_it():
    """The one that is missing may be the last to start: then the time of the others contains waiting for it."""
    bench = Bench()
    bench.ticks(*times(1000.0))
    bench.ticks(("0xa", 4 * MIB, {0: 90_000.0, 1: 90_000.0, 2: 90_000.0}))
    bench.ticks(count=5)
    assert bench.values["partial_collectives_total", "llm"] == 1
    assert bench.histogram().counts[-1] == 1


def test_counts_go_on_when_communicators_are_made_again():
    bench = Bench()
    bench.ticks(*times(1000.0, 2000.0))
    for name in ("0xb", "0xc"):
        bench.ticks((name, 4 * MIB, 1000.0))
        assert bench.histogram().counts[-1] == {"0xb": 3, "0xc": 4}[name]


# --- the longest over the mean


def usual(*others, count=10, size=4 * MIB, usual=1000.0):
    """Return collectives of one tick, the last of which take longer."""
    return times(*[usual] * (count - len(others)), *others, size=size)


def test_the_longest_is_compared_with_the_mean_of_the_last_minute():
    bench = Bench()
    bench.ticks(*usual(), count=61)
    assert bench.longest() == pytest.approx(1.0)
    bench.ticks(*usual(7000.0))
    # Of ten each two seconds, 300 or 310 are of the last minute: one of 7 ms raises the mean of 1 ms by 2 %.
    assert bench.longest() == pytest.approx(7 / (1 + 6 / 305), rel=0.002)
    bench.ticks(*usual(), count=29)
    assert bench.longest() > 6
    bench.ticks(*usual(), count=2)
    assert bench.longest() == pytest.approx(1.0)


def test_first_steps_do_not_count():
    bench = Bench()
    bench.ticks(*usual(3_000_000.0))
    bench.ticks(*usual(200_000.0), count=14)
    assert bench.longest() is None
    bench.ticks(*usual(), count=30)
    assert bench.longest() == pytest.approx(1.0)


def test_a_rank_that_writes_a_checkpoint_does_not_make_a_collective_long():
    bench = Bench()
    bench.ticks(*usual(), count=40)
    bench.ticks(*usual(), ("0xa", 4 * MIB, {0: 1000.0, 1: 30e6, 2: 30e6, 3: 30e6}))
    assert bench.longest() == pytest.approx(1.0)
    bench.ticks(*usual(), ("0xa", 4 * MIB, {1: 30e6, 2: 30e6, 3: 30e6}))  # the record of rank 0 is lost
    bench.ticks(*usual(), count=6)
    assert bench.longest() == pytest.approx(1.0)


def test_without_the_times_of_all_ranks_nothing_is_compared():
    bench = Bench()
    of_one_host = [("0xa", 4 * MIB, {0: 1000.0, 1: 1000.0})] * 10
    bench.ticks(*of_one_host, count=60, expected=0)
    assert (bench.longest(), bench.histogram().counts[-1]) == (None, 600)


def test_few_collectives_have_no_mean():
    bench = Bench()
    bench.ticks(*usual(), count=31)
    bench.ticks(count=30)
    bench.ticks(*times(*[1000.0] * 18, 9000.0))
    assert bench.longest() is None
    bench.ticks(*times(1000.0))
    assert bench.longest() == pytest.approx(9 * 20 / 28)


def test_sizes_are_compared_with_their_like():
    bench = Bench()
    bench.ticks(*usual(), *usual(size=32 * MIB, usual=8000.0), *usual(size=64 * KIB, usual=50.0), count=40)
    assert {size: bench.longest(size) for size in ("small", "medium", "large")} == {
        "small": pytest.approx(1.0),
        "medium": pytest.approx(1.0),
        "large": None,
    }


def test_spread_of_healthy_collectives_is_far_below_five():
    chance, bench = random.Random(1), Bench()
    for _ in range(90):
        bench.ticks(*times(*(1000.0 * chance.lognormvariate(0, 0.2) for _ in range(20))))
    assert 1.3 < bench.longest() < 2.5
