"""What the relay passes to the publisher: timings with losses, continuing states, and no disputed ranks."""

from types import SimpleNamespace

from exporter.core.supervision import Supervisor
from exporter.core.table import Column, Rows, Table
from exporter.daemon.relay import Relay, batches
from exporter.meaning.ports.states import PortLocation, PortState
from exporter.mqtt import states
from exporter.mqtt.options import MqttOptions
from exporter.sources.nccl.metrics import LOSSES
from exporter.sources.nccl.processes import ProcessRegistry
from exporter.sources.nccl.readers.feed import (
    CollectiveProgress,
    Membership,
    ProcessFacts,
    ProcessReport,
)
from exporter.sources.nccl.tables import stream_table


class Publisher:
    """Records batches and states."""

    def __init__(self):
        self.batches, self.states = [], []
        self.publish = self.batches.append

    def set_states(self, found):
        self.states.append(states.states_by_key(list(found)))


def relay():
    made = Relay(MqttOptions(), "gpu-1", Supervisor())
    made._publisher = Publisher()
    return made, made._publisher


def timings(*world_ranks):
    """Return the table of one collective of each process; the processes claim the given ranks of the job."""
    known, reports = ProcessRegistry(), []
    known.begin_poll()
    for place, rank in enumerate(world_ranks):
        number = 100 + place
        facts = ProcessFacts("j", pid=number, host="gpu-1", host_pid=number, world_rank=rank)
        one = ProcessReport(f"f{place}", facts, None)
        member = Membership(place, len(world_ranks), 1)
        one.add_membership(member)
        one.add_collective("c", member, "AllReduce", 1, 1 << 20, 100, True)
        reports.append((known.add("inspector", one, 1.0, []), one))
    known.end_poll({}, 1.0)
    return stream_table(reports, "gpu-1", 1.0)


def test_progress_is_sent_without_timings():
    table = timings(4)
    process = ProcessRegistry()
    process.begin_poll()
    one = ProcessReport("f", ProcessFacts("j", pid=7, host="gpu-1", host_pid=7, world_rank=3))
    member = Membership(1, 2, 1)
    one.add_membership(member)
    one.add_collective("c", member, "AllReduce", 1, 1 << 20, 100, True)
    known = process.add("hook", one, 1.0, [])
    process.end_poll({}, 1.0)
    silent = ProcessReport("f", one.facts, progress={("c", "Barrier"): CollectiveProgress(member, 9, 8)})
    (batch,) = batches(stream_table([(known, silent)], "gpu-1", 1.0), "gpu-1")
    assert batch.streams == []
    assert [(row.stream.kind, row.stream.world_rank, *row[1:]) for row in batch.progress] == [("Barrier", 3, 9, 8)]
    assert [batch.progress for batch in batches(table, "gpu-1")] == [[]]


def losses(**dropped):
    rows = Rows(LOSSES.labels, {("j", rank[1:]): None for rank in dropped}, {})
    columns = {"dropped_collectives_total": Column(LOSSES.metrics["dropped_collectives_total"], [*dropped.values()])}
    return Table(LOSSES, rows, columns, 1.0)


def test_a_rank_claimed_by_several_processes_is_sent_as_unknown():
    def sent(table):
        return [stream.world_rank for batch in batches(table, "gpu-1") for stream, _ in batch.streams]

    assert sent(timings(4, 5, 6)) == [4, 5, 6]
    assert sent(timings(0, 0, 0, 3)) == [None, None, None, 3]


def test_lost_timings_of_a_job_are_sent_with_its_batches_and_never_decrease():
    made, publisher = relay()
    for dropped in ({"r0": 3, "r1": 4}, {"r0": 5}, {"r0": 1}):  # one rank ends, and one restarts
        for table in (losses(**dropped), timings(0, 1)):
            made.step(None, table)
    assert [batch.dropped for batch in publisher.batches] == [7, 9, 10]


def test_states_from_a_job_log_are_published_beside_states_of_the_port():
    made, publisher = relay()
    port = PortLocation("gpu-1", "mlx5_0:1")
    made.publish_states(
        [
            PortState("link_down", port, 100.0, 1, 0.0),
            PortState("port_error", port, 100.0, 1, 1.0, job="llm"),
            PortState("gdr_off", PortLocation("gpu-1", ""), 100.0, 1, 1.0, job="llm"),
        ]
    )
    (shown,) = publisher.states
    assert list(shown) == [
        ("gpu-1", "mlx5_0:1", "link_down"),
        ("gpu-1", "mlx5_0:1@llm", "port_error"),
        ("gpu-1", "@llm", "gdr_off"),
    ]


def test_a_quiet_state_has_the_unix_time_of_its_last_increase(monkeypatch):
    made, publisher = relay()
    monkeypatch.setattr("exporter.daemon.relay.time", lambda: 1e9)
    monkeypatch.setattr("exporter.daemon.relay.monotonic", lambda: 500.0)
    made.publish_states([PortState("symbol_errors", PortLocation("gpu-1", "eth0"), 100.0, 1, 9.0, quiet_since=300.0)])
    (shown,) = publisher.states
    assert [one.quiet_since for one in shown.values()] == [1e9 - 200]


def test_a_continuing_state_is_unchanged_when_the_clocks_drift(monkeypatch):
    made, publisher = relay()
    on = [PortState("link_down", PortLocation("gpu-1", f"mlx5_{one}:1"), 123.456 + one, 1, 1.0) for one in range(8)]
    clocks = SimpleNamespace(wall=1e9, own=200.0)
    monkeypatch.setattr("exporter.daemon.relay.time", lambda: clocks.wall)
    monkeypatch.setattr("exporter.daemon.relay.monotonic", lambda: clocks.own)
    made.publish_states(on)
    clocks.wall, clocks.own = 1e9 + 5.0004, 205.0
    made.publish_states(on)
    before, after = publisher.states
    assert len(before) == 8
    assert not states.state_changes(before, after)
