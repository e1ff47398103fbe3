"""States of ports: same thresholds as the alerts, one begin, and an end after a while."""

import re

import pytest
import yaml

from exporter.core.table import Column, Rows, Table
from exporter.daemon.sources import SOURCES
from exporter.meaning.ports import oversubscription
from exporter.meaning.ports import states as port_states
from exporter.meaning.ports.state_rules import (
    IB,
    MIN_PACKETS_PER_SECOND,
    NIC,
    PCI,
    POWER_LOW,
    RDMA,
    RULES,
    SWITCH,
    TOO_HOT,
    Form,
)
from exporter.meaning.ports.states import PortLocation, PortStateMemory
from exporter.meaning.training.cause_rules import PORT_RULES
from exporter.meaning.training.causes import Symptom, causes
from exporter.meaning.training.paths import Event, Fabric, Rank
from exporter.meaning.training.stragglers import Suspect
from exporter.meaning.training.verdicts import Judgement, Verdict
from tests.helpers.paths import ROOT

LAYERS = {RDMA: "rdma", NIC: "nic", SWITCH: "switch", PCI: "pci"}
HOST = "a1"
SCHEMAS = [one for source in SOURCES for one in source.schemas if not one.internal]
OF_PORT = {RDMA: ("device", "port"), NIC: ("device",), SWITCH: ("switch", "port"), IB: ("guid", "port"), PCI: ("pci",)}
KEYS = {RDMA: ("mlx5_0", "1"), NIC: ("ens1",), SWITCH: ("leaf1", "swp3"), IB: ("aa", "7"), PCI: ("0000:0a:00.0",)}


def table(prefix, values, time, *, labels=None, keys=None, divisor=1):
    """Return a table of some rows; values are lists by ending, or one number for a single row.

    Any metric will do for a column: what meaning adds is none of the schema.
    """
    labels = labels or OF_PORT[prefix]
    keys = [KEYS[prefix]] if keys is None else keys
    schema = next(one for one in SCHEMAS if (one.prefix, one.labels) == (prefix, labels))
    some = next(iter(schema.metrics.values()))
    columns = {
        ending: Column(schema.metrics.get(ending, some), cells if isinstance(cells, list) else [cells], divisor=divisor)
        for ending, cells in values.items()
    }
    return Table(schema, Rows(labels, keys, {}), columns, time)


def run_step(memory, *tables):
    return port_states.step(memory, tables, HOST, max(one.time for one in tables))


def course(prefix, readings, **options):
    """Return the states after each reading, ten seconds apart."""
    memory = PortStateMemory()
    return [run_step(memory, table(prefix, values, 10.0 * place, **options)) for place, values in enumerate(readings)]


def kinds(states):
    return [one.kind for one in states]


# --- one table of thresholds, which is that of the alerts


@pytest.mark.parametrize("rule", [one for one in RULES if one.alert], ids=lambda one: f"{one.prefix}{one.kind}")
def test_thresholds_and_windows_are_those_of_the_alerts(rule):
    groups = yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"]
    direction = {"received": "receive", "sent": "transmit"}.get(rule.kind.rpartition("_")[2])
    expressions = [
        " ".join(one["expr"].split())
        for group in groups
        for one in group["rules"]
        if one.get("alert") == rule.alert
        and one["labels"]["layer"] == LAYERS[rule.prefix]
        and one["labels"].get("direction", "") in (direction, one["labels"].get("direction", ""))
    ]
    if direction:
        expressions = [one for one in expressions if f"_{direction}_" in one]
    minutes = f"{rule.window / 60:.0f}m"
    number = f"{rule.threshold:f}".rstrip("0").rstrip(".")
    wanted = {
        Form.LEVEL: [rf"fabric_\w+{rule.ways[0][0]}\[\w+\]\)", rf"== {number}\b"],
        Form.RISE: [rf"(> 0|>= {number})\b", rf"(\[{minutes}\]|offset {minutes})", rule.ways[0][0]],
    }.get(rule.form, [rf"> {number}\b", rf"\[{minutes}\]"])
    if rule.form in (Form.SHARE, Form.TIME):
        wanted += [rf"{rule.prefix}{ending}\[{minutes}\]" for way in rule.ways for ending in way]
    if rule.base:
        wanted.append(rf"{rule.prefix}{rule.base}\[{minutes}\]\) > {MIN_PACKETS_PER_SECOND:.0f}\b")
    assert [one for one in expressions if all(re.search(part, one) for part in wanted)] != [], (expressions, wanted)


