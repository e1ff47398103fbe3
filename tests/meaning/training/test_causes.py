"""Causes: which port, or what else, is put first behind a verdict, and what is said of it.

The job is one of 16 ranks on four hosts of four, a host's first rank on its first adapter and so on; two hosts hang on
each of two leaves, which a spine joins.
"""

from typing import NamedTuple

import pytest

from exporter.meaning.ports.states import PortLocation
from exporter.meaning.training.cause_rules import LOG_RULES, PORT_RULES, RULES
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
    heard=frozenset(HOSTS),
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


# --- forty faults that were reported in public


class Case(NamedTuple):
    """A report: what the job shows, what ports and logs tell, and the cause that must come first."""

    shows: Symptom
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

WITHOUT = {
    17: "a setting of the PCIe device; no port tells, only a measured baseline does",
    18: "pairs of nodes in a benchmark; nothing of a job or a port",
    22: "kernels that overlap; not to be told from times alone",
    23: "its cause was never found",
    26: "limits of the network by the number of nodes; a benchmark's table only",
    35: "not explained; a benchmark's table only",
    39: "a wish",
    40: "a fault within NCCL, in operations that it does not count",
}
"""Reports that leave no trace in ports or logs, and why."""


def test_each_report_has_a_case_or_a_reason():
    assert sorted([*CASES, *WITHOUT]) == list(range(1, 41))


@pytest.mark.parametrize("number", CASES)
def test_the_cause_of_a_report_comes_first(number):
    case = CASES[number]
    found = causes(case.shows, case.events, FABRIC)
    assert named(found)[0] == (case.kind, case.port)
    assert found[0].evidence
    assert found[0].remedy


# --- kind


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda one: one.kind)
def test_each_rule_can_cause_something_and_says_what_to_do(rule):
    assert 0 < max(rule.slow, rule.hang, rule.late) <= 1
    assert min(rule.slow, rule.hang, rule.late) >= 0
    assert rule.late <= max(rule.slow, rule.hang)  # ports make a rank late only by what they do to transfers
    assert ("{value}" in rule.says) == bool(rule.shown)
    assert rule.remedy.endswith(".")


def test_no_kind_has_two_rules():
    assert len(RULES) == len(PORT_RULES) + len(LOG_RULES)


def test_what_cannot_hang_a_job_is_no_cause_of_it():
    assert causes(STUCK, [event("congestion_marks", value=0.5)], FABRIC)[0].kind == "unknown"
    assert causes(SLOW, [event("congestion_marks", value=0.5)], FABRIC)[0].kind == "congestion_marks"


def test_events_of_other_kinds_are_passed_over():
    assert causes(SLOW, [event("eaten_by_mice")], FABRIC)[0].kind == "unknown"


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
    assert cause.confidence == 0.95  # however much there is
    assert "rank 0 of the job use" in cause.reasons[0]


def test_more_kinds_of_evidence_are_worth_more_and_the_same_told_twice_is_not():
    (one,) = causes(SLOW, [event("symbol_errors", value=50)], FABRIC)
    (twice,) = causes(SLOW, [event("symbol_errors", value=50), event("symbol_errors", port="ens0", value=50)], FABRIC)
    (two,) = causes(SLOW, [event("symbol_errors", value=50), event("optics_hot", value=80)], FABRIC)
    assert one.confidence == twice.confidence == pytest.approx(0.6)
    assert two.confidence == pytest.approx(1 - 0.4 * 0.6)


def test_a_switch_port_leads_to_the_ranks_behind_it():
    (cause,) = causes(SLOW, [event("fec_uncorrectable", "leaf2", "b1-3", value=7)], FABRIC)
    assert "leaf2 b1-3 leads to b1 mlx5_3:1: rank 11 of the job" in cause.reasons[0]
    assert cause.evidence == ("leaf2 b1-3: its error correction could not mend 7 blocks within 10 minutes",)


def test_a_port_of_no_rank_counts_little():
    storage = causes(SLOW, [event("link_degraded", port="mlx5_9:1")], FABRIC)
    assert [(one.kind, one.word) for one in storage] == [("link_degraded", "possible")]
    assert "none uses this port" in storage[0].reasons[0]
    foreign = [event("link_degraded", "c1"), event("link_degraded", "leaf1", "c1-0"), event("link_down", "d1")]
    assert causes(SLOW, foreign, FABRIC)[0].kind == "unknown"


def test_where_ports_of_ranks_are_not_known_all_of_their_host_may_be_meant():
    placed = {name: rank._replace(ports=()) for name, rank in RANKS.items()}
    (cause,) = causes(symptom(Verdict.NETWORK, placed=placed), [event("link_degraded")], FABRIC)
    assert cause.confidence == pytest.approx(0.7)
    assert "which ports they use is not known" in cause.reasons[0]


