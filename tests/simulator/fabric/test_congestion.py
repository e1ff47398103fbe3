"""Rates, queues, marks, pauses and losses of one exchange, compared with what the links allow."""

import pytest

from exporter.simulator.fabric.congestion import exchange
from exporter.simulator.fabric.faults import Plan, parse_fault
from exporter.simulator.fabric.flows import flows
from exporter.simulator.fabric.topology import Shape, Topology

CLUSTER = Topology(Shape())

WIRE = 4158 / 4096 * 8
"""Bits on the wire for each byte of data: a frame of RoCEv2 with 4096 bytes of data has 62 of headers, FCS and gap."""


def sent(*faults, seed=1):
    plan = Plan([parse_fault(fault, CLUSTER) for fault in faults], CLUSTER)
    cabling, conditions = plan.cabling(0.0), plan.conditions(0.0)
    return exchange(flows(CLUSTER.hosts, tuple(range(8)), cabling, conditions, seed), cabling, conditions)


def access(host, rail):
    return CLUSTER.access(CLUSTER.adapter(host, rail))


def seconds_at(rate, rails=8):
    """Give the seconds of a byte, of which each rail has a part, at some bits per second."""
    return WIRE / rails / rate


def test_healthy_adapters_send_at_the_speed_of_their_links():
    assert sent().seconds_a_byte == pytest.approx(seconds_at(400e9), rel=0.005)


@pytest.mark.parametrize(
    ("fault", "rate"),
    [
        ("degraded-link:gpu-003/0", 100e9),
        ("pause-storm:gpu-003/0", 160e9),
        ("short-pauses:gpu-003", 350e9),
        ("slow-pcie:gpu-003/0", 107e9),
        ("gpudirect-off:gpu-003", 160e9),
        ("half-adapters", 200e9),
        ("link-down:gpu-003/0", 200e9),
        ("tcp", 40e9),
        # Four adapters of 400 Gb/s on four uplinks of 200 Gb/s, less what is not perfectly even.
        ("oversubscribed-leaf", 200e9 / 1.0625),
        # Each lost packet has 800 sent again.
        ("dirty-optic:gpu-003/0", 400e9 / (1 + 800 * 2e-4)),
        ("symbol-errors:gpu-003/0", 400e9 / (1 + 800 * 1e-4)),
    ],
)
def test_the_slowest_link_decides(fault, rate):
    assert sent(fault).seconds_a_byte == pytest.approx(seconds_at(rate), rel=0.02)


def test_healthy_links_have_few_marks_short_pauses_and_short_queues():
    hops = sent().hops
    assert max(one.paused for one in hops.values()) < 0.005
    assert max(one.marked / one.sent for one in hops.values()) < 1e-5
    assert max(one.queue for one in hops.values()) < 100_000
    assert sum(one.damaged + one.dropped for one in hops.values()) == 0


def test_a_storm_is_passed_on_to_those_who_send_to_the_adapter():
    hops, healthy = sent("pause-storm:gpu-002/4").hops, sent().hops
    grown = {hop for hop in hops if hops[hop].paused > 10 * healthy[hop].paused + 0.01}
    assert grown == {access("gpu-002", 4).down, access("gpu-001", 4).up}
    assert hops[access("gpu-002", 4).down].paused == pytest.approx(0.6)
    assert hops[access("gpu-002", 4).down].queue > 100_000


def test_a_storm_behind_spines_pauses_all_spines_of_its_leaf():
    hops = sent("pause-storm:gpu-003/4").hops
    paused = {hop.sender.device for hop, one in hops.items() if one.paused > 0.05}
    assert paused == {"leaf-04", "spine-01", "spine-02", "spine-03", "spine-04"}


def test_a_sender_that_does_not_react_makes_marks_and_pauses_where_its_flows_pass():
    hops, healthy = sent("marks-ignored:gpu-004").hops, sent().hops
    marked = {hop for hop in hops if hops[hop].marked > 20 * healthy[hop].marked > 0}
    on_the_way = {
        hop for hop in hops if hop.sender.device in {"leaf-03", "leaf-04"} and hop.receiver.device[:2] == "sp"
    }
    assert on_the_way <= marked
    assert {hop.receiver.device for hop in marked if hop.receiver.device.startswith("gpu")} == {"gpu-001"}
    assert hops[access("gpu-004", 2).up].paused > 5 * healthy[access("gpu-004", 2).up].paused > 0


def test_congestion_that_no_sender_reacts_to_spreads_over_the_spines_to_the_leaf_of_the_sender():
    faults = ["pause-storm:gpu-003/4", "marks-ignored:gpu-002"]
    uplinks = [CLUSTER.uplink("leaf-02", spine).up for spine in CLUSTER.spines]
    reacting, spreading = sent(faults[0]).hops, sent(*faults).hops
    assert max(reacting[hop].paused for hop in uplinks) < 0.01
    assert min(spreading[hop].paused for hop in uplinks) > 0.1


def test_without_pfc_packets_are_lost_and_none_is_paused():
    lossy, healthy = sent("no-pfc"), sent()
    assert {one.paused for one in lossy.hops.values()} == {0}
    assert min(one.dropped for hop, one in lossy.hops.items() if hop.sender.device.startswith("leaf")) > 0
    assert min(one.lost for one in lossy.connections.values()) > 0
    assert sum(one.sent for one in lossy.hops.values()) > 1.05 * sum(one.sent for one in healthy.hops.values())
    assert lossy.seconds_a_byte > 1.1 * healthy.seconds_a_byte


@pytest.mark.parametrize("fault", ["dirty-optic:gpu-003/0", "symbol-errors:leaf-01/spine-02", "no-pfc"])
def test_what_is_sent_arrives_or_is_lost(fault):
    found = sent(fault)
    out = sum(one.sent for hop, one in found.hops.items() if hop.sender.device.startswith("gpu"))
    arrived = sum(one.arrived for one in found.connections.values())
    lost = sum(one.lost for one in found.connections.values())
    on_hops = sum(one.dropped + one.damaged for one in found.hops.values())
    assert lost == pytest.approx(on_hops)
    assert lost > 0
    assert arrived == pytest.approx(out - lost)


def test_marks_of_the_switches_are_those_that_adapters_receive():
    found = sent("pause-storm:gpu-003/4", "one-spine")
    by_switches = sum(one.marked for one in found.hops.values())
    assert sum(one.marked for one in found.connections.values()) == pytest.approx(by_switches)


def test_tcp_has_neither_marks_nor_pauses():
    found = sent("tcp")
    assert not found.rdma
    assert sum(one.marked + one.paused for one in found.hops.values()) == 0
