"""End to end: each fault of the simulated fabric reaches the right receiver, as the right alert about the right place.

Model, exporters, broker, collector, Prometheus with the rules, Alertmanager with the routes, receiver. Four clusters
run beside each other, three of them without NCCL's logs; faults at disjoint places share a time. All times of rules and
routes are divided by FACTOR, those of the exporters' own detectors are not: a job's verdict may begin before, and end
after, the alert that mutes it with the shipped times, so it is in `also` there; and a job has to run for ten minutes
before it can be slower than it was, so that it has a cluster of its own, which is read less often.
"""

import re
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import monotonic, sleep

import pytest

from tests.helpers.demo_cluster import DemoCluster, Notice, demo_cluster
from tests.helpers.paths import ROOT
from tests.helpers.stack import own_folder

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1500)]

FACTOR = 20

INTERVAL = "2s"

OWN_THRESHOLDS = "source_stale:\n  age: 60m\nlink_flapping:\n  window: 20m\n"
"""Sources that are read once a minute are not stale after 5 minutes divided by FACTOR; a link that flaps each 20 s goes
down three times in a minute."""

PATIENCE = 1200.0
"""Seconds after which what has not arrived does not; on two idle processors all has arrived after 780."""

SLOW = ("FabricJobNetworkBound", "FabricJobImbalanced", "FabricJobSlower")
"""Verdicts on a job, which are of the last minute: they end after the alert that mutes them."""

UNEVEN = ("FabricRailImbalance",)
"""Compared by the bytes of a minute, and so likewise."""

UPLINKS = ("FabricLinkDown", "FabricSwitchDown")
"""A switch that is gone, seen by its poller and by the switches that it is linked to."""


@dataclass(frozen=True)
class Case:
    """A fault, and what its receivers get.

    Attributes:
        fault: The fault.
        receiver: Pattern of the name of the receiver.
        alert: Pattern of the name of the alert.
        labels: Labels of each of its alerts.
        also: Names of other alerts about the same, which may come too.
        text: Pattern of its text, which ends with the first cause of what a job suffers from.
    """

    fault: str
    receiver: str
    alert: str
    labels: tuple[dict[str, str], ...]
    also: tuple[str, ...] = field(default=())
    text: str = ""


HOSTS = tuple({"host": f"gpu-{number:03}"} for number in range(1, 5))

WITH_LOGS = (
    Case("switch-silent:leaf-03@20s-80s", "ticket", "FabricSwitchDown", ({"switch": "leaf-03"},)),
    Case(
        "late-rank:5@20s-90s",
        "ticket",
        "FabricStraggler",
        ({"host": "gpu-001", "rank": "5", "train_job": "demo"},),
        SLOW,
        text="First cause: compute",
    ),
    Case(
        "gpudirect-off:gpu-002@100s-180s",
        "ticket",
        "FabricJobGpudirectOff",
        ({"host": "gpu-002", "train_job": "demo"},),
        SLOW,
    ),
    Case(
        "dirty-optic:gpu-004/2@110s-200s",
        "ticket",
        "FabricFecUncorrectable",
        ({"host": "gpu-004", "device": "eth4", "rail": "2"},),
        ("FabricOpticsReceivePowerLow", "FabricLinkErrors", "FabricRetransmissions"),
    ),
    Case(
        "spine-gone:spine-03@240s-290s",
        "ticket",
        "FabricSwitchDown",
        ({"switch": "spine-03"},),
        (*UPLINKS, "FabricSwitchRestarted"),
    ),
    Case(
        "late-host:gpu-003@290s-370s",
        "ticket",
        "FabricStraggler",
        tuple({"host": "gpu-003", "rank": str(rank), "train_job": "demo"} for rank in range(16, 24)),
        SLOW,
        text="First cause: compute",
    ),
    # A minute later: an alert of a job that ends while a port pages is muted, and has no message that it ended.
    Case(
        "degraded-link:gpu-004/1@430s-500s",
        "ticket",
        "FabricLinkDegraded",
        ({"host": "gpu-004", "device": "mlx5_1", "rail": "1"},),
        (*SLOW, *UNEVEN),
    ),
    Case(
        "link-down:gpu-001/6@430s-500s",
        "pager",
        "FabricLinkDown",
        ({"host": "gpu-001", "device": "mlx5_6", "rail": "6"},),
        UNEVEN,
    ),
    # The switch has an alert about its own port, if it is down for long.
    Case(
        "missing-port:gpu-003/7@430s-500s",
        "pager",
        "FabricPortsMissing",
        ({"host": "gpu-003"},),
        (*UPLINKS, "FabricSettingDiffers"),
    ),
    # PCIe links are read once a minute; the pauses of the adapter are an alert sooner.
    Case(
        "slow-pcie:gpu-002/1@425s-520s",
        "ticket",
        "FabricPciDegraded",
        ({"host": "gpu-002", "devices": "eth3,mlx5_1"},),
        ("FabricPauseStorm", "FabricPauseShare", "FabricPauseInTraffic", "FabricPauseOutlier"),
    ),
    Case(
        "pause-storm:gpu-002/4@430s-500s",
        "pager",
        "FabricPauseStorm",
        ({"host": "gpu-002", "device": "eth6", "rail": "4", "direction": "transmit"},),
        ("FabricPauseShare", *SLOW),
    ),
)

