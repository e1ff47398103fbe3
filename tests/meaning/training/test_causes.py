"""Causes: which port, or what else, is ranked first for a verdict, with evidence and reasons.

The job has 16 ranks, four on each of four hosts, one per adapter. Two hosts are connected to each of two leaves, which
a spine connects.
"""

from typing import NamedTuple

import pytest

from exporter.meaning.ports.states import PortLocation
from exporter.meaning.training.cause_rules import LOG_RULES, PORT_RULES, RULES, TRAFFIC_RULES
from exporter.meaning.training.causes import Symptom, causes
from exporter.meaning.training.paths import Event, Fabric, Rank
from exporter.meaning.training.stragglers import Suspect
from exporter.meaning.training.verdicts import Judgement, Verdict
from tests.helpers.paths import ROOT

SYMPTOM_AT = 10_000.0
HOSTS = ("a1", "a2", "b1", "b2")
RANKS = {str(4 * place + gpu): Rank(host, (f"mlx5_{gpu}:1",)) for place, host in enumerate(HOSTS) for gpu in range(4)}
RAILS = [frozenset(str(4 * place + rail) for place in range(4)) for rail in range(4)]
LEAVES = {"a1": "leaf1", "a2": "leaf1", "b1": "leaf2", "b2": "leaf2", "c1": "leaf1", "d1": "leaf3"}
FABRIC = Fabric(
    links=[
        *(
            (PortLocation(host, f"mlx5_{rail}:1"), PortLocation(leaf, f"{host}-{rail}"))
            for host, leaf in LEAVES.items()
            for rail in range(4)
        ),
        *((PortLocation(leaf, "up"), PortLocation("spine1", leaf)) for leaf in ("leaf1", "leaf2", "leaf3")),
    ],
    same={
        PortLocation(host, f"ens{rail}"): PortLocation(host, f"mlx5_{rail}:1") for host in LEAVES for rail in range(4)
    }
    | {PortLocation("a1", "0000:0b:00.0"): PortLocation("a1", "mlx5_0:1")},
    reporting_hosts=frozenset(HOSTS),
    switches=frozenset({"leaf1", "leaf2", "leaf3", "spine1"}),
)


def event(kind, name="a1", port="mlx5_0:1", before=30.0, value=None, detail=""):
    return Event(kind, PortLocation(name, port), SYMPTOM_AT - before, value, detail)


def symptom(verdict, ranks=(), hosts=(), *, inside=False, **options):
    suspects = [Suspect(one, 0.2, 0.2, 90, 100, inside) for one in ranks]
    judgement = Judgement(verdict, suspects, hosts, compared=100, matched=1.0, loss=0.2, bandwidth=0.3)
    return Symptom(judgement, SYMPTOM_AT, options.pop("placed", RANKS), **options)


SLOW = symptom(Verdict.NETWORK)
STUCK = symptom(Verdict.HANG)


def named(found):
    return [(one.kind, one.port) for one in found]


# --- forty publicly reported faults


class Case(NamedTuple):
    """A reported fault: the symptom, the events of ports and logs, and the cause to be ranked first."""

    symptom: Symptom
    events: tuple[Event, ...]
    kind: str
    port: PortLocation | None


