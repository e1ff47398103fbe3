"""Causes: which port, or what else, explains the verdict on a job, with evidence and reasons.

Timings show what limits a job; events of ports show problems of the network, with or without the job. They are joined
by three questions. Kind: can such an event have this effect? Place: is it on the path of the ranks of the verdict, and
of all slow communicators? Time: did it begin with the symptom, and not long before without effect? Each answer is a
share with a reason; their product is the confidence. Events of both ends of a link, and several of one port, are one
cause.

A late rank is more often late before the network than in it, so that without evidence its cause is computing. If a job
is network-bound and no port has an event, the cause is unknown, and reported as such.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from exporter.meaning.ports.states import PortLocation
from exporter.meaning.training.cause_rules import RULES, CauseRule
from exporter.meaning.training.paths import (
    Event,
    Fabric,
    Paths,
    Rank,
    as_seen_by_host,
)
from exporter.meaning.training.verdicts import Judgement, Verdict
from exporter.meaning.training.wording import (
    is_or_are,
    location_text,
    ranks_text,
    span_text,
)

MIN_CONFIDENCE = 0.1
"""Confidence below which a cause is not reported."""

MAX_CONFIDENCE = 0.95
"""Maximum confidence of a cause."""

MAX_CAUSES = 10


AFTER, SOON_AFTER, HARMLESS_SO_FAR, BEFORE_THE_JOB, OVER = 0.2, 0.6, 0.4, 0.7, 0.2
"""Weight of the time of an event that did not begin with the symptom: after it (more likely its consequence); shortly
after it, which may be its own delay; long before it; before the job; or that was over before it."""

VERDICT_DELAY_SECONDS = 60.0
"""Maximum seconds from the begin of a symptom until its verdict: an event that began that much later is not later."""

HARMLESS_SECONDS = 600.0
"""Seconds for which an event was active while the job ran well, after which it is hardly the cause."""

COMPUTING, COMPUTING_INSIDE = 0.5, 0.9
"""Confidence that a late rank is late because of computing: without events of ports; and if it is late to ranks of its
own host, without a network in between."""

LATE_INSIDE = "the rank is late to ranks of its own host, with no network between them"

STOPPED = 0.4
"""Confidence that ranks which went no further stopped by themselves."""

NOT_AT_FAULT = MappingProxyType({Verdict.HANG: 0.3, Verdict.STRAGGLER: 0.1})
"""Weight of an event that affects none of the ranks at fault."""

INSIDE = 0.2
"""Weight of events if the late rank is late to ranks of its own host."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """The verdict on a job, with the locations of its ranks.

    Attributes:
        judgement: The verdict with its evidence.
        since: Time at which the verdict was first given.
        ranks: Locations of the ranks of the job.
        slow: Ranks of each slow communicator; empty if unknown.
        fine: Ranks of each other communicator between hosts.
        began: Time of the first timing of the job; None if unknown.
    """

    judgement: Judgement
    since: float
    ranks: Mapping[str, Rank]
    slow: Sequence[frozenset[str]] = ()
    fine: Sequence[frozenset[str]] = ()
    began: float | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """A possible cause of a symptom.

    Attributes:
        kind: Kind of the event that explains most; or `compute`, `process`, `work`, `unknown`.
        port: The port; None if it is not a port.
        peer: The other end of its link, if known.
        confidence: From 0 to 1, to rank causes.
        evidence: What was measured, as text.
        reasons: Reasons for and against.
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
        """The confidence as a word."""
        if self.kind == "unknown":
            return "unknown"
        return "strong" if self.confidence >= 0.6 else "likely" if self.confidence >= 0.3 else "possible"


class _Answer(NamedTuple):
    """Answer to one of the questions: a share of 1, and the reason."""

    share: float
    reason: str


class _Weighed(NamedTuple):
    """An event with its confidence."""

    event: Event
    rule: CauseRule
    confidence: float
    reasons: tuple[str, ...]


