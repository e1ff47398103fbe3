"""Paths: which ranks of a job use which ports and switches, and which of them an event of a port affects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from exporter.meaning.ports.states import PortLocation
from exporter.meaning.training.cause_rules import CauseRule
from exporter.meaning.training.wording import location_text, ranks_text

ON_HOST, UNUSED, UPLINKS, UPLINK, SPREADS, SAME_SWITCH = 0.7, 0.15, 0.8, 0.5, 0.8, 0.3
"""Weight of the place of an event that is not on a port used by a rank: on a host whose ranks may use it; on one whose
ranks use other ports; of all uplinks of a switch; of one; elsewhere, if it sends pauses and the job's ports are paused;
or are not."""

PAUSE_OF_PEER = MappingProxyType(
    {
        "paused_received": "paused_sent",
        "paused_sent": "paused_received",
        "pause_storm_received": "pause_storm_sent",
        "pause_storm_sent": "pause_storm_received",
    }
)
"""Pauses at one end of a link as seen from the other: if the switch is paused, the host there sends the pauses."""


class Rank(NamedTuple):
    """Where a rank runs: its host, and the ports nearest to its GPU, which it is assumed to use; empty if unknown."""

    host: str
    ports: tuple[str, ...] = ()


class Event(NamedTuple):
    """An active state of a port; of a host if the port is empty, and of one job if it is from a log.

    Times are of the same clock as that of the symptom; that of the last increase is None if it goes on.
    """

    kind: str
    port: PortLocation
    since: float
    value: float | None = None
    detail: str = ""
    job: str = ""
    quiet_since: float | None = None


@dataclass(frozen=True)
class Fabric:
    """Knowledge of the network.

    Attributes:
        links: Both ends of each link.
        same: Other names of a port, such as its network device and its PCI address, with the name that links and ranks
            have.
        reporting_hosts: Hosts that report their ports, with events or without.
        switches: Names of switches.
    """

    links: Sequence[tuple[PortLocation, PortLocation]] = ()
    same: Mapping[PortLocation, PortLocation] = field(default_factory=dict)
    reporting_hosts: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()

    @cached_property
    def peers(self) -> Mapping[PortLocation, PortLocation]:
        """The other end of each port, by the names that ranks have."""
        ends = [(self.named(one), self.named(other)) for one, other in self.links]
        return {one: other for pair in ends for one, other in (pair, pair[::-1])}

    def named(self, port: PortLocation) -> PortLocation:
        """Return the name of a port that links and ranks have."""
        return self.same.get(port, port)


class AffectedRanks(NamedTuple):
    """Ranks of the job that an event affects, with weight and reason."""

    ranks: frozenset[str]
    share: float
    reason: str


def as_seen_by_host(event: Event, fabric: Fabric) -> Event:
    """Return a pause reported by a switch as the host at the other end of the link would report it."""
    peer = fabric.peers.get(fabric.named(event.port))
    if event.kind not in PAUSE_OF_PEER or event.port.name not in fabric.switches or peer is None:
        return event
    return event if peer.name in fabric.switches else event._replace(kind=PAUSE_OF_PEER[event.kind], port=peer)


class Paths:
    """Paths of a job: which ranks use which ports and switches."""

    def __init__(self, ranks: Mapping[str, Rank], fabric: Fabric) -> None:
        self._fabric = fabric
        self._by_host: dict[str, set[str]] = {}
        self._by_port: dict[PortLocation, set[str]] = {}
        self._by_switch: dict[str, set[str]] = {}
        self._placed: set[str] = set()
        for name, rank in ranks.items():
            self._by_host.setdefault(rank.host, set()).add(name)
            for port_name in rank.ports:
                self._by_port.setdefault(fabric.named(PortLocation(rank.host, port_name)), set()).add(name)
                self._placed.add(name)
        for port in fabric.peers:
            peer = fabric.peers[port]
            users = self._by_port.get(port) or (self._unplaced(port.name) if port not in self._by_port else set())
            if users:
                self._by_switch.setdefault(peer.name, set()).update(users)

    def _unplaced(self, host: str) -> set[str]:
        """Return the ranks of a host whose ports are unknown."""
        return self._by_host.get(host, set()) - self._placed

    def affected(self, event: Event, rule: CauseRule, *, job_affected: bool) -> AffectedRanks | None:
        """Return the ranks that an event affects; None for none.

        Args:
            event: The event.
            rule: The rule of its kind.
            job_affected: Whether ports of the job suffer from a cause elsewhere.
        """
        port = self._fabric.named(event.port)
        end = port if port.name in self._by_host else self._fabric.peers.get(port, port)
        where = "" if end == port else f"{location_text(port)} leads to {location_text(end)}: "
        users = self._by_port.get(end)
        if users:
            return AffectedRanks(frozenset(users), 1.0, f"{where}{ranks_text(users)} of the job use it")
        if end.name in self._by_host:
            return self._on_host(end, event, where)
        return self._on_switch(port, rule, job_affected=job_affected)

    def _on_host(self, port: PortLocation, event: Event, where: str) -> AffectedRanks | None:
        users = self._by_host[port.name]
        if not event.port.port:
            return AffectedRanks(frozenset(users), 1.0, f"{ranks_text(users)} of the job are on this host")
        unplaced = self._unplaced(port.name)
        if unplaced:
            reason = f"{where}{ranks_text(unplaced)} of the job are on this host; which ports they use is unknown"
            return AffectedRanks(frozenset(unplaced), ON_HOST, reason)
        reason = f"{where}ranks of the job are on this host, but none uses this port"
        return AffectedRanks(frozenset(users), UNUSED, reason)

    def _on_switch(self, port: PortLocation, rule: CauseRule, *, job_affected: bool) -> AffectedRanks | None:
        """Return the ranks affected by an event of a port that leads to no host of the job."""
        peer = self._fabric.peers.get(port)
        behind = port.name if port.name in self._fabric.switches or peer is None else peer.name
        users = self._by_switch.get(behind, set())
        to_others = behind == port.name and self._by_switch.keys() - {behind}
        if users and to_others and not port.port:
            reason = f"what the job's hosts at {port.name} send to others crosses its uplinks"
            return AffectedRanks(frozenset(users), UPLINKS, reason)
        if users and to_others and peer is not None and peer.name in self._fabric.switches:
            reason = f"it links {port.name} to {peer.name}, which carries a part of what the job's hosts there send"
            return AffectedRanks(frozenset(users), UPLINK, reason)
        everyone = frozenset(name for names in self._by_host.values() for name in names)
        if rule.spreads and job_affected:
            reason = "it is not on a path of the job, but pauses spread, and ports of the job are paused or slowed"
            return AffectedRanks(everyone, SPREADS, reason)
        if rule.spreads and users:
            reason = "it is not on a path of the job, but behind the same switch"
            return AffectedRanks(frozenset(users), SAME_SWITCH, reason)
        return None