WITHOUT_LOGS = (
    Case("tcp@0s-120s", "pager", "FabricJobOnTcp", HOSTS),
    Case("switch-rebooted:spine-01@40s", "ticket", "FabricSwitchRestarted", ({"switch": "spine-01"},), UPLINKS),
    Case("symbol-errors:gpu-003/6@60s-120s", "ticket", "FabricLinkErrors", ({"switch": "leaf-04", "port": "Eth1/5"},)),
    Case("half-adapters@120s-250s", "ticket", "FabricJobAdaptersUnused", HOSTS, (*SLOW, *UNEVEN)),
    Case(
        "flapping-link:gpu-002/4@125s-215s",
        "ticket",
        "FabricLinkFlapping",
        ({"host": "gpu-002", "device": "mlx5_4", "rail": "4"},),
        ("FabricJobCollectivesUneven", *UPLINKS),
    ),
    Case(
        "short-pauses:gpu-003@290s-370s",
        "ticket",
        "FabricPauseOutlier",
        tuple({"host": "gpu-003", "rail": str(rail), "direction": "transmit"} for rail in range(8)),
        ("FabricPauseInTraffic",),
    ),
    Case(
        "rail-swapped:gpu-004/3@290s-370s",
        "ticket",
        "FabricRailMiscabled",
        ({"host": "gpu-004", "rail": "7"},),
        ("FabricRailMiscabled",),  # of rail 3, if that port had been seen at its own leaf before
    ),
    # A page while the pauses make the job slow, else a ticket.
    Case(
        "one-spine:spine-02@290s-380s",
        "pager|ticket",
        "FabricUplinkOverloaded|FabricUplinkImbalance",
        tuple({"switch": f"leaf-{leaf:02}", "direction": "transmit"} for leaf in range(1, 5)),
    ),
    Case("poller-gone@400s-460s", "ticket", "FabricSourceStale", ({"instance": "poller", "layer": "exporter"},)),
    Case(
        "broker-gone@410s-470s",
        "ticket",
        "FabricCollectorDisconnected",
        ({"instance": "collector"}, *({"instance": one["host"]} for one in HOSTS)),
        ("FabricTimingsLost", "FabricCollectorDisconnected"),  # that of the poller, once it is back
    ),
    Case("no-pfc@480s-545s", "ticket", "FabricRetransmissions", HOSTS, ("FabricCongestionDiscards", *SLOW)),
)

HANGING = (
    Case(
        "oversubscribed-leaf:leaf-03@10s-110s",
        "ticket",
        "FabricOversubscription",
        ({"switch": "leaf-03", "train_job": "demo"},),
        SLOW,
    ),
    Case(
        "marks-ignored:gpu-002@10s-100s",
        "ticket",
        "FabricCnpsIgnored",
        tuple({"host": "gpu-002", "rail": str(rail)} for rail in range(8)),
    ),
    Case(
        "hanging-process:19@120s-318s",
        "pager",
        "FabricJobHang",
        ({"train_job": "demo"},),
        text="First cause: process",
    ),
    Case(
        "hanging-link:gpu-004/2@332s-528s",
        "pager",
        "FabricJobHang",
        ({"train_job": "demo"},),
        text="First cause: ack_timeouts, gpu-004 mlx5_2",
    ),
)