def test_states_and_cause_rules_match():
    assert {one.kind for one in RULES} | {POWER_LOW, TOO_HOT} == {one.kind for one in PORT_RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda one: f"{one.prefix}{one.kind}")
def test_columns_of_rules_exist_in_sources(rule):
    schemas = [*SCHEMAS, *oversubscription.SCHEMAS.values()]
    endings = {ending for schema in schemas if schema.prefix == rule.prefix for ending in schema.metrics}
    wanted = {ending for way in rule.ways for ending in way} | {rule.base, *rule.unless} - {""}
    if rule.form is Form.FILL:  # made of counters
        wanted = {ending.replace("_bytes_per_second", "_bytes_total") for ending in wanted - {rule.base}} | {rule.base}
        wanted -= {""}
    assert wanted - endings == set()


# --- levels


@pytest.mark.parametrize("prefix", [RDMA, NIC, SWITCH, IB])
def test_a_link_is_down_only_if_it_was_up_before(prefix):
    states = course(prefix, [{"link_up": one} for one in (0, 1, 0, 0, 1, 0)])
    assert [kinds(one) for one in states] == [[], [], ["link_down"], ["link_down"], [], ["link_down"]]
    assert [(one.since, one.number) for (one,) in (states[2], states[3], states[5])] == [(20, 1), (20, 1), (50, 2)]


def test_ports_are_named_by_host_or_switch():
    assert [run_step(PortStateMemory(), table(PCI, {"link_degraded": 1}, 1.0))[0].port] == [
        PortLocation("a1", "0000:0a:00.0")
    ]
    found = {
        one: run_step(PortStateMemory(), table(one, {"link_degraded": 1}, 1.0))[0].port
        for one in (RDMA, NIC, SWITCH, IB)
    }
    assert found == {
        RDMA: PortLocation("a1", "mlx5_0:1"),
        NIC: PortLocation("a1", "ens1"),
        SWITCH: PortLocation("leaf1", "swp3"),
        IB: PortLocation("aa", "7"),
    }


def test_ports_of_rows_are_kept_while_rows_are_read_and_no_longer(monkeypatch):
    """Label values come from devices: what is kept of them has a bound and an end."""
    monkeypatch.setattr(port_states, "MAX_PORTS", 3)
    memory = PortStateMemory()

    def named(time, *devices):
        keys = [(device,) for device in devices]
        states = run_step(memory, table(NIC, {"link_degraded": [1] * len(keys)}, time, keys=keys))
        assert [one.port.port for one in states if one.since == time or one.port.port in devices] == list(devices)
        return {key: ports for ports in memory.ports.values() for key in ports}

    first = named(1.0, "ens1", "ens2")
    location = memory.ports[("device",), HOST]["ens1",][0]
    assert first.keys() == {("ens1",), ("ens2",)}
    assert named(2.0, "ens1").keys() == {("ens1",)}
    assert memory.ports[("device",), HOST]["ens1",][0] is location, "the same object as in the step before"
    assert named(3.0, *(f"ens{number}" for number in range(1, 6))).keys() == {("ens1",), ("ens2",), ("ens3",)}


def test_an_administratively_down_port_is_not_a_state():
    memory = PortStateMemory()
    assert run_step(memory, table(SWITCH, {"link_up": 1, "admin_up": 1}, 0.0)) == []
    assert run_step(memory, table(SWITCH, {"link_up": 0, "admin_up": 0}, 10.0)) == []
    assert kinds(run_step(memory, table(SWITCH, {"link_up": 0, "admin_up": 1}, 20.0))) == ["link_down"]


def test_a_degraded_link_ends_at_once():
    states = course(NIC, [{"link_degraded": one} for one in (None, 1, 1, 0)])
    assert [kinds(one) for one in states] == [[], ["link_degraded"], ["link_degraded"], []]


def test_a_degraded_pcie_link_has_its_own_state():
    assert kinds(run_step(PortStateMemory(), table(PCI, {"link_degraded": 1}, 1.0))) == ["pcie_degraded"]


# --- time, shares and rises


def paused(shares, *, way="receive", prefix=NIC, divisor=1_000_000):
    """Return counters of paused microseconds, ten seconds apart, for shares of each interval."""
    total, found = 0, [0]
    for share in shares:
        total += round(share * 10 * divisor)
        found.append(total)
    return [{f"{way}_paused_seconds_total": one} for one in found]


