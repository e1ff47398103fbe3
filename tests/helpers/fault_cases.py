"""Faults of the simulated fabric in four clusters: when and where each is, and what its receivers get.

Three of the clusters are without NCCL's logs. Faults at disjoint places share a time. All times of rules and routes are
divided, those of the exporters' own detectors are not: a job's verdict may begin before, and end after, the alert that
mutes it with the shipped times, so it is in `also` there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from exporter.meaning.training.past import Level, Past, Work, best_levels
from exporter.simulator.fabric.faults import parse_fault
from exporter.simulator.fabric.topology import Shape, Topology
from tests.helpers.demo_cluster import Notice

TOPOLOGY = Topology(Shape())

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
    also: tuple[str, ...] = ()
    text: str = ""

    @property
    def start(self) -> float:
        """Second at which the fault begins."""
        return parse_fault(self.fault, TOPOLOGY).start

    @property
    def end(self) -> float:
        """Second at which the fault ends, at the latest by itself."""
        fault = parse_fault(self.fault, TOPOLOGY)
        return min(fault.end, fault.start + fault.kind.length)

    def is_about(self, notice: Notice) -> bool:
        """Return whether a notice is about the fault itself, at one of its places; a link has two ends."""
        places = ({name: value for name, value in one.items() if name != "direction"} for one in self.labels)
        return notice.seconds >= self.start and any(notice.matches(self.alert, one) for one in places)

    def arrived(self, notices: list[Notice], status: str, labels: dict[str, str]) -> bool:
        """Return whether one of its alerts began after the fault did, or ended after the fault."""
        least = self.start if status == "firing" else self.end
        return any(
            one.status == status and one.seconds >= least and one.matches(self.alert, labels, self.text)
            for one in notices
        )


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
        "gpudirect-off:gpu-002@100s-160s",
        "ticket",
        "FabricJobGpudirectOff",
        ({"host": "gpu-002", "train_job": "demo"},),
        SLOW,
    ),
    Case(
        "dirty-optic:gpu-004/2@110s-180s",
        "ticket",
        "FabricFecUncorrectable",
        ({"host": "gpu-004", "device": "eth4", "rail": "2"},),
        ("FabricOpticsReceivePowerLow", "FabricLinkErrors", "FabricRetransmissions"),
    ),
    # Exporters compare uplinks by the bytes of a minute, so that these differ when the spine is back. The page needs
    # two minutes of that by the shipped times, and six seconds by the divided ones.
    Case(
        "spine-gone:spine-03@175s-225s",
        "ticket",
        "FabricSwitchDown",
        ({"switch": "spine-03"},),
        (*UPLINKS, "FabricSwitchRestarted", "FabricUplinkOverloaded"),
    ),
    Case(
        "late-host:gpu-003@230s-320s",
        "ticket",
        "FabricStraggler",
        tuple({"host": "gpu-003", "rank": str(rank), "train_job": "demo"} for rank in range(16, 24)),
        SLOW,
        text="First cause: compute",
    ),
    # A minute later: an alert of a job that ends while a port pages is muted, and has no message that it ended.
    Case(
        "degraded-link:gpu-004/1@380s-450s",
        "ticket",
        "FabricLinkDegraded",
        ({"host": "gpu-004", "device": "mlx5_1", "rail": "1"},),
        (*SLOW, *UNEVEN),
    ),
    Case(
        "link-down:gpu-001/6@380s-450s",
        "pager",
        "FabricLinkDown",
        ({"host": "gpu-001", "device": "mlx5_6", "rail": "6"},),
        UNEVEN,
    ),
    # The switch has an alert about its own port, if it is down for long.
    Case(
        "missing-port:gpu-003/7@380s-450s",
        "pager",
        "FabricPortsMissing",
        ({"host": "gpu-003"},),
        (*UPLINKS, "FabricSettingDiffers"),
    ),
    # PCIe links are read once a minute; the pauses of the adapter are an alert sooner.
    Case(
        "slow-pcie:gpu-002/1@375s-465s",
        "ticket",
        "FabricPciDegraded",
        ({"host": "gpu-002", "devices": "eth3,mlx5_1"},),
        ("FabricPauseStorm", "FabricPauseShare", "FabricPauseInTraffic", "FabricPauseOutlier"),
    ),
    Case(
        "pause-storm:gpu-002/4@380s-450s",
        "pager",
        "FabricPauseStorm",
        ({"host": "gpu-002", "device": "eth6", "rail": "4", "direction": "transmit"},),
        ("FabricPauseShare", *SLOW),
    ),
)

WITHOUT_LOGS = (
    Case("tcp@0s-90s", "pager", "FabricJobOnTcp", HOSTS),
    Case("switch-rebooted:spine-01@40s", "ticket", "FabricSwitchRestarted", ({"switch": "spine-01"},), UPLINKS),
    Case("symbol-errors:gpu-003/6@60s-120s", "ticket", "FabricLinkErrors", ({"switch": "leaf-04", "port": "Eth1/5"},)),
    Case("half-adapters@90s-210s", "ticket", "FabricJobAdaptersUnused", HOSTS, (*SLOW, *UNEVEN)),
    Case(
        "flapping-link:gpu-002/4@95s-185s",
        "ticket",
        "FabricLinkFlapping",
        ({"host": "gpu-002", "device": "mlx5_4", "rail": "4"},),
        ("FabricJobCollectivesUneven", *UPLINKS),
    ),
    Case(
        "short-pauses:gpu-003@250s-330s",
        "ticket",
        "FabricPauseOutlier",
        tuple({"host": "gpu-003", "rail": str(rail), "direction": "transmit"} for rail in range(8)),
        ("FabricPauseInTraffic",),
    ),
    Case(
        "rail-swapped:gpu-004/3@250s-330s",
        "ticket",
        "FabricRailMiscabled",
        ({"host": "gpu-004", "rail": "7"},),
        ("FabricRailMiscabled",),  # of rail 3, if that port had been seen at its own leaf before
    ),
    # A page while the pauses make the job slow, else a ticket.
    Case(
        "one-spine:spine-02@250s-340s",
        "pager|ticket",
        "FabricUplinkOverloaded|FabricUplinkImbalance",
        tuple({"switch": f"leaf-{leaf:02}", "direction": "transmit"} for leaf in range(1, 5)),
    ),
    Case("poller-gone@355s-415s", "ticket", "FabricSourceStale", ({"instance": "poller", "layer": "exporter"},)),
    Case(
        "broker-gone@365s-425s",
        "ticket",
        "FabricCollectorDisconnected",
        ({"instance": "collector"}, *({"instance": one["host"]} for one in HOSTS)),
        ("FabricTimingsLost", "FabricCollectorDisconnected"),  # that of the poller, once it is back
    ),
    Case("no-pfc@380s-445s", "ticket", "FabricRetransmissions", HOSTS, ("FabricCongestionDiscards", *SLOW)),
)

HANGING = (
    Case(
        "rotating-late-rank@10s-190s",
        "chat",
        "FabricJobImbalanced",
        ({"train_job": "demo"},),
        text="First cause: work",
    ),
    Case(
        "hanging-process:19@205s-403s",
        "pager",
        "FabricJobHang",
        ({"train_job": "demo"},),
        text="First cause: process",
    ),
)

WITH_PAST = (
    Case(
        "oversubscribed-leaf:leaf-03@10s-105s",
        "ticket",
        "FabricOversubscription",
        ({"switch": "leaf-03", "train_job": "demo"},),
        SLOW,
    ),
    Case(
        "marks-ignored:gpu-002@10s-95s",
        "ticket",
        "FabricCnpsIgnored",
        tuple({"host": "gpu-002", "rail": str(rail)} for rail in range(8)),
    ),
    Case("slower-job@115s-230s", "ticket", "FabricJobSlower", ({"train_job": "demo"},)),
    Case(
        "hanging-link:gpu-004/2@245s-441s",
        "pager",
        "FabricJobHang",
        ({"train_job": "demo"},),
        text="First cause: ack_timeouts, gpu-004 mlx5_2",
    ),
)

BEST_STEP = 0.434
"""Seconds of a step in the best ten minutes of the past. It takes 0.45 without faults and 0.55 while the job is slower;
the threshold, 1.15 times the best, is in the middle."""

WORK = Work("ReduceScatter", ranks=32, nodes=4, operations=24 + 12, size=(24 + 12) << 31)
"""Work of a step: 24 AllGathers and 12 ReduceScatters, each counted as 2 GiB."""


class Run(NamedTuple):
    """A cluster.

    Attributes:
        flags: Flags of the demo.
        cases: Its faults.
        levels: Best levels of its job that an earlier collector left on the broker.
    """

    flags: tuple[str, ...]
    cases: tuple[Case, ...]
    levels: Mapping[str, float] = MappingProxyType({})


RUNS = {
    "with-logs": Run((), WITH_LOGS),
    "without-logs": Run(("--no-nccl-log",), WITHOUT_LOGS),
    "hanging": Run(("--no-nccl-log",), HANGING),
    "with-past": Run(("--no-nccl-log",), WITH_PAST, best_levels(Past({WORK: Level(best=1 / BEST_STEP)}))),
}