def test_an_uplink_carries_a_part_where_the_job_spans_leaves():
    events = [event("link_degraded", "leaf1", "up")]
    (cause,) = causes(SLOW, events, FABRIC)
    assert (cause.port, cause.peer) == (PortLocation("leaf1", "up"), PortLocation("spine1", "leaf1"))
    assert cause.confidence == pytest.approx(0.5)
    one_leaf = {name: rank for name, rank in RANKS.items() if rank.host in ("a1", "a2")}
    assert causes(symptom(Verdict.NETWORK, placed=one_leaf), events, FABRIC)[0].kind == "unknown"
    assert causes(SLOW, [event("link_degraded", "leaf3", "up")], FABRIC)[0].kind == "unknown"


def test_a_port_must_be_on_the_way_of_all_communicators_that_are_slow():
    shown = symptom(Verdict.NETWORK, slow=RAILS[:1], fine=RAILS[1:])
    first, second = (event("link_degraded", "b1", f"mlx5_{rail}:1") for rail in (0, 1))
    (cause,) = causes(shown, [first, second], FABRIC)
    assert cause.port == PortLocation("b1", "mlx5_0:1")
    assert "1 of 1 communicators that are slow" in cause.reasons[1]
    both = symptom(Verdict.NETWORK, slow=RAILS[:2], fine=RAILS[2:])
    assert [one.confidence for one in causes(both, [first, second], FABRIC)] == [0.5, 0.5]


def test_what_those_share_that_are_not_slow_is_less_likely():
    whole = event("gdr_off", port="")
    (alone,) = causes(symptom(Verdict.NETWORK, slow=RAILS), [whole], FABRIC)
    (shared,) = causes(symptom(Verdict.NETWORK, slow=RAILS[:1], fine=RAILS[1:]), [whole], FABRIC)
    assert (alone.confidence, shared.confidence) == (pytest.approx(0.9), pytest.approx(0.45))
    assert "and of 3 of 3 that are not" in shared.reasons[1]


# --- pauses spread


def test_who_sends_pauses_comes_before_who_is_stopped_by_them():
    stopped = event("pause_storm_received", value=0.8)
    sender = event("pause_storm_sent", "d1", "mlx5_2:1", value=0.9)  # of no job's host, behind another leaf
    found = causes(SLOW, [stopped, sender], FABRIC)
    assert named(found) == [("pause_storm_sent", PortLocation("d1", "mlx5_2:1")), ("pause_storm_received", A1)]
    assert causes(SLOW, [sender], FABRIC)[0].kind == "unknown"  # nothing of the job is hit


def test_what_a_switch_is_stopped_by_is_what_the_host_sends():
    by_switch = causes(SLOW, [event("pause_storm_received", "leaf2", "b2-1", value=0.9)], FABRIC)
    assert named(by_switch) == [("pause_storm_sent", PortLocation("b2", "mlx5_1:1"))]
    by_both = [event("pause_storm_received", "leaf2", "b2-1"), event("pause_storm_sent", "b2", "mlx5_1:1")]
    assert named(causes(SLOW, by_both, FABRIC)) == named(by_switch)
    spine = causes(SLOW, [event("pause_storm_received", "leaf1", "up", value=0.9)], FABRIC)
    assert named(spine) == [("pause_storm_received", PortLocation("leaf1", "up"))]  # between switches nobody is a host


def test_only_what_spreads_comes_from_elsewhere():
    events = [
        event("pause_storm_received", value=0.8),
        event("link_degraded", "d1"),
        event("discards", "c1", value=0.1),
    ]
    assert [one.kind for one in causes(SLOW, events, FABRIC)] == ["pause_storm_received"]


def test_of_two_hosts_without_a_switch_each_tells_for_itself():
    cable = Fabric(links=[(A1, PortLocation("a2", "mlx5_0:1"))])
    assert named(causes(SLOW, [event("paused_sent", value=0.3)], cable)) == [("paused_sent", A1)]


def test_a_host_behind_the_same_leaf_that_takes_less_than_it_is_sent_is_possible():
    (cause,) = causes(SLOW, [event("pause_storm_sent", "c1", "mlx5_2:1", value=0.9)], FABRIC)
    assert (cause.port.name, cause.word) == ("c1", "likely")
    assert "behind the same switch" in cause.reasons[0]


# --- time


@pytest.mark.parametrize(
    ("before", "began", "confidence"),
    [
        (30.0, 0.0, 1.0),
        (0.0, 0.0, 1.0),
        (-30.0, 0.0, 0.6),  # seen a little later, for its own delay
        (-60.0, 0.0, 0.6),
        (-61.0, 0.0, 0.2),  # a consequence
        (660.0, 0.0, 1.0),
        (661.0, 0.0, 0.4),  # eleven minutes without harm
        (3600.0, 0.0, 0.4),
        (3600.0, 9000.0, 0.7),  # there before the job
        (300.0, 9900.0, 1.0),
        (3600.0, None, 1.0),
    ],
)
def test_what_began_with_the_symptom_is_likelier_than_what_did_not(before, began, confidence):
    (cause,) = causes(symptom(Verdict.NETWORK, began=began), [event("link_degraded", before=before)], FABRIC)
    assert cause.confidence == pytest.approx(min(confidence, 0.95))


def test_the_order_in_time_orders_causes():
    early = event("symbol_errors", "b2", "mlx5_1:1", before=20, value=100)
    late = event("link_degraded", "b1", "mlx5_1:1", before=-300)
    assert [one.port.name for one in causes(SLOW, [late, early], FABRIC)] == ["b2", "b1"]


