"""Verdicts of a collector on jobs, and the ports that are exported as causes."""

import json
import logging
from dataclasses import replace
from functools import partial
from time import monotonic, time

import pytest

from exporter.core.table import RowKeeper, TableBuilder
from exporter.daemon.judge import CAUSES, Judge
from exporter.meaning.training import jobs
from exporter.mqtt.job_levels import JobLevels
from exporter.mqtt.states import Presence, make_state
from exporter.mqtt.topics import level_topic
from exporter.sources.nccl.streams import StreamTableBuilder
from exporter.sources.switch.links import LinkTable, PortLink, unresolved_link
from exporter.switch_api.neighbour import LldpNeighbour
from tests.helpers.steady_job import Job, Work

MIB = 1 << 20


def table(now, times, first, *, count=10, size=8 * MIB):
    """Return timings of one communicator of four hosts: microseconds by rank."""
    made = StreamTableBuilder()
    for rank, microseconds in enumerate(times):
        operations = [(first + one, size, microseconds, True) for one in range(count)]
        key = ("llm", "0xa", "AllReduce", str(rank))
        made.add(key, operations, ranks=4, nodes=4, host=f"gpu-{rank}", expected=4)
    return made.table(now)


class RetainedState:
    def __init__(self, **ports):
        self.ports = ports
        self.levels = JobLevels()

    def states(self):
        return {
            (host.replace("_", "-"), "mlx5_0:1", kind): make_state(kind, time(), 1, value)
            for host, (kind, value) in self.ports.items()
        }

    def hosts(self):
        return {f"gpu-{rank}": Presence(version=1, state="up", since=1.0, number=1) for rank in range(4)}


def run(judge, *phases, make=table):
    """Run phases of (ticks, times), two seconds per tick; return the values of each tick."""
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


def test_a_slow_network_is_attributed_to_a_degraded_port(caplog):
    caplog.set_level(logging.INFO)
    retained = RetainedState(gpu_2=("link_degraded", 1.0), elsewhere=("link_down", 1.0))
    seen = run(Judge(jobs.JobKnowledge, lambda: retained, list), (15, FAST), (15, SLOW))
    last = seen[-1]
    assert ("verdict", "llm", "network_bound") in last
    causes = {key[2:]: value for key, value in last.items() if key[0] == "cause_confidence"}
    assert max(causes, key=causes.get) == ("link_degraded", "gpu-2", "mlx5_0:1", "", "")
    assert not any(name == "elsewhere" for _, name, *_ in causes), "no rank of the job runs there"
    (line,) = [one.getMessage() for one in caplog.records if "network_bound" in one.getMessage()]
    assert "job llm: network_bound: 10% of the expected network bandwidth" in line
    assert "mlx5_0:1" in line


@pytest.mark.parametrize(("quiet", "confidence"), [(None, 0.56), (300.0, 0.112)])
def test_a_port_that_is_quiet_since_before_the_symptom_is_hardly_its_cause(quiet, confidence):
    """Lost blocks have a weight of 0.8, at ports that ranks may use 0.7 of it, and a fifth of it if they were over."""
    now = time()
    lost = make_state("fec_uncorrectable", now - 400, 1, 900.0, quiet_since=None if quiet is None else now - quiet)
    retained = GivenStates()
    retained.given = {("gpu-2", "mlx5_0:1", lost.kind): lost}
    last = run(Judge(jobs.JobKnowledge, lambda: retained, list), (15, FAST), (15, SLOW))[-1]
    key = ("cause_confidence", "llm", lost.kind, "gpu-2", "mlx5_0:1", "", "")
    assert last[key] == pytest.approx(confidence)


def timings_of_hosts_with_two(*ports):
    """Return timings of a job whose ranks have these nearest ports."""

    def made(now, times, first):
        streams = StreamTableBuilder()
        for rank, microseconds in enumerate(times):
            operations = [(first + one, 8 * MIB, microseconds, True) for one in range(10)]
            key = ("llm", "0xa", "AllReduce", str(rank))
            streams.add(key, operations, ranks=4, nodes=2, host=f"gpu-{rank // 2}", expected=4, ports=ports[rank])
        return streams.table(now)

    return made


PORTS = ("mlx5_0:1=ens0=0000:0a:00.0", "mlx5_1:1=ens1=0000:1a:00.0") * 2


class GivenStates(RetainedState):
    """Retained states by host, port and kind."""

    def __init__(self, *states):
        super().__init__()
        self.given = {one: make_state(one[2], time() - 10, 1, 1.0) for one in states}

    def states(self):
        return self.given


def confidences(judge, make, *phases):
    last = run(judge, *phases, make=make)[-1]
    return {key[2:5]: value for key, value in last.items() if key[0] == "cause_confidence"}


def polled(*links):
    """Return the table of links of leaf-2, as the source that polls it makes it of its LLDP neighbours."""
    return LinkTable().make([unresolved_link(one) for one in links], 1.0, switch="leaf-2")