A1 = PortLocation("a1", "mlx5_0:1")
WHOLE = PortLocation("a1", "")
CASES = {
    1: Case(STUCK, (event("link_flapping", value=4), event("port_error")), "port_error", A1),
    2: Case(
        symptom(Verdict.HANG, ["0", "1", "2", "3"]),
        (event("port_error", port=""), event("peer_unreachable", "b1", "")),
        "port_error",
        WHOLE,
    ),
    3: Case(STUCK, (event("port_error", port="mlx5_3:1", before=600),), "port_error", PortLocation("a1", "mlx5_3:1")),
    4: Case(symptom(Verdict.HANG, ["0", "1", "2", "3"]), (event("adapter_fatal", port=""),), "adapter_fatal", WHOLE),
    5: Case(STUCK, (event("peer_unreachable"),), "peer_unreachable", A1),
    6: Case(STUCK, (event("short_timeout", port=""), event("discards", value=0.01)), "short_timeout", WHOLE),
    7: Case(
        SLOW,
        (event("discards", "leaf1", "a1-0", value=0.004), event("retransmissions", "b1", value=0.004)),
        "discards",
        PortLocation("leaf1", "a1-0"),
    ),
    8: Case(SLOW, (event("paused_sent", value=0.3),), "paused_sent", A1),
    9: Case(SLOW, (event("enhanced_connections", port=""),), "enhanced_connections", WHOLE),
    10: Case(SLOW, (), "unknown", None),
    11: Case(SLOW, (event("gdr_off"),), "gdr_off", A1),
    12: Case(SLOW, (event("gdr_too_far"),), "gdr_too_far", A1),
    13: Case(SLOW, (event("gdr_partly", port=""),), "gdr_partly", WHOLE),
    14: Case(SLOW, (event("gdr_off", port=""), event("proxied", port="")), "gdr_off", WHOLE),
    15: Case(STUCK, (event("memory_protection"), event("peer_unreachable", "a2")), "memory_protection", A1),
    16: Case(SLOW, (event("gdr_off", port=""), event("gdr_too_far")), "gdr_off", WHOLE),
    19: Case(SLOW, (event("adapter_shared", value=2),), "adapter_shared", A1),
    20: Case(symptom(Verdict.STRAGGLER, ["5"]), (), "compute", None),
    21: Case(symptom(Verdict.IMBALANCED), (event("link_degraded"),), "work", None),
    24: Case(SLOW, (event("adapters_unused", port="", value=3),), "adapters_unused", WHOLE),
    25: Case(SLOW, (event("wrong_provider", port=""),), "wrong_provider", WHOLE),
    27: Case(SLOW, (event("tcp_only", port=""), event("gdr_off", port="")), "tcp_only", WHOLE),
    28: Case(SLOW, (event("adapters_mixed", port=""),), "adapters_mixed", WHOLE),
    29: Case(SLOW, (event("adapters_mixed", port=""), event("link_full", value=0.9)), "adapters_mixed", WHOLE),
    30: Case(STUCK, (event("peer_unreachable", port=""),), "peer_unreachable", WHOLE),
    31: Case(STUCK, (event("path_not_made"),), "path_not_made", A1),
    32: Case(STUCK, (event("path_not_made"), event("peer_unreachable")), "path_not_made", A1),
    33: Case(SLOW, (event("failed_over", before=400), event("link_down", before=405)), "failed_over", A1),
    34: Case(SLOW, (event("link_full", value=0.99),), "link_full", A1),
    36: Case(SLOW, (event("proxied", port=""),), "proxied", WHOLE),
    37: Case(STUCK, (), "unknown", None),
    38: Case(symptom(Verdict.HANG, ["4", "5"]), (), "process", None),
}

NOT_COVERED = {
    17: "a setting of the PCIe device, visible only against a measured baseline",
    18: "pairs of nodes in a benchmark, neither a job nor a port",
    22: "overlapping kernels, not visible in durations",
    23: "its cause was never found",
    26: "limits of the network by the number of nodes; a benchmark's table only",
    35: "not explained; a benchmark's table only",
    39: "a feature request",
    40: "a bug of NCCL, in operations that it does not count",
}
"""Reported faults without events of ports or logs, with the reason."""


def test_each_report_has_a_case_or_a_reason():
    assert sorted([*CASES, *NOT_COVERED]) == list(range(1, 41))


@pytest.mark.parametrize("number", CASES)
def test_the_cause_of_a_reported_fault_is_ranked_first(number):
    case = CASES[number]
    found = causes(case.symptom, case.events, FABRIC)
    assert named(found)[0] == (case.kind, case.port)
    assert found[0].evidence
    assert found[0].remedy


# --- kind


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda one: one.kind)
def test_each_rule_has_a_weight_and_a_remedy(rule):
    assert 0 < max(rule.slow, rule.hang, rule.late) <= 1
    assert min(rule.slow, rule.hang, rule.late) >= 0
    assert rule.late <= max(rule.slow, rule.hang)  # ports delay a rank only through its transfers
    assert ("{value}" in rule.text) == bool(rule.value_format)
    assert rule.remedy.endswith(".")


