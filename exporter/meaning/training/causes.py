"""Causes: which port, or what else, is behind the verdict on a job, with the evidence and why it is believed.

Timings say what holds a job up; events of ports say what is wrong with the network, with or without the job. They are
joined by three questions. Kind: can such an event do this at all? Place: is it on the way of the ranks that the verdict
is about, and of all communicators that are slow? Time: was it there when the symptom began, and not long before without
harm? Each answer is a share, their product is the confidence, and each is said in words. Events of both ends of a link,
and several of one port, are one cause.

A rank that comes late is more often late before the network than in it, so that without evidence its cause is said to
be computing. A job that is bound by the network, while no port shows anything, has an unknown cause, and that is said.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple

from exporter.meaning.ports.states import PortLocation
from exporter.meaning.training.cause_rules import RULES, CauseRule
from exporter.meaning.training.verdicts import Judgement, Verdict

LEAST = 0.1
"""Confidence below which something is no cause worth a word."""

MOST = 0.95
"""Confidence at most: nobody has opened the cable."""

MOST_CAUSES = 10

ON_HOST, UNUSED, UPLINK, SPREADS, SAME_SWITCH = 0.7, 0.15, 0.5, 0.8, 0.3
"""What the place of an event counts that is not on the way of a rank: on a host whose ranks may use it; on one whose
ranks use others; between switches; elsewhere, where it sends pauses and the job's ports are stopped; or are not."""

AFTER, SOON_AFTER, HARMLESS_SO_FAR, BEFORE_THE_JOB = 0.2, 0.6, 0.4, 0.7
"""What the time of an event counts that did not begin with the symptom: after it (more likely its consequence), so soon
after it that this may be its own delay, long before it, and before the job."""

LATE_TO_TELL = 60.0
"""Seconds from the begin of a symptom until its verdict is given, at most: what began so soon before it is no later."""

HARMLESS = 600.0
"""Seconds for which an event stood, while the job ran well, after which it hardly is the cause."""

COMPUTING, COMPUTING_INSIDE = 0.5, 0.9
"""Confidence that a late rank is late for computing: with no port that shows anything; and where it is late to ranks of
its own host, with no network between them."""

LATE_INSIDE = "the rank is late to ranks of its own host, with no network between them"

STOPPED = 0.4
"""Confidence that ranks which went no further stopped by themselves."""

NOT_BLAMED = {Verdict.HANG: 0.3, Verdict.STRAGGLER: 0.1}
"""What an event counts that touches none of the ranks that are blamed."""

INSIDE = 0.2
"""What events count where the late rank is late to ranks of its own host."""


FLIPPED = {
    "paused_received": "paused_sent",
    "paused_sent": "paused_received",
    "pause_storm_received": "pause_storm_sent",
    "pause_storm_sent": "pause_storm_received",
}
"""What is seen at one end of a link, as the other end sees it: what a switch is stopped by, the host there sends."""


class Rank(NamedTuple):
    """Where a rank is: its host, and the ports that it uses, which are those nearest to its GPU; none where unknown."""

    host: str
    ports: tuple[str, ...] = ()


class Event(NamedTuple):
    """An event of a port that is active; one of a whole host has an empty port, one that a job's log tells its job.

    Times are of one clock, that of the symptom.
    """

    kind: str
    port: PortLocation
    since: float
    value: float | None = None
    detail: str = ""
    job: str = ""


@dataclass(frozen=True, slots=True)
class Symptom:
    """The verdict on a job.

    Attributes:
        judgement: It.
        since: When it was first given.
        ranks: Where the job's ranks are.
        slow: The ranks of each communicator that is slow; empty where that is not known.
        fine: The same of communicators between hosts that are as fast as they should be.
        began: When the job was first heard of; None where unknown.
    """

    judgement: Judgement
    since: float
    ranks: Mapping[str, Rank]
    slow: Sequence[frozenset[str]] = ()
    fine: Sequence[frozenset[str]] = ()
    began: float | None = None


