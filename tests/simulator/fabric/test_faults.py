"""Faults as they are written, when they are there, and what several of them make together."""

import math

import pytest

from exporter.simulator.fabric.fault_table import KINDS, Place
from exporter.simulator.fabric.faults import Fault, Plan, parse_fault, targets
from exporter.simulator.fabric.topology import Shape, Topology

CLUSTER = Topology(Shape())


def parse(text):
    return parse_fault(text, CLUSTER)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("tcp", Fault("tcp")),
        ("pause-storm", Fault("pause-storm", "gpu-002/4")),
        ("pause-storm:gpu-003", Fault("pause-storm", "gpu-003")),
        ("link-down:leaf-02/spine-04@90s", Fault("link-down", "leaf-02/spine-04", 90.0)),
        ("late-rank:17@1m30s-5m", Fault("late-rank", "17", 90.0, 300.0)),
        ("broker-gone@0-500ms", Fault("broker-gone", "", 0.0, 0.5)),
    ],
)
def test_a_fault_has_a_name_a_target_and_times(text, fault):
    assert parse(text) == fault


@pytest.mark.parametrize("name", KINDS)
def test_each_fault_has_a_valid_default_target(name):
    found = parse(name)
    valid = targets(KINDS[name].place, CLUSTER)
    assert found.target in (valid or ("",))
    assert parse(f"{name}:{found.target}@5s" if valid else f"{name}@5s").target == found.target


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fire", "'fire' is not a fault; expected NAME[:TARGET][@START[-END]] with one of degraded-link, link-down, "),
        ("", "'' is not a fault; expected NAME"),
        (
            "pause-storm:",
            "pause-storm is at an adapter, HOST/RAIL, or HOST for all its adapters; expected one of gpu-001,",
        ),
        ("pause-storm:gpu-009", "expected one of gpu-001, gpu-002, gpu-003, gpu-004, gpu-001/0, "),
        ("pause-storm:gpu-001/8", "'pause-storm:gpu-001/8': pause-storm is at an adapter"),
        ("spine-gone:leaf-01", "spine-gone is at a spine; expected one of spine-01, spine-02, spine-03, spine-04"),
        ("late-rank:32", "late-rank is at a rank; expected one of 0, 1, "),
        ("tcp:gpu-001", "'tcp:gpu-001': tcp is at no target; leave out ':gpu-001'"),
        ("tcp@soon", "'tcp@soon': time 'soon': expected a duration with its unit, such as 500ms, 5s or 1m30s"),
        ("tcp@5", "'tcp@5': time '5': expected a duration with its unit"),
        ("tcp@", "'tcp@': time '': expected a duration"),
        ("tcp@5s-", "'tcp@5s-': time '': expected a duration"),
        ("tcp@9s-5s", "'tcp@9s-5s': it ends at 5s and begins at 9s; expected an end after the start"),
    ],
)
def test_an_invalid_fault_gives_one_error_with_the_valid_ones(text, expected):
    with pytest.raises(ValueError) as raised:
        parse(text)
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)


def test_all_names_are_in_the_error_of_an_unknown_one():
    with pytest.raises(ValueError) as raised:
        parse("pause_storm")
    assert all(name in str(raised.value) for name in KINDS)


def test_the_default_target_of_another_cluster_may_be_invalid():
    with pytest.raises(ValueError) as raised:
        parse_fault("late-rank", Topology(Shape(pods=1, hosts=1, rails=4)))
    assert "expected one of 0, 1, 2, 3" in str(raised.value)


def changes(fault, until):
    plan, time, found = Plan([fault], CLUSTER), 0.0, []
    while time < until:
        found.append((time, bool(plan.active(time))))
        time = plan.next_change(time)
    return found


def test_a_fault_is_there_from_its_start_to_its_end():
    assert changes(parse("tcp@10s-30s"), 100) == [(0.0, False), (10.0, True), (30.0, False)]
    assert Plan([parse("tcp@10s-30s")], CLUSTER).next_change(30) == math.inf


def test_a_flapping_link_is_down_for_5_of_each_20_seconds_until_its_end():
    expected = [(0.0, False), (10.0, True), (15.0, False), (30.0, True), (35.0, False), (50.0, True), (52.0, False)]
    assert changes(parse("flapping-link@10s-52s"), 200) == expected


def test_a_restart_ends_by_itself():
    assert changes(parse("switch-rebooted@10s"), 100) == [(0.0, False), (10.0, True), (40.0, False)]


def test_without_faults_nothing_is_wrong_and_nothing_changes():
    plan = Plan([], CLUSTER)
    assert plan.next_change(0.0) == math.inf
    assert plan.conditions(0.0).cables == {}
    assert plan.cabling(0.0) is CLUSTER


def test_of_two_faults_at_one_place_the_worse_value_holds():
    faults = [parse("dirty-optic:gpu-001/3"), parse("degraded-link:gpu-001/3"), parse("symbol-errors:gpu-001/3")]
    state = Plan(faults, CLUSTER).conditions(0.0).cable(CLUSTER.access(CLUSTER.adapter("gpu-001", 3)))
    assert (state.speed, state.loss_down, state.loss_up) == (0.25, 2e-4, 1e-4)
    storms = Plan([parse("pause-storm:gpu-001/3"), parse("short-pauses:gpu-001")], CLUSTER).conditions(0.0)
    states = [storms.adapter(adapter) for adapter in CLUSTER.adapters("gpu-001")]
    assert [state.storm for state in states] == [0, 0, 0, 0.6, 0, 0, 0, 0]
    assert {state.pausing for state in states} == {0.125}


def test_links_of_what_does_not_run_are_down():
    conditions = Plan([parse("spine-gone:spine-02"), parse("missing-port:gpu-004/1")], CLUSTER).conditions(0.0)
    down = [cable for cable in CLUSTER.cables if not conditions.cable(cable).up]
    assert down == [
        CLUSTER.access(CLUSTER.adapter("gpu-004", 1)),
        *(CLUSTER.uplink(leaf, "spine-02") for leaf in CLUSTER.leaves),
    ]


def test_the_table_has_the_faults_that_a_cluster_can_have():
    assert len(KINDS) == 28
    assert {kind.place for kind in KINDS.values()} == set(Place)