@pytest.mark.parametrize(("way", "name"), [("receive", "received"), ("transmit", "sent")])
def test_pauses_and_storms_by_direction(way, name):
    calm, some, storm = (course(NIC, paused([one] * 6, way=way), divisor=1_000_000)[-1] for one in (0.09, 0.2, 0.9))
    assert calm == []
    assert [(one.kind, pytest.approx(one.value)) for one in some] == [(f"paused_{name}", 0.2)]
    assert kinds(storm) == [f"pause_storm_{name}"]  # the stronger state only


def test_the_first_reading_and_a_reset_give_no_state():
    readings = [{"receive_paused_seconds_total": one} for one in (9_000_000, 1_000_000, 1_100_000)]
    assert course(NIC, readings, divisor=1_000_000) == [[], [], []]


def test_counting_continues_after_a_reset():
    states = course(RDMA, [{"link_down_total": one} for one in (5, 0, 3)])
    assert [kinds(one) for one in states] == [[], [], ["link_flapping"]]


def test_counting_continues_after_a_missing_value():
    states = course(RDMA, [{"link_down_total": one} for one in (None, 0, None, 5, 8)])
    assert [kinds(one) for one in states] == [[], [], [], [], ["link_flapping"]]
    full = {"receive_bytes_per_second": 49.0, "link_speed_bytes_per_second": 50.0, "transmit_bytes_per_second": 1.0}
    states = course(RDMA, [full, full, dict.fromkeys(full), full, full])
    assert [kinds(one) for one in states][1:3] == [["link_full"], ["link_full"]]


def test_a_row_needs_all_counters_of_a_set():
    rows = [
        {
            "packet_sequence_errors_total": 500 * one,
            "local_ack_timeouts_total": None,
            "transmit_packets_total": 10**6 * one,
        }
        for one in range(4)
    ]
    assert course(RDMA, rows)[-1] == []


def test_old_traffic_does_not_hide_a_state():
    states = course(NIC, paused([0.0] * 360 + [0.9] * 5), divisor=1_000_000)
    assert kinds(states[-1]) == ["paused_received"]  # 45 s of the last five minutes, after an hour without any


def test_a_state_ends_after_a_minute_and_may_begin_again():
    states = course(NIC, paused([0.9] * 3 + [0.0] * 7 + [0.9] * 12), divisor=1_000_000)
    shown = [{(one.since, one.number) for one in found} for found in states]
    assert shown[0] == set()
    assert shown[1] == shown[8] == {(10.0, 1)}  # the last pause was at 30
    assert shown[9] == shown[10] == set()
    assert {number for _, number in shown[-1]} == {2}


def test_a_count_of_increases_is_quiet_two_minutes_after_the_last_one_until_the_next():
    """One each ten seconds, the last one at 20 s, and another at 200 s; the count covers ten minutes."""
    totals = [0, 1, 2, *[2] * 17, 3, 3]
    states = course(NIC, [{"fec_uncorrectable_blocks_total": one} for one in totals])
    assert [[one.quiet_since for one in found] for found in states] == [
        [],
        *[[None]] * 13,
        *[[20.0]] * 6,
        [None],
        [None],
    ]


def test_a_state_of_now_is_never_quiet():
    states = course(RDMA, [{"link_up": one} for one in (1, *[0] * 20)])
    assert [one.quiet_since for found in states for one in found] == [None] * 20


def test_one_busy_interval_is_not_a_state():
    states = course(NIC, paused([0.0] * 30 + [0.9]), divisor=1_000_000)
    assert states[-1] == []  # 9 s of 310: as the alert, which takes the mean of five minutes


def test_the_worst_priority_is_reported():
    labels, keys = ("device", "priority"), [("ens1", "3"), ("ens1", "5"), ("ens1", "6")]
    memory = PortStateMemory()
    for time, cells in ((0.0, [0, 0, None]), (10.0, [2, 4, None])):
        states = run_step(
            memory, table(NIC, {"receive_pfc_paused_seconds_total": cells}, time, labels=labels, keys=keys)
        )
    assert [(one.kind, one.value, one.detail, one.port) for one in states] == [
        ("paused_received", pytest.approx(0.4), "priority 5", PortLocation("a1", "ens1"))
    ]


def shared(prefix, counted, base, share, packets, seconds=40):
    """Return the kinds after counters increased by a share of packets for some seconds."""
    steps = range(0, seconds + 1, 10)
    return kinds(course(prefix, [{counted: round(share * packets * one), base: packets * one} for one in steps])[-1])