@dataclass(frozen=True)
class Fabric:
    """What is known of the network.

    Attributes:
        links: Both ends of each.
        same: Other names of a port, such as its network device and its PCI address, with the one that links and
            ranks have.
        heard: Hosts that tell of their ports, with events or without.
        switches: Names of switches.
    """

    links: Sequence[tuple[PortLocation, PortLocation]] = ()
    same: Mapping[PortLocation, PortLocation] = field(default_factory=dict)
    heard: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()

    @cached_property
    def peers(self) -> Mapping[PortLocation, PortLocation]:
        """The other end of each port, by the names that ranks have."""
        ends = [(self.named(one), self.named(other)) for one, other in self.links]
        return {one: other for pair in ends for one, other in (pair, pair[::-1])}

    def named(self, port: PortLocation) -> PortLocation:
        """Give the name that links and ranks have for a port."""
        return self.same.get(port, port)


@dataclass(frozen=True, slots=True)
class Cause:
    """What may be behind a symptom.

    Attributes:
        kind: Of the event that explains most; or `compute`, `process`, `work`, `unknown`.
        port: Where; None where it is no port.
        peer: The other end of its link, where known.
        confidence: From 0 to 1, to order causes by.
        evidence: What was seen, in words and numbers.
        reasons: Why it is believed, and what speaks against it.
        remedy: What to do.
    """

    kind: str
    port: PortLocation | None
    peer: PortLocation | None
    confidence: float
    evidence: tuple[str, ...]
    reasons: tuple[str, ...]
    remedy: str

    @property
    def word(self) -> str:
        """The confidence in a word."""
        if self.kind == "unknown":
            return "unknown"
        return "strong" if self.confidence >= 0.6 else "likely" if self.confidence >= 0.3 else "possible"


class _Answer(NamedTuple):
    """An answer to one of the questions: a share of 1, and why."""

    share: float
    reason: str


class _Touched(NamedTuple):
    """Which ranks of the job an event touches, how surely, and why."""

    ranks: frozenset[str]
    share: float
    reason: str


class _Weighed(NamedTuple):
    """An event with what it is worth."""

    event: Event
    rule: CauseRule
    confidence: float
    reasons: tuple[str, ...]


def causes(symptom: Symptom, events: Iterable[Event], fabric: Fabric) -> list[Cause]:
    """Rank what may be behind the verdict on a job, the likeliest first; nothing where it has no symptom."""
    verdict = symptom.judgement.verdict
    if verdict in (Verdict.FINE, Verdict.UNKNOWN):
        return []
    if verdict is Verdict.IMBALANCED:
        return [_work(symptom)]
    paths = _Paths(symptom.ranks, fabric)
    known = [(one, RULES[one.kind]) for one in (_of_host(event, fabric) for event in events) if one.kind in RULES]
    hit = any(rule.hit and paths.touched(event, rule, hit=False) is not None for event, rule in known)
    weighed = [one for event, rule in known if (one := _weigh(symptom, paths, event, rule, hit=hit)) is not None]
    of_ports = [one for one in _of_links(weighed, fabric) if one.confidence >= LEAST]
    found = sorted([*of_ports, *_without_port(symptom, of_ports, fabric)], key=lambda one: -one.confidence)
    return found[:MOST_CAUSES] or [_unknown(symptom, fabric)]


def _of_host(event: Event, fabric: Fabric) -> Event:
    """Give a pause that a switch tells of as the host at the other end of the link would."""
    peer = fabric.peers.get(fabric.named(event.port))
    if event.kind not in FLIPPED or event.port.name not in fabric.switches or peer is None:
        return event
    return event if peer.name in fabric.switches else event._replace(kind=FLIPPED[event.kind], port=peer)