def causes(symptom: Symptom, events: Iterable[Event], fabric: Fabric) -> list[Cause]:
    """Return the possible causes of a verdict, the likeliest first; empty for a verdict without symptom."""
    verdict = symptom.judgement.verdict
    if verdict in (Verdict.FINE, Verdict.UNKNOWN):
        return []
    if verdict is Verdict.IMBALANCED:
        return [_work(symptom)]
    paths = Paths(symptom.ranks, fabric)
    seen = (as_seen_by_host(event, fabric) for event in events)
    known = [(event, RULES[event.kind]) for event in seen if event.kind in RULES]
    job_affected = any(
        rule.is_effect and paths.affected(event, rule, job_affected=False) is not None for event, rule in known
    )
    weighed = [
        one
        for event, rule in known
        if (one := _weigh(symptom, paths, event, rule, job_affected=job_affected)) is not None
    ]
    of_ports = [one for one in _of_links(weighed, fabric) if one.confidence >= MIN_CONFIDENCE]
    found = sorted([*of_ports, *_without_port(symptom, of_ports, fabric)], key=lambda one: -one.confidence)
    return found[:MAX_CAUSES] or [_unknown(symptom, fabric)]


def _weigh(symptom: Symptom, paths: Paths, event: Event, rule: CauseRule, *, job_affected: bool) -> _Weighed | None:
    """Answer the three questions for an event; None if it cannot be a cause."""
    verdict = symptom.judgement.verdict
    kind = {Verdict.NETWORK: rule.slow, Verdict.HANG: rule.hang, Verdict.STRAGGLER: rule.late}[verdict]
    affected = paths.affected(event, rule, job_affected=job_affected) if kind else None
    if affected is None:
        return None
    place = _place(symptom, affected.ranks)
    time = _time(symptom, event)
    answers = [_Answer(affected.share, affected.reason), place, time]
    inside = verdict is Verdict.STRAGGLER and any(one.inside for one in symptom.judgement.ranks)
    if inside:
        answers.append(_Answer(INSIDE, LATE_INSIDE))
    confidence = kind * prod(one.share for one in answers)
    return _Weighed(event, rule, confidence, tuple(one.reason for one in answers if one.reason))


def _place(symptom: Symptom, affected: frozenset[str]) -> _Answer:
    """Answer whether an event affects the ranks of the verdict."""
    judgement = symptom.judgement
    if judgement.verdict is not Verdict.NETWORK:
        at_fault = {one.rank for one in judgement.ranks}
        hosts = set(judgement.hosts)
        at_fault |= {name for name, rank in symptom.ranks.items() if rank.host in hosts}
        if not at_fault:
            return _Answer(1.0, "")
        if at_fault & affected:
            return _Answer(1.0, f"{ranks_text(at_fault & affected)} {is_or_are(at_fault & affected)} at fault")
        return _Answer(NOT_AT_FAULT[judgement.verdict], "none of the ranks at fault use it")
    if not symptom.slow:
        return _Answer(1.0, "")
    slow = sum(bool(one & affected) for one in symptom.slow)
    fine = sum(bool(one & affected) for one in symptom.fine)
    share = slow / len(symptom.slow)
    reason = f"it is on the path of {slow} of {len(symptom.slow)} communicators that are slow"
    if fine:
        share *= 1 - fine / len(symptom.fine) / 2
        reason += f", and of {fine} of {len(symptom.fine)} that are not"
    return _Answer(share, reason)


def _time(symptom: Symptom, event: Event) -> _Answer:
    """Answer whether an event began with the symptom. One that was over before may have an effect only on a hang."""
    since = event.since
    before = symptom.since - since
    if event.quiet_since is not None and symptom.judgement.verdict is not Verdict.HANG:
        gap = symptom.since - event.quiet_since
        if gap > VERDICT_DELAY_SECONDS:
            return _Answer(OVER, f"it was over {span_text(gap)} before the symptom was reported")
    if before < -VERDICT_DELAY_SECONDS:
        return _Answer(AFTER, f"it began {span_text(-before)} after the symptom: more likely a consequence")
    if before < 0:
        return _Answer(SOON_AFTER, f"it was seen {span_text(-before)} after the symptom, which may be its own delay")
    if symptom.began is not None and since > symptom.began and before > HARMLESS_SECONDS + VERDICT_DELAY_SECONDS:
        reason = f"it was active for {span_text(before)} before the symptom, while the job ran well"
        return _Answer(HARMLESS_SO_FAR, reason)
    if symptom.began is not None and since <= symptom.began and before > HARMLESS_SECONDS + VERDICT_DELAY_SECONDS:
        return _Answer(BEFORE_THE_JOB, "it was active before the job began")
    return _Answer(1.0, f"it began {span_text(before)} before the symptom was reported")


