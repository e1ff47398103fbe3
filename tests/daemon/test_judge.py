"""The judge of jobs: what a collector says of a slow job, and which port it puts it down to."""

import logging
from functools import partial
from time import monotonic, time

import pytest

from exporter.core.table import RowKeeper, TableBuilder
from exporter.daemon.judge import CAUSES, Judge
from exporter.meaning.training import jobs
from exporter.mqtt.states import Presence, state
from exporter.sources.nccl.streams import StreamTableBuilder

MIB = 1 << 20


def table(now, times, first, *, count=10, size=8 * MIB):
    """Make timings of one communicator of four hosts: microseconds by rank."""
    made = StreamTableBuilder()
    for rank, microseconds in enumerate(times):
        operations = [(first + one, size, microseconds, True) for one in range(count)]
        key = ("llm", "0xa", "AllReduce", str(rank))
        made.add(key, operations, ranks=4, nodes=4, host=f"gpu-{rank}", expected=4)
    return made.table(now)


class Board:
    def __init__(self, **ports):
        self.ports = ports

    def states(self):
        return {
            (host.replace("_", "-"), "mlx5_0:1", kind): state(kind, time(), 1, value)
            for host, (kind, value) in self.ports.items()
        }

    def hosts(self):
        return {f"gpu-{rank}": Presence(version=1, state="up", since=1.0, number=1) for rank in range(4)}


def run(judge, *phases, make=table):
    """Put phases of (ticks, times) through, two seconds a tick, and give the values of each tick."""
    state_, seen, number, now = None, [], 0, monotonic()
    for ticks, times in phases:
        for _ in range(ticks):
            now += 2.0
            state_, tables = judge.step(state_, make(now, times, number))
            number += 10
            seen.append(
                {
                    (column.metric.ending, *key): value
                    for one in tables
                    for column in one.columns.values()
                    for key, value in zip(one.rows.keys, column.values, strict=True)
                    if value
                }
            )
    return seen


FAST, SLOW, LATE = (900, 900, 900, 900), (9000, 9000, 9000, 9000), (90_900, 90_900, 900, 90_900)


def test_a_slow_network_is_put_down_to_the_port_that_says_so(caplog):
    caplog.set_level(logging.INFO)
    board = Board(gpu_2=("link_degraded", 1.0), elsewhere=("link_down", 1.0))
    seen = run(Judge(jobs.Known, lambda: board, list), (15, FAST), (15, SLOW))
    last = seen[-1]
    assert ("verdict", "llm", "network_bound") in last
    causes = {key[2:]: value for key, value in last.items() if key[0] == "cause_confidence"}
    assert max(causes, key=causes.get) == ("link_degraded", "gpu-2", "mlx5_0:1")
    assert not any(name == "elsewhere" for _, name, _ in causes), "no rank of the job is there"
    (line,) = [one.getMessage() for one in caplog.records if "network_bound" in one.getMessage()]
    assert "job llm: network_bound: 10% of what the network should give" in line
    assert "mlx5_0:1" in line


def placed(*ports):
    """Give timings of a job whose ranks are near to these ports."""

    def made(now, times, first):
        streams = StreamTableBuilder()
        for rank, microseconds in enumerate(times):
            operations = [(first + one, 8 * MIB, microseconds, True) for one in range(10)]
            key = ("llm", "0xa", "AllReduce", str(rank))
            streams.add(key, operations, ranks=4, nodes=2, host=f"gpu-{rank // 2}", expected=4, ports=ports[rank])
        return streams.table(now)

    return made


PORTS = ("mlx5_0:1=ens0=0000:0a:00.0", "mlx5_1:1=ens1=0000:1a:00.0") * 2


class Told(Board):
    """A board with states by host, port and kind."""

    def __init__(self, *states):
        self.told = {one: state(one[2], time() - 10, 1, 1.0) for one in states}

    def states(self):
        return self.told


def confidences(judge, make, *phases):
    last = run(judge, *phases, make=make)[-1]
    return {key[2:]: value for key, value in last.items() if key[0] == "cause_confidence"}