class _Paths:
    """Which ranks of a job use which ports and switches."""

    def __init__(self, ranks: Mapping[str, Rank], fabric: Fabric) -> None:
        self._fabric = fabric
        self._by_host: dict[str, set[str]] = {}
        self._by_port: dict[PortLocation, set[str]] = {}
        self._by_switch: dict[str, set[str]] = {}
        self._placed: set[str] = set()
        for name, rank in ranks.items():
            self._by_host.setdefault(rank.host, set()).add(name)
            for near in rank.ports:
                self._by_port.setdefault(fabric.named(PortLocation(rank.host, near)), set()).add(name)
                self._placed.add(name)
        for port in fabric.peers:
            peer = fabric.peers[port]
            users = self._by_port.get(port) or (self._unplaced(port.name) if port not in self._by_port else set())
            if users:
                self._by_switch.setdefault(peer.name, set()).update(users)

    def _unplaced(self, host: str) -> set[str]:
        """Give the ranks of a host of which the port is not known."""
        return self._by_host.get(host, set()) - self._placed

    def touched(self, event: Event, rule: CauseRule, *, hit: bool) -> _Touched | None:
        """Tell which ranks an event touches; None for none.

        Args:
            event: What and where.
            rule: Of its kind.
            hit: Whether ports of the job are hit by something elsewhere.
        """
        port = self._fabric.named(event.port)
        end = port if port.name in self._by_host else self._fabric.peers.get(port, port)
        where = "" if end == port else f"{_name(port)} leads to {_name(end)}: "
        users = self._by_port.get(end)
        if users:
            return _Touched(frozenset(users), 1.0, f"{where}{_ranks(users)} of the job use it")
        if end.name in self._by_host:
            return self._on_host(end, event, where)
        return self._on_switch(port, rule, hit=hit)

    def _on_host(self, port: PortLocation, event: Event, where: str) -> _Touched | None:
        users = self._by_host[port.name]
        if not event.port.port:
            return _Touched(frozenset(users), 1.0, f"{_ranks(users)} of the job are on this host")
        unplaced = self._unplaced(port.name)
        if unplaced:
            reason = f"{where}{_ranks(unplaced)} of the job are on this host; which ports they use is not known"
            return _Touched(frozenset(unplaced), ON_HOST, reason)
        return _Touched(frozenset(users), UNUSED, f"{where}ranks of the job are on this host, but none uses this port")

    def _on_switch(self, port: PortLocation, rule: CauseRule, *, hit: bool) -> _Touched | None:
        """Judge an event of a port that leads to no host of the job."""
        peer = self._fabric.peers.get(port)
        behind = port.name if port.name in self._fabric.switches or peer is None else peer.name
        users = self._by_switch.get(behind, set())
        to_others = behind == port.name and self._by_switch.keys() - {behind}
        if users and to_others and peer is not None and peer.name in self._fabric.switches:
            reason = f"it links {port.name} to {peer.name}, which carries a part of what the job's hosts there send"
            return _Touched(frozenset(users), UPLINK, reason)
        everyone = frozenset(name for names in self._by_host.values() for name in names)
        if rule.hits and hit:
            return _Touched(everyone, SPREADS, "it is not on the job's way, but pauses spread, and its ports are hit")
        if rule.hits and users:
            return _Touched(frozenset(users), SAME_SWITCH, "it is not on the job's way, but behind the same switch")
        return None


def _weigh(symptom: Symptom, paths: _Paths, event: Event, rule: CauseRule, *, hit: bool) -> _Weighed | None:
    """Answer the three questions for an event; None where it cannot be a cause."""
    verdict = symptom.judgement.verdict
    kind = {Verdict.NETWORK: rule.slow, Verdict.HANG: rule.hang, Verdict.STRAGGLER: rule.late}[verdict]
    touched = paths.touched(event, rule, hit=hit) if kind else None
    if touched is None:
        return None
    shared = _shared(symptom, touched.ranks)
    time = _time(symptom, event.since)
    answers = [_Answer(touched.share, touched.reason), shared, time]
    inside = verdict is Verdict.STRAGGLER and any(one.inside for one in symptom.judgement.ranks)
    if inside:
        answers.append(_Answer(INSIDE, LATE_INSIDE))
    confidence = kind * prod(one.share for one in answers)
    return _Weighed(event, rule, confidence, tuple(one.reason for one in answers if one.reason))


