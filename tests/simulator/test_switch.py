"""The simulated switches: their tables show what their ports counted, in the places where each make has it."""

import pytest

from exporter.simulator.ports import HOST
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.switches import DemoLeaf, fill_agent, update_agent
from exporter.simulator.traffic import Training
from exporter.snmp.ber import (
    COUNTER32,
    COUNTER64,
    TIME_TICKS,
    encode_oid,
    parse_oid,
)
from exporter.snmp.message import (
    GET,
    GETBULK,
    V2C,
    decode_message,
    encode_message,
    encode_pdu,
    encode_varbind,
)
from tests.simulators.snmp_switch import BYTES_RECEIVED, FAULTS, SimulatedSwitch
from tests.simulators.switch_kinds import KINDS

UPTIME = "1.3.6.1.2.1.1.3.0"
IF, IFX = "1.3.6.1.2.1.2.2.1", "1.3.6.1.2.1.31.1.1.1"


def value(switch, oid):
    """Read one object of the agent; return its type and value."""
    agent = getattr(switch, "agent", switch)
    pdu = encode_pdu(GET, 1, 0, 0, [encode_varbind(encode_oid(parse_oid(oid)))])
    (reply,) = agent.answer(encode_message(V2C, agent_community(agent), pdu))
    ((_, tag, content),) = decode_message(reply).pdu.varbinds
    return tag, content


def agent_community(agent):
    return agent._community


def everything(agent):
    """Walk all that an agent has."""
    rows, name = {}, b"\x00"
    while True:
        pdu = encode_pdu(GETBULK, 1, 0, 60, [encode_varbind(name)])
        (reply,) = agent.answer(encode_message(V2C, agent_community(agent), pdu))
        for name, tag, content in decode_message(reply).pdu.varbinds:
            if name in rows:
                return rows
            rows[name] = tag, content


# --- tables


@pytest.mark.parametrize("kind", KINDS)
def test_octets_are_those_of_the_port_with_64_and_32_bits(kind):
    switch = SimulatedSwitch("leaf-01", ports=8, kind=kind)
    switch.advance(15)
    assert switch.ports[1:]
    for port in switch.ports[1:]:
        index, truth = switch.ifindex[port.name], switch.truth()[port.name]
        assert value(switch, f"{IFX}.1.{index}")[1] == port.name.encode()
        assert value(switch, f"{IFX}.10.{index}") == (COUNTER64, truth["transmit_bytes"])
        assert value(switch, f"{IF}.16.{index}") == (COUNTER32, truth["transmit_bytes"] % 2**32)
        packets = sum(truth[f"transmit_{cast}_packets"] for cast in ("unicast", "multicast", "broadcast"))
        assert truth["transmit_bytes"] > packets * 4000  # nearly all of it is RDMA


@pytest.mark.parametrize(
    ("kind", "sent", "received"),
    [
        ("arista", "1.3.6.1.4.1.30065.3.11.1.1.1.3.{i}.3", "1.3.6.1.4.1.30065.3.11.1.1.1.4.{i}.3"),
        ("sonic", "1.3.6.1.4.1.9.9.813.1.2.1.2.{i}.3", "1.3.6.1.4.1.9.9.813.1.2.1.3.{i}.3"),
        ("nxos", "1.3.6.1.4.1.9.9.813.1.2.1.2.{i}.3", "1.3.6.1.4.1.9.9.813.1.2.1.3.{i}.3"),
        ("cumulus", "1.3.6.1.4.1.40310.2.2.3.1.11.{i}", "1.3.6.1.4.1.40310.2.2.3.1.10.{i}"),
        ("onyx", "1.3.6.1.4.1.33049.15.1.2.1.5.{i}.3", "1.3.6.1.4.1.33049.15.1.2.1.3.{i}.3"),
        ("generic", "1.3.111.2.802.1.1.21.1.1.1.2.{i}", "1.3.111.2.802.1.1.21.1.1.1.3.{i}"),
    ],
)
def test_pause_frames_of_the_lossless_priority_are_in_the_tables_of_each_make(kind, sent, received):
    switch = SimulatedSwitch("leaf-01", ports=8, kind=kind)
    switch.begin("pfc-storm")
    switch.advance(15)
    port = switch.ports[0]
    truth, index = switch.truth()[port.name], switch.ifindex[port.name]
    # 0.6 of 15 s are 9,000,000 us, at 40 us a frame; what the switch sends itself is a thousandth of the time.
    assert truth["receive_pfc_frames_3"] == 225_000
    assert truth["transmit_pfc_frames_3"] == 375
    assert value(switch, received.format(i=index))[1] == 225_000
    assert value(switch, sent.format(i=index))[1] == 375