def test_no_kind_has_two_rules():
    assert len(RULES) == len(PORT_RULES) + len(LOG_RULES) + len(TRAFFIC_RULES)


def test_an_event_that_cannot_hang_a_job_is_not_a_cause_of_a_hang():
    assert causes(STUCK, [event("congestion_marks", value=0.5)], FABRIC)[0].kind == "unknown"
    assert causes(SLOW, [event("congestion_marks", value=0.5)], FABRIC)[0].kind == "congestion_marks"


def test_events_of_unknown_kinds_are_ignored():
    assert causes(SLOW, [event("unknown_kind")], FABRIC)[0].kind == "unknown"


@pytest.mark.parametrize("verdict", [Verdict.FINE, Verdict.UNKNOWN])
def test_a_job_without_a_symptom_has_no_cause(verdict):
    assert causes(symptom(verdict), [event("link_down")], FABRIC) == []


# --- place


def test_both_ends_and_all_names_of_a_link_are_one_cause():
    events = [
        event("link_degraded"),
        event("link_degraded", port="ens0"),
        event("link_degraded", "leaf1", "a1-0"),
        event("pcie_degraded", port="0000:0b:00.0"),
        event("symbol_errors", "leaf1", "a1-0", value=50),
    ]
    (cause,) = causes(SLOW, events, FABRIC)
    assert (cause.kind, {cause.port, cause.peer}) == ("link_degraded", {A1, PortLocation("leaf1", "a1-0")})
    assert len(cause.evidence) == 5
    assert cause.confidence == 0.95  # the maximum
    assert "rank 0 of the job use" in cause.reasons[0]


def test_more_kinds_of_evidence_add_confidence_and_duplicates_do_not():
    (one,) = causes(SLOW, [event("symbol_errors", value=50)], FABRIC)
    (twice,) = causes(SLOW, [event("symbol_errors", value=50), event("symbol_errors", port="ens0", value=50)], FABRIC)
    (two,) = causes(SLOW, [event("symbol_errors", value=50), event("optics_hot", value=80)], FABRIC)
    assert one.confidence == twice.confidence == pytest.approx(0.6)
    assert two.confidence == pytest.approx(1 - 0.4 * 0.6)


def test_a_switch_port_leads_to_the_ranks_behind_it():
    (cause,) = causes(SLOW, [event("fec_uncorrectable", "leaf2", "b1-3", value=7)], FABRIC)
    assert "leaf2 b1-3 leads to b1 mlx5_3:1: rank 11 of the job" in cause.reasons[0]
    assert cause.evidence == ("leaf2 b1-3: 7 uncorrectable FEC blocks within 10 minutes",)


def test_a_port_that_no_rank_uses_has_little_weight():
    storage = causes(SLOW, [event("link_degraded", port="mlx5_9:1")], FABRIC)
    assert [(one.kind, one.word) for one in storage] == [("link_degraded", "possible")]
    assert "none uses this port" in storage[0].reasons[0]
    foreign = [event("link_degraded", "c1"), event("link_degraded", "leaf1", "c1-0"), event("link_down", "d1")]
    assert causes(SLOW, foreign, FABRIC)[0].kind == "unknown"


def test_if_ports_of_ranks_are_unknown_all_ports_of_the_host_are_possible():
    placed = {name: rank._replace(ports=()) for name, rank in RANKS.items()}
    (cause,) = causes(symptom(Verdict.NETWORK, placed=placed), [event("link_degraded")], FABRIC)
    assert cause.confidence == pytest.approx(0.7)
    assert "which ports they use is unknown" in cause.reasons[0]


def test_an_uplink_is_a_possible_cause_if_the_job_spans_leaves():
    events = [event("link_degraded", "leaf1", "up")]
    (cause,) = causes(SLOW, events, FABRIC)
    assert (cause.port, cause.peer) == (PortLocation("leaf1", "up"), PortLocation("spine1", "leaf1"))
    assert cause.confidence == pytest.approx(0.5)
    one_leaf = {name: rank for name, rank in RANKS.items() if rank.host in ("a1", "a2")}
    assert causes(symptom(Verdict.NETWORK, placed=one_leaf), events, FABRIC)[0].kind == "unknown"
    assert causes(SLOW, [event("link_degraded", "leaf3", "up")], FABRIC)[0].kind == "unknown"


