"""GPU-seconds that a job lost, by the verdict that names the loss.

While a verdict names a loss, the time of all ranks that report here counts by that share: each has one GPU. All of it
is lost while the job hangs; what late ranks cost, or the median rank waits, is the loss of a straggler and of
imbalanced work. A slow network costs what its collectives take beyond the expected time, at most: computing may
overlap with them. Ranks are counted where they are evaluated, so that the sums of hosts without a collector add up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.core.vocabulary import Ending, counter
from exporter.meaning.training.bandwidth import seconds_too_long
from exporter.meaning.training.records import Job
from exporter.meaning.training.steps import is_live
from exporter.meaning.training.verdicts import Judgement, Verdict

CAUSES = (Verdict.HANG, Verdict.STRAGGLER, Verdict.NETWORK, Verdict.IMBALANCED)
"""Verdicts that name a loss."""

MAX_SECONDS = 30.0
"""Seconds between two evaluations that count at most: of a process that was stopped for longer, nothing is known."""

LOST: Mapping[str, Ending] = MappingProxyType(
    {
        "lost_gpu_seconds_total": counter(
            "Time that the GPUs of the job's ranks lost, one per rank that reports here, by the verdict that names the"
            " loss: all time of a hang, what late ranks cost (straggler), what the median rank waits"
            " (imbalanced_work), and what collectives take beyond the expected time, at most (network_bound). Absent"
            " before the first verdict. Redundant collectors count the same time."
        )
    }
)
"""By job and cause."""


@dataclass(slots=True)
class LostTime:
    """Seconds that the ranks of a job lost by cause, empty before the first verdict, and the last evaluation."""

    seconds: dict[Verdict, float] = field(default_factory=dict)
    evaluated: float | None = None


def add(lost: LostTime, job: Job, judgement: Judgement, step: float | None, now: float) -> None:
    """Add the loss since the last evaluation.

    Args:
        lost: The sums; changed.
        job: The job.
        judgement: The verdict on it.
        step: Seconds of a step, if known.
        now: Current time.
    """
    passed = 0.0 if lost.evaluated is None else min(max(now - lost.evaluated, 0.0), MAX_SECONDS)
    lost.evaluated = now
    verdict = judgement.verdict
    if verdict is not Verdict.UNKNOWN and not lost.seconds:
        lost.seconds = dict.fromkeys(CAUSES, 0.0)
    if verdict in CAUSES and passed:
        loss = seconds_too_long(job, judgement.communicators) if verdict is Verdict.NETWORK else judgement.loss
        lost.seconds[verdict] += passed * min(loss, 1.0) * _ranks(job, step)


def _ranks(job: Job, step: float | None) -> int:
    """Return the number of ranks in communicators that have a part in the job."""
    return len({rank for name, one in job.communicators.items() if is_live(job, name, step) for rank in one.members})