def test_an_event_by_any_name_of_a_port_near_to_a_rank_counts_in_full():
    for name in ("mlx5_0:1", "ens0", "0000:0a:00.0"):
        judge = Judge(jobs.Known, partial(Told, ("gpu-1", name, "link_degraded")), list)
        found = confidences(judge, placed(*PORTS), (15, FAST), (15, SLOW))
        assert found["link_degraded", "gpu-1", "mlx5_0:1"] == pytest.approx(0.95, abs=0.06)


def test_an_event_of_a_port_that_is_near_to_no_rank_counts_little():
    board = Told(("gpu-1", "mlx5_9:1", "link_degraded"))
    found = confidences(Judge(jobs.Known, lambda: board, list), placed(*PORTS), (15, FAST), (15, SLOW))
    assert found["link_degraded", "gpu-1", "mlx5_9:1"] == pytest.approx(0.15)


def test_what_a_log_tells_counts_for_its_own_job_alone():
    ours, others = ("gpu-1", "mlx5_0:1@llm", "failed_over"), ("gpu-1", "@other", "gdr_off")
    found = confidences(Judge(jobs.Known, lambda: Told(ours, others), list), placed(*PORTS), (15, FAST), (15, SLOW))
    assert ("failed_over", "gpu-1", "mlx5_0:1") in found
    assert not any(kind == "gdr_off" for kind, _, _ in found)


def hosts_of_four(*ports):
    """Give timings of a job on hosts of four ranks, which are near to these ports."""

    def made(now, times, first):
        streams = StreamTableBuilder()
        for rank, port in enumerate(ports):
            operations = [(first + one, 8 * MIB, times[rank % 4], True) for one in range(10)]
            key = ("big", "0xa", "AllReduce", str(rank))
            streams.add(key, operations, ranks=len(ports), nodes=2, host=f"gpu-{rank // 4}", expected=8, ports=port)
        return streams.table(now)

    return made


OWN = ("mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1")
TWO_EACH = ("mlx5_0:1", "mlx5_0:1", "mlx5_1:1", "mlx5_1:1")


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (("mlx5_0:1", *OWN[:1], *OWN[2:]), OWN, {("gpu-0", "mlx5_0:1")}),
        (TWO_EACH, TWO_EACH, set()),  # so they are made
        (TWO_EACH, (*TWO_EACH[:3], ""), set()),  # of one rank it is not known
        (TWO_EACH, TWO_EACH[:3], set()),  # a job of seven
    ],
)
def test_a_port_that_more_ranks_share_than_on_other_hosts_is_told(first, second, told):
    judge = Judge(jobs.Known, Told, list)
    found = confidences(judge, hosts_of_four(*first, *second), (15, FAST), (15, SLOW))
    assert {(name, port) for kind, name, port in found if kind == "adapter_shared"} == told


def test_without_any_evidence_the_cause_is_said_to_be_unknown():
    last = run(Judge(jobs.Known, lambda: None, list), (15, FAST), (15, SLOW))[-1]
    assert [key[2] for key in last if key[0] == "cause_confidence"] in ([], ["unknown"])


def test_a_late_rank_without_evidence_of_its_port_computes_for_too_long(caplog):
    caplog.set_level(logging.INFO)
    seen = run(Judge(jobs.Known, Board, list), (8, FAST), (8, LATE), (60, FAST))
    told = [values for values in seen if ("verdict", "llm", "straggler") in values]
    assert told
    assert all(("straggler", "llm", "2") in values for values in told)
    assert {key[2] for key in told[-1] if key[0] == "cause_confidence"} & {"compute", "process"}
    begun, over = [one.getMessage() for one in caplog.records]
    assert begun.startswith("job llm: straggler: rank 2, last in")
    assert over.startswith("job llm: straggler: over; now fine")


@pytest.mark.parametrize("times", [FAST])
def test_a_job_that_is_well_has_no_cause_and_no_line(caplog, times):
    caplog.set_level(logging.INFO)
    seen = run(Judge(jobs.Known, lambda: Board(gpu_1=("link_down", 1.0)), list), (20, times))
    assert not any(key[0] == "cause_confidence" for values in seen for key in values)
    assert not caplog.records


def test_other_tables_pass():
    other = TableBuilder(CAUSES).table(RowKeeper(CAUSES.labels), 1.0)
    assert Judge(jobs.Known, lambda: None, list).step(None, other) == (None, (other,))