def _of_links(weighed: Iterable[_Weighed], fabric: Fabric) -> Iterable[Cause]:
    """Yield one cause for all events of a link, or of a port whose peer is unknown."""
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
        confidence = min(1 - prod(1 - share for share in best.values()), MAX_CONFIDENCE)
        evidence = tuple(dict.fromkeys(_event_text(one.event, one.rule) for one in found))
        yield Cause(
            first.rule.kind, port, fabric.peers.get(port), confidence, evidence, first.reasons, first.rule.remedy
        )


def _without_port(symptom: Symptom, found: Sequence[Cause], fabric: Fabric) -> Iterable[Cause]:
    """Yield causes other than ports, for ranks that are late or went no further."""
    judgement = symptom.judgement
    if judgement.verdict is Verdict.NETWORK or not judgement.ranks:
        return
    names = {one.rank for one in judgement.ranks}
    hosts = sorted({symptom.ranks[name].host for name in names if name in symptom.ranks})
    place = f"{ranks_text(names)} on {', '.join(hosts[:5]) or 'an unknown host'}"
    seen = "ports have events, too: see the other causes" if found else _no_events_text(hosts, fabric)
    if judgement.verdict is Verdict.HANG:
        evidence = f"{place} went no further while the others wait"
        remedy = "Check what these processes do and logged last: an error, a data loader, a debugger, a lost GPU."
        yield Cause("process", None, None, STOPPED, (evidence,), (seen,), remedy)
    else:
        yield _computing(judgement, place, seen)


def _computing(judgement: Judgement, place: str, seen: str) -> Cause:
    first = judgement.ranks[0]
    last = f"came last in {first.last} of {first.decisive} steps" if first.decisive else "comes last"
    evidence: tuple[str, ...] = (f"{place}: {first.rank} {last}, which costs {first.loss:.2g} s per second",)
    remedy = "Check the GPU's clocks, temperature and power, at the process's CPU, and its share of the data."
    if judgement.hosts:
        evidence += (f"all of {', '.join(judgement.hosts[:5])} is late, more than a single rank of it",)
        remedy = "Check what the whole host shares: CPUs, memory, power caps, its data and other processes."
    if any(one.inside for one in judgement.ranks):
        return Cause("compute", None, None, COMPUTING_INSIDE, evidence, (LATE_INSIDE,), remedy)
    return Cause("compute", None, None, COMPUTING, evidence, (seen,), remedy)


def _work(symptom: Symptom) -> Cause:
    """Return the cause of imbalanced work: the rank that is last changes, so that no place is at fault."""
    evidence = (f"the median rank waits {symptom.judgement.loss:.2g} s per second, for ranks that change",)
    remedy = "Check how work is distributed: sequence lengths, routing to experts, garbage collection."
    return Cause("work", None, None, 0.7, evidence, ("no rank or host comes late more often than by chance",), remedy)


def _unknown(symptom: Symptom, fabric: Fabric) -> Cause:
    """Return the cause of a verdict without any other."""
    hosts = sorted({rank.host for rank in symptom.ranks.values() if rank.host})
    share = symptom.judgement.bandwidth
    slow = () if share is None else (f"the slowest communicator has {share:.0%} of the expected bandwidth",)
    remedy = (
        "Compare with nccl-tests on the same hosts, to separate NCCL and the job from hosts and switches not monitored."
    )
    return Cause("unknown", None, None, 0.0, (*slow, _no_events_text(hosts, fabric)), (), remedy)


def _no_events_text(hosts: Sequence[str], fabric: Fabric) -> str:
    """Return a text that no port has events, and how many hosts report theirs."""
    reporting = sum(host in fabric.reporting_hosts for host in hosts)
    if reporting == 0:
        return "none of these hosts reports its ports"
    return f"no port of the job's hosts has an event that explains it; {reporting} of {len(hosts)} report their ports"


def _event_text(event: Event, rule: CauseRule) -> str:
    """Return an event as text."""
    value = event.value
    shown = "an unknown share" if value is None else f"{value:.4g}"
    if value is not None and rule.value_format == "share":
        shown = f"{value * 100:.3g}%"
    detail = f" ({event.detail})" if event.detail else ""
    return f"{location_text(event.port)}: {rule.text.format(value=shown)}{detail}"