# --- ranks that are late, or went no further


def test_a_late_rank_without_evidence_computes():
    (cause,) = causes(symptom(Verdict.STRAGGLER, ["5"]), [], FABRIC)
    assert (cause.kind, cause.port, cause.word) == ("compute", None, "likely")
    assert cause.evidence == ("rank 5 on a2: 5 came last in 90 of 100 operations, which costs 0.2 s a second",)
    assert cause.reasons == ("no port of the job's hosts shows anything that explains it; 1 of 1 tell of their ports",)
    assert "GPU" in cause.remedy


def test_a_late_host_shares_something():
    (cause,) = causes(symptom(Verdict.STRAGGLER, ["4", "5"], ["a2"]), [], FABRIC)
    assert "all of a2 is late" in cause.evidence[1]
    assert "CPUs" in cause.remedy


def test_all_ranks_of_a_late_host_are_meant():
    shown = symptom(Verdict.STRAGGLER, ["4"], ["a2"])
    found = causes(shown, [event("pcie_degraded", "a2", "mlx5_3:1")], FABRIC)
    assert {one.kind: one.confidence for one in found} == {"compute": 0.5, "pcie_degraded": pytest.approx(0.5)}


def test_a_port_of_the_late_rank_stands_beside_computing():
    shown = symptom(Verdict.STRAGGLER, ["5"])
    own = [event("pcie_degraded", "a2", "mlx5_1:1"), event("link_degraded", "a2", "mlx5_1:1")]
    found = causes(shown, own, FABRIC)
    assert [one.kind for one in found] == ["pcie_degraded", "compute"]
    assert "rank 5 is blamed" in found[0].reasons
    assert found[1].reasons == ("ports show something, too: see the other causes",)
    others = [one._replace(port=PortLocation("b1", one.port.port)) for one in own]
    assert [one.kind for one in causes(shown, others, FABRIC)] == ["compute"]


def test_a_rank_that_is_late_inside_its_host_computes_whatever_ports_show():
    found = causes(symptom(Verdict.STRAGGLER, ["5"], inside=True), [event("link_down", "a2", "mlx5_1:1")], FABRIC)
    assert [(one.kind, one.confidence) for one in found] == [("compute", 0.9)]
    assert "no network between them" in found[0].reasons[0]


def test_a_hang_is_of_the_port_of_those_that_went_no_further():
    shown = symptom(Verdict.HANG, ["4", "5"])
    found = causes(shown, [event("link_down", "b1"), event("link_down", "a2", "mlx5_1:1")], FABRIC)
    assert [(one.kind, one.port and one.port.name) for one in found] == [
        ("link_down", "a2"),
        ("process", None),
        ("link_down", "b1"),
    ]


# --- nobody knows


def test_unknown_is_said_with_how_many_would_tell():
    (cause,) = causes(SLOW, [], FABRIC)
    assert (cause.kind, cause.word, cause.confidence) == ("unknown", "unknown", 0.0)
    assert cause.evidence == (
        "the slowest communicator has 30% of the bandwidth that it should have",
        "no port of the job's hosts shows anything that explains it; 4 of 4 tell of their ports",
    )


def test_silence_is_no_evidence():
    (some,) = causes(SLOW, [], Fabric(heard=frozenset({"a1"})))
    assert "1 of 4 tell of their ports" in some.evidence[1]
    (none,) = causes(SLOW, [], Fabric())
    assert "nothing is known of them" in none.evidence[1]


def test_a_job_of_which_no_place_is_known_is_no_error():
    assert causes(symptom(Verdict.NETWORK, placed={}), [event("link_down")], Fabric())[0].kind == "unknown"
    assert causes(symptom(Verdict.STRAGGLER, ["7"], placed={}), [], Fabric())[0].kind == "compute"


def test_values_are_shown_with_their_unit():
    events = [
        event("retransmissions", value=0.0004),
        event("optics_hot", value=71.5),
        event("paused_received", value=0.25, detail="priority 3"),
        event("link_full"),
    ]
    (cause,) = causes(SLOW, events, FABRIC)
    assert set(cause.evidence) == {
        "a1 mlx5_0:1: it sends 0.04% of its packets again",
        "a1 mlx5_0:1: its module has 71.5 degrees Celsius, more than its own alarm",
        "a1 mlx5_0:1: its peer stops it for 25% of the time (priority 3)",
        "a1 mlx5_0:1: it is an unknown share full",
    }


def test_the_list_is_bounded():
    events = [event("link_degraded", host, f"mlx5_{rail}:1") for host in HOSTS for rail in range(4)]
    assert len(causes(SLOW, events, FABRIC)) == 10


def test_the_page_about_causes_has_each_kind_with_its_weights():
    lines = (ROOT / "docs" / "causes.md").read_text().splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    weights = {row[0]: [float(one) for one in row[-3:]] for row in rows if len(row) > 3}
    assert weights == {one.kind: [one.slow, one.hang, one.late] for one in RULES.values()}