def _shared(symptom: Symptom, touched: frozenset[str]) -> _Answer:
    """Ask whether what an event touches is what the verdict is about."""
    judgement = symptom.judgement
    if judgement.verdict is not Verdict.NETWORK:
        blamed = {one.rank for one in judgement.ranks}
        hosts = set(judgement.hosts)
        blamed |= {name for name, rank in symptom.ranks.items() if rank.host in hosts}
        if not blamed:
            return _Answer(1.0, "")
        if blamed & touched:
            return _Answer(1.0, f"{_ranks(blamed & touched)} {_is(blamed & touched)} blamed")
        return _Answer(NOT_BLAMED[judgement.verdict], "none of the ranks that are blamed use it")
    if not symptom.slow:
        return _Answer(1.0, "")
    slow = sum(bool(one & touched) for one in symptom.slow)
    fine = sum(bool(one & touched) for one in symptom.fine)
    share = slow / len(symptom.slow)
    reason = f"it is on the way of {slow} of {len(symptom.slow)} communicators that are slow"
    if fine:
        share *= 1 - fine / len(symptom.fine) / 2
        reason += f", and of {fine} of {len(symptom.fine)} that are not"
    return _Answer(share, reason)


def _time(symptom: Symptom, since: float) -> _Answer:
    """Ask whether an event was there when the symptom began."""
    before = symptom.since - since
    if before < -LATE_TO_TELL:
        return _Answer(AFTER, f"it began {_span(-before)} after the symptom: more likely a consequence")
    if before < 0:
        return _Answer(SOON_AFTER, f"it was seen {_span(-before)} after the symptom, which may be its own delay")
    if symptom.began is not None and since > symptom.began and before > HARMLESS + LATE_TO_TELL:
        return _Answer(HARMLESS_SO_FAR, f"it stood for {_span(before)} before the symptom, while the job ran well")
    if symptom.began is not None and since <= symptom.began and before > HARMLESS + LATE_TO_TELL:
        return _Answer(BEFORE_THE_JOB, "it was there before the job began")
    return _Answer(1.0, f"it began {_span(before)} before the symptom was told")


def _of_links(weighed: Iterable[_Weighed], fabric: Fabric) -> Iterable[Cause]:
    """Make one cause of all events of a link, or of a port whose peer is not known."""
    by_link: dict[frozenset[PortLocation], list[_Weighed]] = {}
    for one in weighed:
        port = fabric.named(one.event.port)
        by_link.setdefault(frozenset({port, fabric.peers.get(port, port)}), []).append(one)
    for found in by_link.values():
        found.sort(key=lambda one: -one.confidence)
        first = found[0]
        port = fabric.named(first.event.port)
        best: dict[str, float] = {}
        for one in found:
            best[one.event.kind] = max(best.get(one.event.kind, 0.0), one.confidence)
        confidence = min(1 - prod(1 - share for share in best.values()), MOST)
        evidence = tuple(dict.fromkeys(_said(one.event, one.rule) for one in found))
        yield Cause(
            first.rule.kind, port, fabric.peers.get(port), confidence, evidence, first.reasons, first.rule.remedy
        )