NAMED = LldpNeighbour("Ethernet1/4", name="gpu-1", peer_port="ens0", description="Ubuntu Linux 6.8")
BY_MAC = replace(NAMED, peer_port="02:00:00:00:00:01", port_description="ens0")


@pytest.mark.parametrize("neighbour", [NAMED, BY_MAC], ids=["the name of the interface", "its MAC address"])
def test_a_cause_has_both_ends_of_its_link(neighbour):
    judge = Judge(
        jobs.JobKnowledge,
        partial(GivenStates, ("gpu-1", "mlx5_0:1", "link_degraded")),
        lambda: [polled(neighbour)],
    )
    last = run(judge, (15, FAST), (15, SLOW), make=timings_of_hosts_with_two(*PORTS))[-1]
    (found,) = [key[2:] for key in last if key[0] == "cause_confidence"]
    assert found == ("link_degraded", "gpu-1", "mlx5_0:1", "leaf-2", "Ethernet1/4")


def test_a_state_that_a_switch_reports_is_that_of_the_port_at_the_other_end():
    judge = Judge(
        jobs.JobKnowledge, partial(GivenStates, ("leaf-2", "Ethernet1/4", "link_degraded")), lambda: [polled(NAMED)]
    )
    last = run(judge, (15, FAST), (15, SLOW), make=timings_of_hosts_with_two(*PORTS))[-1]
    (found,) = [key[2:] for key in last if key[0] == "cause_confidence"]
    assert found == ("link_degraded", "leaf-2", "Ethernet1/4", "gpu-1", "mlx5_0:1")


def test_a_port_that_is_gone_is_known_by_the_neighbour_that_its_switch_had():
    tables = [polled(NAMED)]
    judge = Judge(jobs.JobKnowledge, partial(GivenStates, ("leaf-2", "Ethernet1/4", "link_down")), lambda: tables)
    make = timings_of_hosts_with_two(*PORTS)
    run(judge, (15, FAST), make=make)
    tables[0] = polled(replace(NAMED, port="Ethernet1/5", peer_port="ens9"))
    last = run(judge, (15, FAST), (15, SLOW), make=make)[-1]
    (found,) = [key[2:] for key in last if key[0] == "cause_confidence"]
    assert found == ("link_down", "leaf-2", "Ethernet1/4", "gpu-1", "mlx5_0:1")


def test_an_event_by_any_name_of_the_nearest_port_of_a_rank_has_full_confidence():
    for name in ("mlx5_0:1", "ens0", "0000:0a:00.0"):
        judge = Judge(jobs.JobKnowledge, partial(GivenStates, ("gpu-1", name, "link_degraded")), list)
        found = confidences(judge, timings_of_hosts_with_two(*PORTS), (15, FAST), (15, SLOW))
        assert found["link_degraded", "gpu-1", "mlx5_0:1"] == pytest.approx(0.95, abs=0.06)


def test_an_event_of_a_port_that_is_not_nearest_to_a_rank_has_low_confidence():
    retained = GivenStates(("gpu-1", "mlx5_9:1", "link_degraded"))
    found = confidences(
        Judge(jobs.JobKnowledge, lambda: retained, list), timings_of_hosts_with_two(*PORTS), (15, FAST), (15, SLOW)
    )
    assert found["link_degraded", "gpu-1", "mlx5_9:1"] == pytest.approx(0.15)


def links(*, mac="a0:88:c2:00:10:08"):
    """Return the links of two leaves with two hosts each and of a spine, as their poller has them."""
    tables = []
    for leaf, hosts in (("leaf-1", ("gpu-0", "gpu-1")), ("leaf-2", ("gpu-2", "gpu-3"))):
        found = [PortLink(f"Eth1/{one}", host, mac, "host", mac, "ens0") for one, host in enumerate(hosts)]
        found.append(PortLink("Eth1/9", "spine-1", f"Eth{leaf[-1]}", "switch", "", ""))
        tables.append(LinkTable().make(found, 0.0, switch=leaf))
    spine = [PortLink(f"Eth{one}", f"leaf-{one}", "Eth1/9", "switch", "", "") for one in (1, 2)]
    return [*tables, LinkTable().make(spine, 0.0, switch="spine-1")]


def test_an_uplink_that_the_poller_knows_is_a_cause():
    retained = GivenStates(("leaf-2", "Eth1/9", "link_degraded"))
    judge = Judge(jobs.JobKnowledge, lambda: retained, links)
    found = confidences(judge, table, (15, FAST), (15, SLOW))
    assert max(found, key=found.get) == ("link_degraded", "leaf-2", "Eth1/9")