UNDISTURBED = (
    Case(
        "rotating-late-rank@10s-200s",
        "chat",
        "FabricJobImbalanced",
        ({"train_job": "demo"},),
        text="First cause: work",
    ),
    # The best ten minutes before are those with the other fault, whose median step is not one of it.
    Case("slower-job@580s-720s", "ticket", "FabricJobSlower", ({"train_job": "demo"},)),
)

RUNS = {
    "with-logs": ((), WITH_LOGS),
    "without-logs": (("--no-nccl-log",), WITHOUT_LOGS),
    "hanging": (("--no-nccl-log",), HANGING),
    "undisturbed": (("--no-nccl-log", "--interval", "5s"), UNDISTURBED),
}


def without_direction(labels: dict[str, str]) -> dict[str, str]:
    """Return labels without that of the direction: a link has two ends."""
    return {name: value for name, value in labels.items() if name != "direction"}


def complete(notices: list[Notice], cases: tuple[Case, ...]) -> bool:
    """Return whether each alert has begun and ended."""
    return all(
        any(one.status == status and one.matches(case.alert, labels, case.text) for one in notices)
        for case in cases
        for labels in case.labels
        for status in ("firing", "resolved")
    )


def wait(demos: dict[str, DemoCluster]) -> None:
    """Wait until all alerts have begun and ended, for as long as that may take."""
    end = monotonic() + PATIENCE
    while monotonic() < end and not all(complete(demo.notices, RUNS[name][1]) for name, demo in demos.items()):
        ended = [demo.errors for demo in demos.values() if demo.process.poll() is not None]
        assert ended == []
        sleep(1)


@pytest.fixture(scope="module")
def notices(program) -> dict[str, list[Notice]]:
    """Give what the receivers of all clusters got."""
    for name in ("mosquitto", "prometheus", "prometheus-alertmanager"):
        program(name)
    with own_folder() as folder:
        (folder / "own.yml").write_text(OWN_THRESHOLDS)
        command = [sys.executable, ROOT / "alerts" / "build.py", "--thresholds", folder / "own.yml"]
        subprocess.run([*command, "--divide", str(FACTOR), "--output", folder / "rules"], check=True)
        flags = ["--rules", folder / "rules", "--interval", INTERVAL, "--no-infiniband"]
        with ExitStack() as running:
            demos = {
                name: running.enter_context(demo_cluster(folder / name, [*flags, *own], [case.fault for case in cases]))
                for name, (own, cases) in RUNS.items()
            }
            wait(demos)
            return {name: demo.notices for name, demo in demos.items()}


CASES = [
    pytest.param(run, case, id=f"{case.fault.partition('@')[0]}-{run}") for run, (_, of) in RUNS.items() for case in of
]


@pytest.mark.parametrize(("run", "case"), CASES)
def test_a_fault_is_an_alert_about_its_place_that_ends_with_it(notices, run, case):
    found = [one for one in notices[run] if any(one.matches(case.alert, labels, case.text) for labels in case.labels)]
    assert found, notices[run]
    assert [one for one in found if not re.fullmatch(case.receiver, one.receiver)] == []
    for status in ("firing", "resolved"):
        missing = [
            labels
            for labels in case.labels
            if not any(one.status == status and one.matches(case.alert, labels, case.text) for one in found)
        ]
        assert missing == [], (status, found)


@pytest.mark.parametrize("run", RUNS)
def test_nothing_else_is_sent(notices, run):
    cases = RUNS[run][1]
    also = {name for case in cases for name in case.also}
    others = [
        one
        for one in notices[run]
        if one.alert not in also
        and not any(one.matches(case.alert, without_direction(labels)) for case in cases for labels in case.labels)
    ]
    assert others == []
