"""How much of a rank's lateness is its own, and not the time that it waited for another stage of the pipeline.

Records of sends and receives show for how long a rank was in them, but not in which of its steps. What it waited there
is taken from its lateness in proportion. So a rank that waits in each fifth step is not charged with that step, as one
that waits in each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp
from statistics import median_low

from exporter.meaning.training.records import EXCHANGE_SECONDS, Communicator, Job


@dataclass(slots=True)
class RecentCosts:
    """What late ranks of a communicator cost in recent steps; older ones count less, as the time in exchanges does.

    Attributes:
        time: Time of the last step.
        steps: Number of steps.
        costs: Microseconds by rank.
    """

    time: float = 0.0
    steps: float = 0.0
    costs: dict[str, float] = field(default_factory=dict)

    def add(self, costs: Mapping[str, float], time: float) -> None:
        """Add a step."""
        kept = exp(min(self.time - time, 0.0) / EXCHANGE_SECONDS)
        self.time, self.steps = max(self.time, time), self.steps * kept + 1
        self.costs = {rank: cost * kept for rank, cost in self.costs.items()}
        for rank, cost in costs.items():
            self.costs[rank] = self.costs.get(rank, 0.0) + cost

    def own_shares(self, waited: Mapping[str, float]) -> dict[str, float]:
        """Return the share of its lateness that is its own, by rank that waited elsewhere.

        Args:
            waited: Microseconds of a step that ranks waited elsewhere.
        """
        return {
            rank: max(1 - microseconds * self.steps / self.costs[rank], 0.0) if self.costs.get(rank) else 0.0
            for rank, microseconds in waited.items()
        }


def waited_elsewhere(job: Job, communicator: Communicator, seconds: float, now: float) -> dict[str, float]:
    """Return the microseconds of a step that members wait for other stages of a pipeline, above the median member.

    Args:
        job: The job.
        communicator: One of its communicators.
        seconds: Seconds of a step.
        now: Current time.
    """
    shares = {rank: job.exchanges[rank].share(now) for rank in communicator.members if rank in job.exchanges}
    if len(shares) < len(communicator.members):
        return {}
    usual = median_low(shares.values())
    return {rank: (share - usual) * seconds * 1e6 for rank, share in shares.items() if share > usual}