def test_a_port_of_a_leaf_is_one_link_with_that_of_the_host_by_its_description():
    retained = GivenStates(("leaf-1", "Eth1/1", "link_degraded"))
    made = timings_of_hosts_with_two(*["mlx5_0:1=ens0=0000:0a:00.0"] * 4)
    found = confidences(Judge(jobs.JobKnowledge, lambda: retained, links), made, (15, FAST), (15, SLOW))
    assert found["link_degraded", "leaf-1", "Eth1/1"] == pytest.approx(0.95, abs=0.06)


def test_states_from_a_job_log_apply_to_that_job_only():
    ours, others = ("gpu-1", "mlx5_0:1@llm", "failed_over"), ("gpu-1", "@other", "gdr_off")
    found = confidences(
        Judge(jobs.JobKnowledge, lambda: GivenStates(ours, others), list),
        timings_of_hosts_with_two(*PORTS),
        (15, FAST),
        (15, SLOW),
    )
    assert ("failed_over", "gpu-1", "mlx5_0:1") in found
    assert not any(kind == "gdr_off" for kind, _, _ in found)


def hosts_of_four(*ports):
    """Return timings of a job on hosts with four ranks, which have these nearest ports."""

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
    ("first", "second", "expected"),
    [
        (("mlx5_0:1", *OWN[:1], *OWN[2:]), OWN, {("gpu-0", "mlx5_0:1")}),
        (TWO_EACH, TWO_EACH, set()),  # the usual layout
        (TWO_EACH, (*TWO_EACH[:3], ""), set()),  # the port of one rank is not known
        (TWO_EACH, TWO_EACH[:3], set()),  # a job of seven
    ],
)
def test_a_port_shared_by_more_ranks_than_on_other_hosts_is_a_cause(first, second, expected):
    judge = Judge(jobs.JobKnowledge, GivenStates, list)
    found = confidences(judge, hosts_of_four(*first, *second), (15, FAST), (15, SLOW))
    assert {(name, port) for kind, name, port in found if kind == "adapter_shared"} == expected


def test_without_evidence_the_cause_is_unknown():
    last = run(Judge(jobs.JobKnowledge, lambda: None, list), (15, FAST), (15, SLOW))[-1]
    assert [key[2] for key in last if key[0] == "cause_confidence"] in ([], ["unknown"])


def test_a_late_rank_without_port_evidence_is_a_straggler_by_compute_or_process(caplog):
    caplog.set_level(logging.INFO)
    seen = run(Judge(jobs.JobKnowledge, RetainedState, list), (8, FAST), (8, LATE), (60, FAST))
    verdicts = [values for values in seen if ("verdict", "llm", "straggler") in values]
    assert verdicts
    assert all(("straggler", "llm", "2") in values for values in verdicts)
    assert {key[2] for key in verdicts[-1] if key[0] == "cause_confidence"} & {"compute", "process"}
    begun, over = [one.getMessage() for one in caplog.records]
    assert begun.startswith("job llm: straggler: rank 2, last in")
    assert over.startswith("job llm: straggler: over; now fine")


@pytest.mark.parametrize("times", [FAST])
def test_a_job_without_problems_has_no_cause_and_is_not_logged(caplog, times):
    caplog.set_level(logging.INFO)
    seen = run(Judge(jobs.JobKnowledge, lambda: RetainedState(gpu_1=("link_down", 1.0)), list), (20, times))
    assert not any(key[0] == "cause_confidence" for values in seen for key in values)
    assert not caplog.records


def test_other_tables_pass():
    other = TableBuilder(CAUSES).table(RowKeeper(CAUSES.labels), 1.0)
    assert Judge(jobs.JobKnowledge, lambda: None, list).step(None, other) == (None, (other,))


def collector(levels):
    """Return a job that a collector which has just started judges."""
    retained = RetainedState()
    retained.levels = levels
    return Job(step=Judge(jobs.JobKnowledge, lambda: retained, list).step)


async def test_a_job_is_compared_with_its_best_after_a_restart_of_the_collector():
    """A job of two steps a second, which sums half a GiB on two ranks at 5.4 GB/s, was kept; it is 21 % slower now."""
    levels, sent = JobLevels(), []

    async def publish(topic, payload, expiry):
        sent.append(json.loads(payload)["levels"])
        return True

    kept = {"steps AllReduce 2 2 9 603979776": 2.0, "bus_bandwidth AllReduce 536870912 2 2": 512 * MIB / 0.1}
    job = collector(levels)
    job.works(Work(step=0.605), 1)
    assert job.regression == {}
    levels.receive(level_topic("llm"), json.dumps({"version": 1, "levels": kept}).encode())
    job.works(Work(step=0.605), 2)
    assert job.regression == pytest.approx({"step_time": 1.21, "bus_bandwidth": 1.0}, rel=0.05)
    await levels.publish_due(publish)
    assert sent == [kept], "the better level is kept"

    levels.receive(level_topic("llm"), b"")
    job.works(Work(step=0.605), 0.5)
    assert job.regression == {}, "an empty message makes it forget"
    await levels.publish_due(publish)
    assert sent == [kept]
