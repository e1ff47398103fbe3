"""States of how a job reaches the network, from its traffic: what a host publishes for collectors."""

from time import time

import pytest

from exporter.daemon.judge import Judge
from exporter.meaning.ports.states import PortLocation
from exporter.meaning.training import jobs, transport, transport_states
from exporter.meaning.training.cause_rules import TRAFFIC_RULES
from exporter.meaning.training.transport_states import FEW_PORTS, LASTING_SECONDS, NO_RDMA, TransportStateMemory
from exporter.mqtt.states import make_state, port_with_job
from tests.daemon.test_judge import FAST, PORTS, SLOW, GivenStates, confidences, timings_of_hosts_with_two
from tests.meaning.training.test_transport import GIB, RING, Node


class Publisher(Node):
    """A host that computes its states each second."""

    def __init__(self, **options):
        super().__init__(**options)
        self.memory, self.states = TransportStateMemory(), []

    def step(self, table):
        self.state, (_, *made) = transport.step("gpu-1", lambda: self.tables, self.state, table)
        self.states = transport_states.step(self.memory, [*self.tables, *made], "gpu-1", self.now)
        self.last = {(one.kind, one.job): one.value for one in self.states}
        self.seen.append(self.last)


def first(publisher, key):
    """Return the number of seconds after which a state was there."""
    return next((number for number, one in enumerate(publisher.seen) if key in one), None)


def test_a_job_on_tcp_is_a_state_of_its_host_and_job_after_a_minute():
    host = Publisher()
    host.run(40, None)
    host.run(80, GIB)
    (state,) = host.states
    assert (state.kind, state.port, state.job, state.value) == (NO_RDMA, PortLocation("gpu-1", ""), "llm", 0.0)
    assert first(host, (NO_RDMA, "llm")) == pytest.approx(40 + LASTING_SECONDS + 5, abs=3)
    assert state.number == 1


def test_half_of_the_ports_are_few_and_more_are_not():
    host = Publisher()
    host.run(40, None)
    host.run(140, GIB, RING * GIB, used=range(4))
    assert [(one.kind, one.value) for one in host.states] == [(FEW_PORTS, 4)]
    others = Publisher()
    others.run(40, None)
    others.run(140, GIB, RING * GIB, used=range(5))
    assert others.states == []


def test_a_state_of_a_job_that_starts_begins_with_it():
    host = Publisher()
    host.run(40, None)
    begun = host.now
    host.run(80, GIB)
    (state,) = host.states
    assert begun <= state.since <= begun + 6


def test_a_state_begins_when_ports_are_used_no_more_and_not_when_the_window_shows_it():
    """A cause that seems to begin a minute after the verdict would be taken for its consequence."""
    host = Publisher()
    host.run(40, None)
    host.run(140, GIB, RING * GIB)
    ended = host.now
    host.run(180, GIB, RING * GIB, used=range(4))
    (state,) = host.states
    assert state.kind == FEW_PORTS
    assert abs(state.since - ended) <= 10


def test_a_job_that_uses_rdma_on_all_ports_has_no_state():
    host = Publisher()
    host.run(40, None)
    host.run(140, GIB, RING * GIB)
    assert [one for one in host.seen if one] == []


def test_adapters_that_are_used_by_and_by_are_no_state():
    host = Publisher()
    host.run(40, None)
    host.run(30, GIB, RING * GIB, used=range(2))
    host.run(120, GIB, RING * GIB)
    assert [one for one in host.seen if one] == []


def test_a_state_ends_with_its_job():
    host = Publisher()
    host.run(40, None)
    host.run(80, GIB)
    assert host.states
    host.run(120, None)
    assert (host.states, host.memory.begun, host.memory.numbers) == ([], {}, {})


def test_each_kind_has_a_rule():
    assert {rule.kind for rule in TRAFFIC_RULES} == {NO_RDMA, FEW_PORTS}


def test_a_network_bound_job_without_a_log_has_tcp_as_its_first_cause():
    """On one of its two hosts, as its own host publishes; of another job it is no cause."""
    retained = GivenStates()
    retained.given = {
        ("gpu-1", port_with_job("", job), kind): make_state(kind, time() - 10, 1, 0.02)
        for job, kind in (("llm", NO_RDMA), ("other", FEW_PORTS))
    }
    found = confidences(
        Judge(jobs.JobKnowledge, lambda: retained, list), timings_of_hosts_with_two(*PORTS), (15, FAST), (15, SLOW)
    )
    assert list(found) == [(NO_RDMA, "gpu-1", "")]
    assert found[NO_RDMA, "gpu-1", ""] >= 0.6
