"""What a host hands to its publisher: timings with what was lost, states that go on, and no rank that is doubtful."""

from types import SimpleNamespace

from exporter.core.table import Column, Rows, Table
from exporter.daemon.relay import Relay, batches
from exporter.meaning.ports.states import Port, PortState
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
    """Keeps what is offered and shown."""

    def __init__(self):
        self.offered, self.shown = [], []
        self.offer = self.offered.append

    def show(self, found):
        self.shown.append(states.by_key(list(found)))


def relay():
    made = Relay(MqttOptions(), "gpu-1")
    made._publisher = Publisher()
    return made, made._publisher


def heard(*world_ranks):
    """Make the table of single collectives of processes that claim these ranks of the job."""
    known, said = ProcessRegistry(), []
    known.begin_poll()
    for place, rank in enumerate(world_ranks):
        number = 100 + place
        facts = ProcessFacts("j", pid=number, host="gpu-1", host_pid=number, world_rank=rank)
        one = ProcessReport(f"f{place}", facts, None)
        member = Membership(place, len(world_ranks), 1)
        one.add_membership(member)
        one.add_collective("c", member, "AllReduce", 1, 1 << 20, 100, True)
        said.append((known.add("inspector", one, 1.0, []), one))
    known.end_poll({}, 1.0)
    return stream_table(said, "gpu-1", 1.0)


def test_how_far_ranks_are_is_sent_also_where_nothing_ended():
    table = heard(4)
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
    assert [(told.stream.kind, told.stream.world_rank, *told[1:]) for told in batch.progress] == [("Barrier", 3, 9, 8)]
    assert [batch.progress for batch in batches(table, "gpu-1")] == [[]]


def losses(**dropped):
    rows = Rows(LOSSES.labels, {("j", rank[1:]): None for rank in dropped}, {})
    columns = {"dropped_collectives_total": Column(LOSSES.metrics["dropped_collectives_total"], [*dropped.values()])}
    return Table(LOSSES, rows, columns, 1.0)


def test_a_rank_that_several_claim_is_sent_as_unknown():
    def sent(table):
        return [stream.world_rank for batch in batches(table, "gpu-1") for stream, _ in batch.streams]

    assert sent(heard(4, 5, 6)) == [4, 5, 6]
    assert sent(heard(0, 0, 0, 3)) == [None, None, None, 3]


def test_what_ranks_lost_goes_with_the_timings_of_their_job_and_never_falls():
    made, publisher = relay()
    for told in ({"r0": 3, "r1": 4}, {"r0": 5}, {"r0": 1}):  # one goes, and one begins anew
        for table in (losses(**told), heard(0, 1)):
            made.step(None, table)
    assert [batch.dropped for batch in publisher.offered] == [7, 9, 10]


def test_what_the_log_of_a_job_tells_of_a_port_stands_beside_what_the_port_tells():
    made, publisher = relay()
    port = Port("gpu-1", "mlx5_0:1")
    made.show(
        [
            PortState("link_down", port, 100.0, 1, 0.0),
            PortState("port_error", port, 100.0, 1, 1.0, job="llm"),
            PortState("gdr_off", Port("gpu-1", ""), 100.0, 1, 1.0, job="llm"),
        ]
    )
    (shown,) = publisher.shown
    assert list(shown) == [
        ("gpu-1", "mlx5_0:1", "link_down"),
        ("gpu-1", "mlx5_0:1@llm", "port_error"),
        ("gpu-1", "@llm", "gdr_off"),
    ]


def test_a_state_that_goes_on_is_the_same_whatever_the_clocks_do(monkeypatch):
    made, publisher = relay()
    on = [PortState("link_down", Port("gpu-1", f"mlx5_{one}:1"), 123.456 + one, 1, 1.0) for one in range(8)]
    clocks = SimpleNamespace(wall=1e9, own=200.0)
    monkeypatch.setattr("exporter.daemon.relay.time", lambda: clocks.wall)
    monkeypatch.setattr("exporter.daemon.relay.monotonic", lambda: clocks.own)
    made.show(on)
    clocks.wall, clocks.own = 1e9 + 5.0004, 205.0
    made.show(on)
    before, after = publisher.shown
    assert len(before) == 8
    assert not states.changes(before, after)
