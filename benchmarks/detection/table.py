"""The tables of docs/detection.md, of the outcomes of runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from exporter.simulator.fabric.fault_table import KINDS

from .runs import HEALTHY, AlertSeen, Outcome
from .truth import ALERTS, Target

PAGES = frozenset({"critical", "warning"})
"""Severities of alerts that reach somebody."""

EVIDENCE_AIM, CRITICAL_AIM, WARNING_AIM = 60.0, 180.0, 720.0


class Found(NamedTuple):
    """What a run shows of its fault; times are seconds from the onset, None where there was none.

    Attributes:
        evidence: To the first sign: a right alert's expression is true, or its rank or link is suspected.
        page: To the first right alert that fires.
        severity: Of that one; empty where there is none.
        right: Alerts that fired and name the target.
        elsewhere: Alerts that fired and name something else.
        causes: Whether likely causes of the job's trouble were given.
        place: Place of the target in their list at the end, from 1; None where it is not in it.
    """

    evidence: float | None
    page: float | None
    severity: str
    right: int
    elsewhere: int
    causes: bool
    place: int | None


def found_in(outcome: Outcome) -> Found:
    """Return what a run with a fault shows."""
    plan, target = outcome.plan, Target(outcome.plan.fault, outcome.plan.target)
    after = [one for one in outcome.alerts if one.true >= plan.onset and _is_page(one)]
    right = [one for one in after if one.labels["alertname"] in ALERTS[plan.fault] and target.is_named_by(one.labels)]
    fired = [one for one in after if one.fired is not None]
    named = [one for one in fired if target.is_named_by(one.labels) or "train_job" in one.labels]
    signs = [one.true for one in right]
    causes: Sequence[bool] = ()
    for evidence in outcome.evidence:
        if evidence.time >= plan.onset:
            late = evidence.stragglers
            of_ports = [target.is_cause(kind, name, port, late) for name, port, kind in evidence.states]
            of_job = [target.is_cause(kind, name, port, late) for kind, name, port, _ in evidence.causes]
            is_shown = evidence.sign or any([*of_ports, *of_job]) or bool(set(late) & target.ranks)
            signs += [evidence.time] if is_shown else []
            causes = of_job or causes
    pages = sorted((one.fired, one.labels["severity"]) for one in right if one.fired is not None)
    place = next((place for place, is_right in enumerate(causes, 1) if is_right), None)
    return Found(
        min(signs) - plan.onset if signs else None,
        pages[0][0] - plan.onset if pages else None,
        pages[0][1] if pages else "",
        len(named),
        len(fired) - len(named),
        bool(causes),
        place,
    )


def _is_page(alert: AlertSeen) -> bool:
    return alert.labels.get("severity") in PAGES


def false_alarms(outcomes: Iterable[Outcome]) -> tuple[float, float, Counter[str]]:
    """Return the hours before onsets, those of whole healthy runs, and the alerts that fired in either, by name."""
    before = whole = 0.0
    names: Counter[str] = Counter()
    for one in outcomes:
        is_healthy = one.plan.fault == HEALTHY
        before += 0.0 if is_healthy else one.plan.onset
        whole += one.plan.seconds if is_healthy else 0.0
        fired = [alert for alert in one.alerts if alert.fired is not None and _is_page(alert)]
        names.update(alert.labels["alertname"] for alert in fired if (alert.fired or 0.0) < one.plan.onset)
    return before / 3600, whole / 3600, names


def tables(outcomes: Sequence[Outcome]) -> str:
    """Return the text between the markers of the page."""
    by_fault: Mapping[str, list[Found]] = {fault: [] for fault in KINDS}
    for one in outcomes:
        if one.plan.fault != HEALTHY:
            by_fault[one.plan.fault].append(found_in(one))
    rows = [_row(fault, found) for fault, found in by_fault.items() if found]
    head = [
        "| fault | runs | evidence | page | severity | recall | precision | first cause |",
        "|---|---:|---:|---:|---|---:|---:|---:|",
    ]
    return "\n".join([*_summary(outcomes, by_fault), "", *head, *rows]) + "\n"


def _summary(outcomes: Sequence[Outcome], by_fault: Mapping[str, Sequence[Found]]) -> list[str]:
    every = [one for found in by_fault.values() for one in found]
    before, whole, names = false_alarms(outcomes)
    alarms = ", ".join(f"{name} ({count})" for name, count in sorted(names.items())) or "none"
    soon = sum(one.evidence is not None and one.evidence <= EVIDENCE_AIM for one in every)
    lists = [one for one in every if one.causes]
    first = _share(sum(one.place == 1 for one in lists), len(lists))
    return [
        f"* {len(every)} runs with a fault; {sum(one.page is not None for one in every)} paged for the right place.",
        f"* Evidence within {EVIDENCE_AIM:g} s in {_share(soon, len(every))} of them.",
        *_within("critical", CRITICAL_AIM, every),
        *_within("warning", WARNING_AIM, every),
        f"* Of {len(lists)} runs in which the job was in trouble, the first likely cause was the fault in {first}.",
        f"* False alarms in {before:.1f} hours before faults and {whole:.1f} hours without any: {alarms}.",
    ]


def _within(severity: str, seconds: float, found: Sequence[Found]) -> list[str]:
    times = [one.page for one in found if one.severity == severity and one.page is not None]
    if not times:
        return []
    share = _share(sum(time <= seconds for time in times), len(times))
    return [f"* First page {severity}: within {seconds / 60:g} minutes in {share} of {len(times)} runs."]


def _row(fault: str, found: Sequence[Found]) -> str:
    pages = Counter(one.severity for one in found if one.severity)
    fired = sum(one.right + one.elsewhere for one in found)
    listed = [one for one in found if one.causes]
    cells = [
        fault,
        str(len(found)),
        _times([one.evidence for one in found]),
        _times([one.page for one in found]),
        ", ".join(sorted(pages)),
        _share(sum(one.page is not None for one in found), len(found)),
        _share(sum(one.right for one in found), fired),
        _share(sum(one.place == 1 for one in listed), len(listed)),
    ]
    return f"| {' | '.join(cells)} |"


def _times(found: Sequence[float | None]) -> str:
    """Return the median and the longest time; the number of runs without one counts as longest."""
    times = sorted(time for time in found if time is not None)
    if not times:
        return "never"
    missing = len(found) - len(times)
    most = f"{times[-1]:.0f}" if not missing else f"{missing} never"
    return f"{median(times):.0f} s ({most})" if missing else f"{median(times):.0f} s ({most} s)"


def _share(count: int, of: int) -> str:
    return f"{count / of:.0%}" if of else ""