@pytest.mark.parametrize(
    ("kind", "oid", "what"),
    [
        ("arista", "1.3.6.1.4.1.30065.3.13.1.9.1.4.{i}.3", "queue_ecn_marked_3"),
        ("arista", "1.3.6.1.4.1.30065.3.6.1.2.1.5.{i}.3.0", "queue_bytes_3"),
        ("sonic", "1.3.6.1.4.1.9.9.580.1.5.5.1.4.{i}.2.4.2", "queue_bytes_3"),
        ("junos", "1.3.6.1.4.1.2636.3.15.4.1.11.{i}.0", "queue_full_discards_0"),
        ("onyx", "1.3.6.1.4.1.33049.15.1.4.1.9.{i}.0", "queue_early_discards_0"),
    ],
)
def test_queues_are_in_the_tables_of_each_make(kind, oid, what):
    switch = SimulatedSwitch("leaf-01", ports=8, kind=kind)
    switch.advance(60)
    port = switch.ports[1]
    truth = switch.truth()[port.name][what]
    assert truth > 0
    assert value(switch, oid.format(i=switch.ifindex[port.name])) == (COUNTER64, truth)


def test_neighbours_are_hosts_on_ports_and_spines_on_uplinks():
    switch = SimulatedSwitch("leaf-01", ports=8, kind="nxos")
    names = [
        value(switch, f"1.0.8802.1.1.2.1.4.1.1.9.0.{switch.ifindex[port.name]}.1")[1].decode() for port in switch.ports
    ]
    assert names == [f"gpu-00{place}" for place in range(1, 7)] + ["spine-01", "spine-02"]
    by_number = SimulatedSwitch("leaf-01", ports=8, kind="generic")
    assert value(by_number, "1.0.8802.1.1.2.1.3.7.1.3.8")[1] == b"Ethernet1/8"


@pytest.mark.parametrize(("kind", "lane"), [("generic", 1_000_001_032), ("arista", 1_000_001_232)])
def test_optics_have_sensors_by_lane(kind, lane):
    switch = SimulatedSwitch("leaf-01", ports=8, kind=kind)
    sensor = [value(switch, f"1.3.6.1.2.1.99.1.1.1.{column}.{lane}")[1] for column in range(1, 6)]
    assert sensor == [6, 8, 4, 8812, 1]  # milliwatts with four digits: 0.8812 mW on the second lane


# --- time


def test_counters_wrap_and_show_the_increase():
    switch = SimulatedSwitch("leaf-01", ports=8)
    port, index = switch.ports[0], switch.ifindex["Ethernet1/1"]
    assert value(switch, f"{IF}.14.{index}") == (COUNTER32, 2**32 - 600)
    assert value(switch, f"{IFX}.6.{index}") == (COUNTER64, 2**64 - 10**12)
    switch.advance(180)
    truth = port.truth()
    assert truth["receive_errors"] == 2**32 + 120  # four a second
    assert value(switch, f"{IF}.14.{index}") == (COUNTER32, 120)
    assert truth["receive_bytes"] > 2**64
    assert value(switch, f"{IFX}.6.{index}") == (COUNTER64, truth["receive_bytes"] - 2**64)


def test_a_cache_shows_old_counters_beside_new_states_until_its_refresh():
    switch = SimulatedSwitch("leaf-01", ports=8, kind="arista", refresh=30)
    index = switch.ifindex["Ethernet2/1"]
    seen = []
    for _ in range(6):
        switch.advance(10)
        seen.append(value(switch, f"{IFX}.10.{index}")[1])
    assert seen[0] == seen[1] == 0
    assert 0 < seen[2] == seen[3] == seen[4] < seen[5]
    assert value(switch, UPTIME) == (TIME_TICKS, 120_00)
    assert value(switch, f"1.3.6.1.4.1.30065.3.15.1.1.1.1.{index}") == (TIME_TICKS, 120_00)


def test_a_reboot_starts_all_counters_and_moves_the_interfaces_by_choice():
    switch = SimulatedSwitch("leaf-01", ports=8)
    switch.advance(60)
    old = dict(switch.ifindex)
    switch.reboot(renumber=True)
    switch.advance(1)
    assert value(switch, UPTIME) == (TIME_TICKS, 100)
    assert value(switch, f"{IF}.14.{switch.ifindex['Ethernet1/1']}") == (COUNTER32, 4)
    assert switch.ifindex == {name: index + 1000 for name, index in old.items()}
    assert value(switch, f"{IFX}.1.1")[1] is None, "the old index is gone"
    switch.reboot()
    assert switch.ifindex["Ethernet1/1"] == 1001


def test_the_same_seed_and_steps_give_the_same_counters():
    one, two = (SimulatedSwitch("leaf-01", ports=8, seed=3) for _ in range(2))
    other = SimulatedSwitch("leaf-01", ports=8, seed=4)
    for switch in (one, two, other):
        switch.advance(10)
        switch.advance(5)
    assert everything(one.agent) == everything(two.agent)
    assert one.truth() == two.truth() != other.truth()


def test_the_two_tables_of_interfaces_may_have_indexes_apart():
    switch = SimulatedSwitch("leaf-01", ports=8, apart=1_000_000)
    switch.advance(10)
    assert value(switch, f"{IF}.2.1")[1] == value(switch, f"{IFX}.1.1000001")[1] == b"Ethernet1/1"
    assert value(switch, f"{IFX}.1.1")[1] is None
    assert value(switch, f"{IFX}.10.1000002")[1] == switch.truth()["Ethernet1/2"]["transmit_bytes"]
    assert value(switch, f"{IF}.16.2")[1] == switch.truth()["Ethernet1/2"]["transmit_bytes"] % 2**32