def test_a_leaf_that_is_oversubscribed_is_a_cause_if_the_job_spans_leaves():
    events = [event("oversubscribed", "leaf1", "", value=4.0)]
    (cause,) = causes(SLOW, events, FABRIC)
    assert (cause.kind, cause.port) == ("oversubscribed", PortLocation("leaf1", ""))
    assert "its ports to hosts have 4 times the speed of its uplinks" in cause.evidence[0]
    one_leaf = {name: rank for name, rank in RANKS.items() if rank.host in ("a1", "a2")}
    assert causes(symptom(Verdict.NETWORK, placed=one_leaf), events, FABRIC)[0].kind == "unknown"
    assert causes(SLOW, [event("oversubscribed", "leaf3", "")], FABRIC)[0].kind == "unknown"


def test_a_port_must_be_on_the_path_of_all_slow_communicators():
    shown = symptom(Verdict.NETWORK, slow=RAILS[:1], fine=RAILS[1:])
    first, second = (event("link_degraded", "b1", f"mlx5_{rail}:1") for rail in (0, 1))
    (cause,) = causes(shown, [first, second], FABRIC)
    assert cause.port == PortLocation("b1", "mlx5_0:1")
    assert "1 of 1 communicators that are slow" in cause.reasons[1]
    both = symptom(Verdict.NETWORK, slow=RAILS[:2], fine=RAILS[2:])
    assert [one.confidence for one in causes(both, [first, second], FABRIC)] == [0.5, 0.5]


def test_an_event_that_fast_communicators_share_is_less_likely():
    whole = event("gdr_off", port="")
    (alone,) = causes(symptom(Verdict.NETWORK, slow=RAILS), [whole], FABRIC)
    (shared,) = causes(symptom(Verdict.NETWORK, slow=RAILS[:1], fine=RAILS[1:]), [whole], FABRIC)
    assert (alone.confidence, shared.confidence) == (pytest.approx(0.9), pytest.approx(0.45))
    assert "and of 3 of 3 that are not" in shared.reasons[1]


# --- pauses spread


def test_the_sender_of_pauses_is_ranked_before_the_paused_port():
    stopped = event("pause_storm_received", value=0.8)
    sender = event("pause_storm_sent", "d1", "mlx5_2:1", value=0.9)  # of no job's host, behind another leaf
    found = causes(SLOW, [stopped, sender], FABRIC)
    assert named(found) == [("pause_storm_sent", PortLocation("d1", "mlx5_2:1")), ("pause_storm_received", A1)]
    assert causes(SLOW, [sender], FABRIC)[0].kind == "unknown"  # no port of the job is affected


def test_pauses_received_by_a_switch_are_sent_by_the_host():
    by_switch = causes(SLOW, [event("pause_storm_received", "leaf2", "b2-1", value=0.9)], FABRIC)
    assert named(by_switch) == [("pause_storm_sent", PortLocation("b2", "mlx5_1:1"))]
    by_both = [event("pause_storm_received", "leaf2", "b2-1"), event("pause_storm_sent", "b2", "mlx5_1:1")]
    assert named(causes(SLOW, by_both, FABRIC)) == named(by_switch)
    spine = causes(SLOW, [event("pause_storm_received", "leaf1", "up", value=0.9)], FABRIC)
    assert named(spine) == [("pause_storm_received", PortLocation("leaf1", "up"))]  # a link between switches


def test_only_events_that_spread_are_causes_elsewhere():
    events = [
        event("pause_storm_received", value=0.8),
        event("link_degraded", "d1"),
        event("discards", "c1", value=0.1),
    ]
    assert [one.kind for one in causes(SLOW, events, FABRIC)] == ["pause_storm_received"]


def test_of_two_directly_connected_hosts_each_reports_its_own_pauses():
    cable = Fabric(links=[(A1, PortLocation("a2", "mlx5_0:1"))])
    assert named(causes(SLOW, [event("paused_sent", value=0.3)], cable)) == [("paused_sent", A1)]