@pytest.mark.parametrize(
    ("prefix", "counted", "base", "kind", "threshold"),
    [
        (RDMA, "ecn_marked_packets_total", "receive_packets_total", "congestion_marks", 0.1),
        (SWITCH, "ecn_marked_packets_total", "transmit_packets_total", "congestion_marks", 0.1),
        (SWITCH, "congestion_discards_total", "transmit_packets_total", "discards", 0.0001),
        (SWITCH, "transmit_discards_total", "transmit_packets_total", "discards", 0.0001),
        (RDMA, "retransmitted_packets_total", "transmit_packets_total", "retransmissions", 0.0001),
        (RDMA, "cnp_handled_total", "transmit_packets_total", "slowed_by_cnp", 0.01),
        (NIC, "pci_buffer_overflows_total", "receive_packets_total", "buffer_overflows", 0.0001),
    ],
)
def test_shares_of_packets(prefix, counted, base, kind, threshold):
    assert shared(prefix, counted, base, threshold * 1.5, 1_000_000) == [kind]
    assert shared(prefix, counted, base, threshold * 0.9, 1_000_000) == []
    assert shared(prefix, counted, base, threshold * 1.5, 900) == []  # too few packets


def test_sequence_errors_and_timeouts_replace_missing_retransmissions():
    def shares_of(*endings):
        rows = [
            dict.fromkeys(endings, 100 * place) | {"transmit_packets_total": 1_000_000 * place} for place in range(4)
        ]
        found = [one for one in course(RDMA, rows)[-1] if one.kind == "retransmissions"]
        return [pytest.approx(one.value) for one in found]

    both = ("packet_sequence_errors_total", "local_ack_timeouts_total")
    assert shares_of(*both) == [0.0002]
    assert shares_of(*both[:1]) == []  # as the alert, which needs both


@pytest.mark.parametrize(("ratio", "found"), [(1.04, []), (4.0, ["oversubscribed"])])
def test_a_leaf_that_is_oversubscribed_is_a_state_of_the_whole_switch(ratio, found):
    schema = oversubscription.SCHEMAS[SWITCH]
    column = Column(schema.metrics["oversubscription_ratio"], [ratio])
    states = run_step(
        PortStateMemory(), Table(schema, Rows(("switch",), [("leaf-1",)], {}), {"oversubscription_ratio": column}, 0.0)
    )
    assert kinds(states) == found
    assert {one.port for one in states} <= {PortLocation("leaf-1", "")}


def test_a_request_without_acknowledgement_is_a_state_for_two_minutes():
    rows = [{"local_ack_timeouts_total": count} for count in (5, 6, *[6] * 30)]
    found = [kinds(states) for states in course(RDMA, rows)]
    assert found[1:13] == [["ack_timeouts"]] * 12
    assert found[-1] == []


def test_more_marks_than_packets_give_no_state():
    assert shared(RDMA, "ecn_marked_packets_total", "receive_packets_total", 1.5, 1_000_000) == []


def test_retransmissions_at_the_end_of_a_job_are_not_a_state():
    readings = [
        {
            "retransmitted_packets_total": 1000 * one,
            "transmit_packets_total": 1_000_000 * one,
            "requester_completion_errors_total": min(one, 2),
        }
        for one in range(5)
    ]
    assert course(RDMA, readings) == [[]] * 5


def test_uncorrectable_blocks_unless_the_link_came_up():
    lost = [{"fec_uncorrectable_blocks_total": one, "carrier_changes_total": 4} for one in (5, 5, 6, 6)]
    assert [kinds(one) for one in course(NIC, lost)] == [[], [], ["fec_uncorrectable"], ["fec_uncorrectable"]]
    trained = [one | {"carrier_changes_total": 4 + 2 * place} for place, one in enumerate(lost)]
    assert course(NIC, trained) == [[]] * 4


def test_a_link_flaps_from_the_third_change_on():
    downs = (0, 1, 1, 2, 3, 3)
    states = course(RDMA, [{"link_down_total": one} for one in downs])
    assert [kinds(one) for one in states] == [[], [], [], [], ["link_flapping"], ["link_flapping"]]
    late = course(RDMA, [{"link_down_total": one} for one in (0, 1, *[1] * 95, 2, 3)])
    assert late[-1] == []  # the first was a quarter of an hour ago


