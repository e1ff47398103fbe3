"""Results of checks: ok, warn, fail, unknown and not applicable, of one object each."""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.core.printable import printable
from exporter.preflight.facts import HostFacts


class Result(enum.Enum):
    """What a check found for an object."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check for one object.

    Attributes:
        object: The port, function or process; the host's name for what concerns the whole host.
        result: The result.
        evidence: What was read, as a sentence; of an unknown result, what would reveal it.
        remedy: What to do, with its side effect; empty unless the result is warn or fail.
    """

    object: str
    result: Result
    evidence: str
    remedy: str = ""


def ok(name: str, evidence: str) -> Finding:
    """Return a result that needs no attention."""
    return Finding(name, Result.OK, evidence)


def warn(name: str, evidence: str, remedy: str) -> Finding:
    """Return a result that may cost throughput, or is right only at some sites."""
    return Finding(name, Result.WARN, evidence, remedy)


def fail(name: str, evidence: str, remedy: str) -> Finding:
    """Return a result that costs throughput, or stops jobs."""
    return Finding(name, Result.FAIL, evidence, remedy)


def unknown(name: str, needs: str) -> Finding:
    """Return the result where something cannot be read; `needs` is what would reveal it."""
    return Finding(name, Result.UNKNOWN, needs)


def not_applicable(name: str, reason: str) -> Finding:
    """Return the result for an object that has nothing to check."""
    return Finding(name, Result.NOT_APPLICABLE, reason)


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its name, what it compares, and the function that does.

    Attributes:
        name: Label value of `check`, and argument of `--only`.
        title: What should hold.
        needs: Fields of HostFacts without which there is no result.
        judge: Returns the results for all objects of a host; none where there is no such object.
    """

    name: str
    title: str
    needs: Sequence[str]
    judge: Callable[[HostFacts], Iterable[Finding]]


def evaluate(checks: Sequence[Check], facts: HostFacts) -> Mapping[str, Sequence[Finding]]:
    """Return the results by check; a check without an object is not applicable to the host."""
    return {check.name: tuple(_results(check, facts)) for check in checks}


def _results(check: Check, facts: HostFacts) -> Sequence[Finding]:
    unread = [kind.replace("_", " ") for kind in check.needs if kind in facts.unread]
    if unread:
        return [
            unknown(
                facts.host, f"{' and '.join(unread)} could not be read; see the error on standard error, or in the log"
            )
        ]
    found = [
        replace(one, object=printable(one.object, "?"), evidence=printable(one.evidence, "?"))
        for one in check.judge(facts)
    ]
    return found or [not_applicable(facts.host, "this host has nothing of that kind")]


def counts(results: Sequence[Finding]) -> Mapping[Result, int]:
    """Return the number of objects by result, of all results."""
    counted = Counter(one.result for one in results)
    return {result: counted[result] for result in Result}