def test_a_host_behind_the_same_leaf_that_sends_pauses_is_possible():
    (cause,) = causes(SLOW, [event("pause_storm_sent", "c1", "mlx5_2:1", value=0.9)], FABRIC)
    assert (cause.port.name, cause.word) == ("c1", "likely")
    assert "behind the same switch" in cause.reasons[0]


# --- time


@pytest.mark.parametrize(
    ("before", "began", "confidence"),
    [
        (30.0, 0.0, 1.0),
        (0.0, 0.0, 1.0),
        (-30.0, 0.0, 0.6),  # seen a little later, because of its own delay
        (-60.0, 0.0, 0.6),
        (-61.0, 0.0, 0.2),  # a consequence
        (660.0, 0.0, 1.0),
        (661.0, 0.0, 0.4),  # eleven minutes without effect
        (3600.0, 0.0, 0.4),
        (3600.0, 9000.0, 0.7),  # active before the job
        (300.0, 9900.0, 1.0),
        (3600.0, None, 1.0),
    ],
)
def test_an_event_that_began_with_the_symptom_is_likelier(before, began, confidence):
    (cause,) = causes(symptom(Verdict.NETWORK, began=began), [event("link_degraded", before=before)], FABRIC)
    assert cause.confidence == pytest.approx(min(confidence, 0.95))


def test_causes_are_ordered_by_time():
    early = event("symbol_errors", "b2", "mlx5_1:1", before=20, value=100)
    late = event("link_degraded", "b1", "mlx5_1:1", before=-300)
    assert [one.port.name for one in causes(SLOW, [late, early], FABRIC)] == ["b2", "b1"]


@pytest.mark.parametrize(
    ("verdict", "quiet", "confidence"),
    [
        (Verdict.NETWORK, None, 0.8),
        (Verdict.NETWORK, 60.0, 0.8),  # the verdict is given a minute after the begin of its symptom at the latest
        (Verdict.NETWORK, 61.0, 0.16),
        (Verdict.NETWORK, -300.0, 0.8),
        (Verdict.HANG, 240.0, 0.4),  # what is stuck stays so
    ],
)
def test_an_event_that_was_over_before_the_symptom_is_hardly_its_cause(verdict, quiet, confidence):
    lost = event("fec_uncorrectable", before=500.0, value=900)
    if quiet is not None:
        lost = lost._replace(quiet_since=SYMPTOM_AT - quiet)
    (cause,) = causes(symptom(verdict), [lost], FABRIC)
    assert cause.confidence == pytest.approx(confidence)


def test_blocks_that_were_lost_in_an_earlier_fault_are_behind_a_full_uplink():
    lost = event("fec_uncorrectable", "a2", before=500.0, value=900)._replace(quiet_since=SYMPTOM_AT - 480.0)
    full = event("link_full", "leaf1", "up", value=0.95)
    found = causes(SLOW, [lost, full], FABRIC)
    assert [one.kind for one in found] == ["link_full", "fec_uncorrectable"]
    assert "it was over 8 min before the symptom was reported" in found[1].reasons


# --- stragglers and hangs


def test_the_cause_of_a_late_rank_without_events_is_computing():
    (cause,) = causes(symptom(Verdict.STRAGGLER, ["5"]), [], FABRIC)
    assert (cause.kind, cause.port, cause.word) == ("compute", None, "likely")
    assert cause.evidence == ("rank 5 on a2: 5 came last in 90 of 100 steps, which costs 0.2 s per second",)
    assert cause.reasons == ("no port of the job's hosts has an event that explains it; 1 of 1 report their ports",)
    assert "GPU" in cause.remedy


def test_the_remedy_for_a_late_host_is_about_what_it_shares():
    (cause,) = causes(symptom(Verdict.STRAGGLER, ["4", "5"], ["a2"]), [], FABRIC)
    assert "all of a2 is late" in cause.evidence[1]
    assert "CPUs" in cause.remedy


