"""The first screen of the dashboard of training jobs: what delays each, where, and since when."""

from alert_tables import HIDDEN, IN_WORDS, firing, hidden
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.common import BigValueTextMode
from panels import ANY, ANY_WARNS, EIGHTH, Limits, Panel, Query, lines, meaning, number, steps
from tables import Column, table_of
from training_causes import FOUND, ROW, first_causes, hosts, places, rails, since, switches
from training_joins import (
    BANDWIDTH_NOW,
    CRITICAL_ALERTED,
    FAULTY,
    JOBS,
    LATE,
    LOST_GPUS,
    LOW,
    LOW_RATE,
    SINCE,
    SLOWER,
    TIME_OVER_BEST,
    UNMEASURED,
    WITH_ALERT,
    WITH_CRITICAL,
    by_job,
    jobs_with,
    seen_since,
    with_host,
    with_verdict,
)

VERDICTS = meaning(
    {
        "hang": ("hang", "red"),
        "straggler": ("waits for ranks", "red"),
        "network_bound": ("network-bound", "red"),
        "imbalanced_work": ("imbalanced work", "orange"),
        SLOWER: ("slower than it was", "orange"),
        LOW_RATE: ("low bandwidth", "orange"),
        WITH_ALERT: ("with an alert", "orange"),
        WITH_CRITICAL: ("critical alert", "red"),
        "not_enough_data": ("not enough data", "blue"),
        "fine": ("fine", "green"),
    }
)
"""The words of the tiles, which count the rows of the table."""

CLOCK = "dateTimeAsIsoNoDateIfToday"
"""Unit of a time of day, with the date if it was on another day."""

NO_TIMINGS = "no job reports timings"
"""Text of a panel without series, if no exporter has timings."""

TILE = 3
"""Height of the numbers."""


def now() -> list[Panel]:
    """Return the panels of the first screen."""
    return [*_counts(), _verdicts(), _lost(), _causes(), _stragglers(), *_alerts(), _bandwidth()]


def _counts() -> list[Panel]:
    return [
        _count(
            "Hanging", "Jobs in which no collective completes any more. Check the log of the job.", "hang", ANY, width=2
        ),
        _count("Waiting for ranks", "Jobs that wait for the same ranks, which a table lists.", "straggler", ANY),
        _count(
            "Network-bound",
            "Jobs whose collectives are slow even for the rank that does not wait. Check the ports of their hosts"
            " and the switches.",
            "network_bound",
            ANY,
        ),
        _slow_or_with_alert(),
        _count(
            "Imbalanced work",
            "Jobs whose ranks wait for each other alternately: the cause is the job.",
            "imbalanced_work",
            ANY_WARNS,
        ),
        _count(
            "Not enough data",
            "Jobs with timings of the same collectives from too few ranks for a verdict; see the row Timings.",
            "not_enough_data",
        ),
        _count(
            "Fine",
            "Jobs without a delay in their timings and without an alert, as fast as they were and should be.",
            "fine",
            width=2,
            which=f"unless on (train_job) {FAULTY}",
        ),
        number(
            "Bandwidth, of expected",
            "Bus bandwidth between nodes over the expected one, of the job with the lowest: that of a baseline, of the"
            " links, or else the job's own best. Below 80 % look for its first cause in the table; below 60 % the job"
            " is network-bound, unless it waits for ranks. None of jobs that hang, or without enough data.",
            f"bottomk(1, {BANDWIDTH_NOW})",
            LOW,
            unit="percentunit",
            width=4,
            height=TILE,
            absent="not known",
            decimals=0,
            filled=True,
            name="{{train_job}}",
        ),
    ]


def _count(
    title: str, description: str, verdict: str, limits: Limits | None = None, *, width: int = EIGHTH, which: str = ""
) -> Panel:
    """Return a panel that counts the jobs with a verdict, each once even if several exporters have it."""
    query = f"sum({jobs_with(verdict, which)})"
    return number(title, description, query, limits, width=width, height=TILE, absent="no jobs", filled=True)


def _slow_or_with_alert() -> Panel:
    """Return the panel that counts jobs that are not as good as their verdict; red if one has a critical alert."""
    count = f"sum({jobs_with('fine', f'and on (train_job) {FAULTY}')})"
    critical = f"sum({jobs_with('fine', f'and on (train_job) {CRITICAL_ALERTED}')}) > 0"
    worst = "critical alert"
    panel = number(
        "Slow, or with an alert",
        "Jobs that nothing in their timings delays, but that need more than 15 % longer than in their own best ten"
        " minutes, have less than 80 % of the expected bandwidth, or have an alert, as one on TCP. Red if an alert is"
        " critical.",
        f'label_replace({count} and on () {critical}, "worst", "{worst}", "", "")'
        f' or on () label_replace({count}, "worst", "no {worst}", "", "")',
        ANY_WARNS,
        width=4,
        height=TILE,
        absent="no jobs",
        filled=True,
        name="{{worst}}",
    ).text_mode(BigValueTextMode.VALUE)
    red = {"mode": "absolute", "steps": [{"value": one.value, "color": one.color} for one in steps(ANY)]}
    return panel.override_by_name(worst, [model.DynamicConfigValue(id_val="thresholds", value=red)])