# --- faults


def moved(switch, name, seconds=10):
    """Return the increase of a counter of each port."""
    before = switch.truth()
    switch.advance(seconds)
    return [port.truth().get(name, 0) - before[port.name].get(name, 0) for port in switch.ports]


def test_an_uplink_carries_most_and_the_others_nearly_nothing():
    switch = SimulatedSwitch("leaf-01", ports=16)
    switch.begin("uplink-imbalance")
    first, *others = moved(switch, "transmit_bytes")[12:]
    assert all(first > 15 * other > 0 for other in others)


def test_a_degraded_port_reports_its_speed_and_carries_less():
    switch = SimulatedSwitch("leaf-01", ports=8)
    before = moved(switch, "transmit_bytes")
    switch.begin("degraded-port")
    after = moved(switch, "transmit_bytes")
    assert value(switch, f"{IFX}.15.1")[1] == 100_000
    assert value(switch, f"{IFX}.15.2")[1] == 400_000
    assert 0.2 < after[0] / before[0] < 0.3
    assert after[1] > 0.9 * before[1]


def test_a_flapping_port_goes_down_and_up_and_counts_nothing_meanwhile():
    switch = SimulatedSwitch("leaf-01", ports=8)
    switch.begin("flapping-port")
    states = []
    for _ in range(4):
        carried = moved(switch, "transmit_bytes")[0]
        states.append((value(switch, f"{IF}.8.1")[1], value(switch, f"{IFX}.15.1")[1], carried > 0))
    assert states == [(2, 0, False), (1, 400_000, True)] * 2
    assert value(switch, f"{IF}.9.1") == (TIME_TICKS, 100_00)


def test_swapped_pause_frames_are_shown_the_wrong_way_round_and_counted_right():
    switch = SimulatedSwitch("leaf-01", ports=8, kind="sonic")
    switch.begin("swapped-pfc")
    switch.begin("pfc-storm")
    switch.advance(10)
    truth = switch.truth()["Ethernet0"]
    assert truth["receive_pfc_frames_3"] > 100 * truth["transmit_pfc_frames_3"] > 0
    assert value(switch, "1.3.6.1.4.1.9.9.813.1.2.1.2.1.3")[1] == truth["receive_pfc_frames_3"]
    assert value(switch, "1.3.6.1.4.1.9.9.813.1.2.1.3.1.3")[1] == truth["transmit_pfc_frames_3"]


def test_zeros_come_and_go():
    switch = SimulatedSwitch("leaf-01", ports=8)
    switch.begin("alternating-zeros")
    seen = []
    for _ in range(4):
        switch.advance(10)
        seen.append(value(switch, f"{IFX}.6.2")[1])
    assert seen[0] == seen[2] == 0
    assert 0 < seen[1] < seen[3]


def test_faults_of_the_switch_set_those_of_its_agent():
    switch = SimulatedSwitch("leaf-01", ports=8)
    for fault in ("dead", "slow", "looping"):
        switch.begin(fault)
    faults = switch.agent.faults
    assert (faults.silent, faults.delay > 0, faults.loop) == (True, True, {BYTES_RECEIVED})
    for fault in FAULTS:
        switch.end(fault)
    assert (faults.silent, faults.delay, faults.loop) == (False, 0, set())
    with pytest.raises(ValueError, match="'broken' is not a fault; the faults are dead, slow"):
        switch.begin("broken")


# --- the demo's leaf


def test_the_leaf_of_the_demo_has_neighbours_and_pause_frames():
    training = Training(["pause-storm"])
    agent = SnmpAgent()
    leaf = training.leaves[0]
    fill_agent(agent, DemoLeaf(leaf, training))
    training.advance(30)
    update_agent(agent, DemoLeaf(leaf, training))
    local = {port.name: index for index, port in enumerate(leaf.ports, start=1)}
    rail = training.rails[1]
    port = training.leaf_port(1)
    assert port.alias.startswith(HOST)
    remote = f"1.0.8802.1.1.2.1.4.1.1.{{}}.0.{local[port.name]}.1"
    assert value(agent, remote.format(9))[1] == HOST.encode()
    assert value(agent, remote.format(7))[1] == bytes.fromhex(rail.mac.replace(":", ""))
    uplink = f"1.0.8802.1.1.2.1.4.1.1.9.0.{local[leaf.uplinks[-1].name]}.1"
    assert value(agent, uplink)[1] == b"spine-04"
    pauses = [
        value(agent, f"1.3.6.1.4.1.9.9.813.1.2.1.{column}.{index}.3")[1]
        for column in (2, 3)
        for index in local.values()
    ]
    counted = [one.counters[name] for name in ("sent_pause_frames", "pause_frames") for one in leaf.ports]
    assert pauses == counted
    assert sum(counted) > 0