def test_events_of_all_ports_of_a_late_host_count():
    shown = symptom(Verdict.STRAGGLER, ["4"], ["a2"])
    found = causes(shown, [event("pcie_degraded", "a2", "mlx5_3:1")], FABRIC)
    assert {one.kind: one.confidence for one in found} == {"compute": 0.5, "pcie_degraded": pytest.approx(0.5)}


def test_events_of_the_late_ranks_port_are_ranked_with_computing():
    shown = symptom(Verdict.STRAGGLER, ["5"])
    own = [event("pcie_degraded", "a2", "mlx5_1:1"), event("link_degraded", "a2", "mlx5_1:1")]
    found = causes(shown, own, FABRIC)
    assert [one.kind for one in found] == ["pcie_degraded", "compute"]
    assert "rank 5 is at fault" in found[0].reasons
    assert found[1].reasons == ("ports have events, too: see the other causes",)
    others = [one._replace(port=PortLocation("b1", one.port.port)) for one in own]
    assert [one.kind for one in causes(shown, others, FABRIC)] == ["compute"]


def test_the_cause_of_a_rank_late_within_its_host_is_computing():
    found = causes(symptom(Verdict.STRAGGLER, ["5"], inside=True), [event("link_down", "a2", "mlx5_1:1")], FABRIC)
    assert [(one.kind, one.confidence) for one in found] == [("compute", 0.9)]
    assert "no network between them" in found[0].reasons[0]


def test_the_cause_of_a_hang_is_at_the_port_of_the_ranks_that_stopped():
    shown = symptom(Verdict.HANG, ["4", "5"])
    found = causes(shown, [event("link_down", "b1"), event("link_down", "a2", "mlx5_1:1")], FABRIC)
    assert [(one.kind, one.port and one.port.name) for one in found] == [
        ("link_down", "a2"),
        ("process", None),
        ("link_down", "b1"),
    ]


# --- unknown


def test_an_unknown_cause_reports_how_many_hosts_report_their_ports():
    (cause,) = causes(SLOW, [], FABRIC)
    assert (cause.kind, cause.word, cause.confidence) == ("unknown", "unknown", 0.0)
    assert cause.evidence == (
        "the slowest communicator has 30% of the expected bandwidth",
        "no port of the job's hosts has an event that explains it; 4 of 4 report their ports",
    )


def test_missing_reports_are_not_evidence():
    (some,) = causes(SLOW, [], Fabric(reporting_hosts=frozenset({"a1"})))
    assert "1 of 4 report their ports" in some.evidence[1]
    (none,) = causes(SLOW, [], Fabric())
    assert "none of these hosts reports its ports" in none.evidence[1]


def test_a_job_without_known_locations_is_not_an_error():
    assert causes(symptom(Verdict.NETWORK, placed={}), [event("link_down")], Fabric())[0].kind == "unknown"
    assert causes(symptom(Verdict.STRAGGLER, ["7"], placed={}), [], Fabric())[0].kind == "compute"


def test_values_have_units():
    events = [
        event("retransmissions", value=0.0004),
        event("optics_hot", value=71.5),
        event("paused_received", value=0.25, detail="priority 3"),
        event("link_full"),
    ]
    (cause,) = causes(SLOW, events, FABRIC)
    assert set(cause.evidence) == {
        "a1 mlx5_0:1: it retransmits 0.04% of its packets",
        "a1 mlx5_0:1: its module has 71.5 degrees Celsius, above its high alarm",
        "a1 mlx5_0:1: its peer pauses it for 25% of the time (priority 3)",
        "a1 mlx5_0:1: its utilization is an unknown share",
    }


def test_the_number_of_causes_is_bounded():
    events = [event("link_degraded", host, f"mlx5_{rail}:1") for host in HOSTS for rail in range(4)]
    assert len(causes(SLOW, events, FABRIC)) == 10


def test_the_documentation_lists_each_kind_with_its_weights():
    lines = (ROOT / "docs" / "causes.md").read_text().splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    weights = {row[0]: [float(one) for one in row[-3:]] for row in rows if len(row) > 3}
    assert weights == {one.kind: [one.slow, one.hang, one.late] for one in RULES.values()}