def _verdicts() -> Panel:
    return table_of(
        "Verdicts",
        "What delays each job, since when, and the evidence: GPUs lost (GPU-seconds per second), how much longer it"
        " needs than in its own best ten minutes, time lost to stragglers or else waited by the median rank, bandwidth"
        " between nodes relative to the expected one; and the first of its likely causes. Slower than it was, low"
        " bandwidth, with an alert: nothing in the timings delays the job, but it was faster, its network should be, or"
        " an alert names the job.",
        [
            Column("Since", CLOCK, f"1000 * {with_verdict(SINCE)}", width=85),
            Column("GPUs lost", "short", with_verdict(f"sum by (train_job) ({LOST_GPUS})"), decimals=1, width=95),
            Column(
                "Over own best",
                "percentunit",
                with_verdict(f"({TIME_OVER_BEST} - 1)"),
                limits=Limits(0.15, 1_000_000),
                decimals=0,
                width=110,
            ),
            Column(
                "Waited, of time",
                "percentunit",
                with_verdict(by_job("fabric_nccl_waited_ratio")),
                limits=LATE,
                decimals=0,
                width=120,
            ),
            Column(
                "Bandwidth, of expected",
                "percentunit",
                with_verdict(BANDWIDTH_NOW),
                limits=LOW,
                decimals=0,
                width=190,
            ),
        ],
        labels=["train_job", "verdict"],
        more=[(with_verdict(first_causes()), ("first_cause",))],
        worst=("GPUs lost", "-Bandwidth, of expected"),
        absent="no job reports timings (docs/training.md)",
        width=18,
        height=5,
        colors={"verdict": VERDICTS},
        widths={"train_job": 80, "verdict": 140},
    ).override_by_name("first_cause", IN_WORDS)


def _causes() -> Panel:
    return table_of(
        "Likely causes",
        "Causes that a collector finds for each delay, from the states of ports and NCCL's logs, with the host, the"
        " device and the switch port that it is, or was last, connected to. From 60 % strong, from 30 % likely, below"
        " that possible; the log of the collector has the evidence. Of a job without a likely one, also the alerts"
        " about ports of its hosts, or those of its late ranks. Since the oldest alert about it or about the rail of"
        " the host, at the latest since the job is delayed.",
        [
            Column("Since", CLOCK, since(), width=85),
            Column("Confidence", "percentunit", FOUND, decimals=0, width=110),
        ],
        labels=["train_job", "cause"],
        key=ROW,
        more=[
            (hosts(), ("host", "device")),
            (rails(), ("rail",)),
            (switches(), ("switch", "switch_port")),
            (places(), ("place",)),
        ],
        worst=("Confidence", "-Since"),
        absent="no job is delayed",
        width=16,
        height=5,
        widths={"train_job": 80, "host": 85, "device": 80, "rail": 50, "switch": 80, "switch_port": 170, "place": 150},
    ).override_by_name("cause", IN_WORDS)


def _stragglers() -> Panel:
    loss = f"(fabric_nccl_straggler_loss_ratio{JOBS} > 0)"
    return table_of(
        "Stragglers",
        "Ranks that the others wait for, since when, and the share of time that each is late. If a port of the host"
        " has a fault, start there; else with the GPU, the CPUs and the input data.",
        [
            Column(
                "Since",
                CLOCK,
                "1000 * "
                + with_host(seen_since(f"fabric_nccl_straggler_loss_ratio{JOBS}", "job, instance, train_job, rank")),
                width=85,
            ),
            Column("Late, of time", "percentunit", with_host(loss), limits=LATE, decimals=0, width=115),
        ],
        labels=["train_job", "rank", "host", "gpu"],
        worst=("Late, of time",),
        absent="no rank is late; other delays, as a hang, are above",
        width=8,
        height=5,
        widths={"train_job": 75, "rank": 50, "host": 80},
    )


def _alerts() -> list[Panel]:
    which = (
        ', train_job=~"$train_job"',
        ', train_job="", switch!=""',
        ', train_job="", alertname="FabricCollectorDisconnected"',
    )
    table = firing(
        "Alerts of jobs, their hosts and switches",
        *which,
        details=("host", "rail", "switch", "port", "place"),
        absent="no critical alert or warning of a job, its hosts, a switch or a collector fires or is pending",
        width=18,
        height=7,
    )
    return [table, hidden(*which, shown=5, height=7)]


def _lost() -> Panel:
    none = f'label_replace(sum by (train_job) ({LOST_GPUS}), "cause", "none", "", "")'
    each = f"{LOST_GPUS} > 0 or on (train_job) {none}"
    return lines(
        "GPUs lost",
        "GPU-seconds lost per second, by the verdict that names the loss; at most, where the network is slow. The"
        " five jobs that lose most.",
        "short",
        [Query(f"topk(5, {each})", "{{train_job}} {{cause}}")],
        width=6,
        height=5,
        absent=NO_TIMINGS,
    )


def _bandwidth() -> Panel:
    by_kind = f"min by (train_job) (fabric_nccl_bus_bandwidth_bytes_per_second{JOBS})"
    return lines(
        "Bus bandwidth",
        "Bus bandwidth of collectives of 1 MiB and more as in nccl-tests, of the last rank, which does not wait;"
        " the slowest kind of each job; none of a job that hangs, or without enough data.",
        "Bps",
        [Query(f"{by_kind} unless on (train_job) {UNMEASURED}", "{{train_job}}")],
        width=6 - HIDDEN,
        height=7,
        absent="no collectives of 1 MiB and more",
    )