def _without_port(symptom: Symptom, found: Sequence[Cause], fabric: Fabric) -> Iterable[Cause]:
    """Give what is likely without any port, for ranks that are late or went no further."""
    judgement = symptom.judgement
    if judgement.verdict is Verdict.NETWORK or not judgement.ranks:
        return
    names = {one.rank for one in judgement.ranks}
    hosts = sorted({symptom.ranks[name].host for name in names if name in symptom.ranks})
    place = f"{_ranks(names)} on {', '.join(hosts[:5]) or 'a host that is not known'}"
    seen = "ports show something, too: see the other causes" if found else _seen(hosts, fabric)
    if judgement.verdict is Verdict.HANG:
        evidence = f"{place} went no further, while the others wait"
        remedy = "Look at what these processes do or said last: an error, a data loader, a debugger, a lost GPU."
        yield Cause("process", None, None, STOPPED, (evidence,), (seen,), remedy)
    else:
        yield _computing(judgement, place, seen)


def _computing(judgement: Judgement, place: str, seen: str) -> Cause:
    first = judgement.ranks[0]
    told = f"came last in {first.last} of {first.telling} operations" if first.telling else "comes last"
    evidence: tuple[str, ...] = (f"{place}: {first.rank} {told}, which costs {first.loss:.2g} s a second",)
    remedy = "Look at the GPU's clocks, temperature and power, at the process's CPU, and at its share of the data."
    if judgement.hosts:
        evidence += (f"all of {', '.join(judgement.hosts[:5])} is late, more than a single rank of it",)
        remedy = "Look at what the whole host shares: CPUs, memory, power caps, its data and what else runs there."
    if any(one.inside for one in judgement.ranks):
        return Cause("compute", None, None, COMPUTING_INSIDE, evidence, (LATE_INSIDE,), remedy)
    return Cause("compute", None, None, COMPUTING, evidence, (seen,), remedy)


def _work(symptom: Symptom) -> Cause:
    """Say that work is uneven: the rank that comes late changes, so that no place can be to blame."""
    evidence = (f"the mean rank waits {symptom.judgement.loss:.2g} s a second, for ranks that change",)
    remedy = "Look at how work is dealt out: lengths of sequences, routing to experts, garbage collection."
    return Cause("work", None, None, 0.7, evidence, ("no rank or host comes late more often than by chance",), remedy)


def _unknown(symptom: Symptom, fabric: Fabric) -> Cause:
    """Say that nobody knows."""
    hosts = sorted({rank.host for rank in symptom.ranks.values() if rank.host})
    share = symptom.judgement.bandwidth
    slow = () if share is None else (f"the slowest communicator has {share:.0%} of the bandwidth that it should have",)
    remedy = (
        "Compare with nccl-tests on the same hosts; what slows NCCL itself, or a switch that is not watched, shows so."
    )
    return Cause("unknown", None, None, 0.0, (*slow, _seen(hosts, fabric)), (), remedy)


def _seen(hosts: Sequence[str], fabric: Fabric) -> str:
    """Say that no port shows anything, and how many would tell."""
    told = sum(host in fabric.heard for host in hosts)
    if told == 0:
        return "no host of these tells of its ports, so that nothing is known of them"
    return f"no port of the job's hosts shows anything that explains it; {told} of {len(hosts)} tell of their ports"


def _said(event: Event, rule: CauseRule) -> str:
    """Give an event in words."""
    value = event.value
    shown = "an unknown share" if value is None else f"{value:.4g}"
    if value is not None and rule.shown == "share":
        shown = f"{value * 100:.3g}%"
    detail = f" ({event.detail})" if event.detail else ""
    return f"{_name(event.port)}: {rule.says.format(value=shown)}{detail}"


def _name(port: PortLocation) -> str:
    return f"{port.name} {port.port}".rstrip()


def _ranks(names: Iterable[str]) -> str:
    """Name ranks, of many the first."""
    ordered = sorted(names, key=lambda name: (len(name), name))
    first = ", ".join(ordered[:5])
    more = f" and {len(ordered) - 5} more" if len(ordered) > 5 else ""
    return f"rank{'s' if len(ordered) > 1 else ''} {first}{more}"


def _is(names: Iterable[str]) -> str:
    return "is" if len(list(names)) == 1 else "are"


def _span(seconds: float) -> str:
    """Give a span of time in words."""
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