def test_a_link_is_full_by_speed_or_expected_speed():
    def full(rate, **speeds):
        row = {"transmit_bytes_per_second": rate, "receive_bytes_per_second": 1.0, **speeds}
        return [(one.kind, pytest.approx(one.value)) for one in course(NIC, [row] * 3)[-1]]

    assert full(45.0, link_speed_bytes_per_second=50.0) == [("link_full", 0.9)]
    assert full(39.0, link_speed_bytes_per_second=50.0) == []
    # A shaper limits it to a tenth, which is configured as expected.
    assert full(4.9, link_speed_bytes_per_second=50.0, link_expected_speed_bytes_per_second=5.0) == [
        ("link_full", 0.98)
    ]
    assert full(45.0) == []


def test_a_port_limited_by_the_kernel_is_a_state():
    def held(rate):
        row = {"transmit_bytes_per_second": rate, "link_speed_bytes_per_second": 1e9}
        return [one.kind for one in course(NIC, [row | {"transmit_rate_limit_bytes_per_second": 12.5e6}] * 3)[-1]]

    assert (held(12e6), held(9e6)) == (["rate_limited"], [])
    drops = [{"transmit_queue_drops_total": one} for one in (0, 60, 99, 200)]
    assert [kinds(one) for one in course(NIC, drops)] == [[], [], [], ["queue_drops"]]


# --- optics


def test_modules_are_compared_with_their_own_thresholds():
    limits = table(
        NIC,
        {
            "module_threshold_temperature_celsius": [70.0, None],
            "module_threshold_receive_power_watts": [None, 0.0001],
        },
        1.0,
        labels=("device", "level"),
        keys=[("ens1", "high_alarm"), ("ens1", "low_alarm")],
    )
    hot = table(NIC, {"module_temperature_celsius": 71.0}, 1.0)
    lanes = table(
        NIC,
        {
            "module_lane_receive_power_watts": [0.001, 0.00005, 0.00002, 0.0],
            "module_lane_bias_amperes": [0.007, 0.007, 0.007, 0.0],
        },
        1.0,
        labels=("device", "lane"),
        keys=[("ens1", lane) for lane in "1234"],  # the laser of the last is off
    )
    assert [(one.kind, one.value, one.detail) for one in run_step(PortStateMemory(), limits, hot, lanes)] == [
        ("optics_hot", 71.0, ""),
        ("optics_power_low", 0.00002, "lane 3"),
    ]
    assert run_step(PortStateMemory(), hot, lanes) == []


# --- what is not read any more


def test_a_port_that_is_no_longer_read_has_no_states():
    memory = PortStateMemory()
    run_step(memory, table(RDMA, {"link_degraded": 1, "link_down_total": 0}, 0.0))
    assert kinds(port_states.step(memory, [], HOST, 60.0)) == ["link_degraded"]  # one poll failed
    assert port_states.step(memory, [], HOST, 121.0) == []
    assert not memory.histories
    assert not memory.meters


def test_a_table_without_a_new_reading_changes_nothing():
    memory = PortStateMemory()
    for time, total in ((0.0, 0), (10.0, 9_000_000), (10.0, 9_000_000), (10.0, 9_000_000)):
        states = run_step(memory, table(NIC, {"receive_paused_seconds_total": total}, time, divisor=1_000_000))
    assert [(one.kind, one.since) for one in states] == [("pause_storm_received", 10.0)]


def test_a_bad_row_does_not_affect_others():
    keys = [("mlx5_0", "1"), ("mlx5_1", "1")]
    memory = PortStateMemory()
    for time, cells in ((0.0, [None, 0]), (10.0, [3, 3])):
        states = run_step(memory, table(RDMA, {"link_down_total": cells}, time, keys=keys))
    assert [one.port.port for one in states] == ["mlx5_1:1"]


def test_states_are_events_of_causes():
    memory = PortStateMemory()
    run_step(memory, table(RDMA, {"link_up": 1}, 100.0))
    (state,) = run_step(memory, table(RDMA, {"link_up": 0}, 110.0))
    judgement = Judgement(Verdict.HANG, [Suspect("3", 1.0, 1.0)])
    shown = Symptom(judgement, 150.0, {"3": Rank(HOST, ("mlx5_0:1",))})
    found = causes(shown, [Event(state.kind, state.port, state.since, state.value, state.detail)], Fabric())
    assert [(one.kind, one.port) for one in found] == [("link_down", PortLocation("a1", "mlx5_0:1")), ("process", None)]
    assert "it began 40 s before the symptom was reported" in found[0].reasons
