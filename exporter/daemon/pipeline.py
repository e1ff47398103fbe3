"""The pipeline of a source: the steps that compute metrics from its tables, in their order."""

from functools import partial
from typing import NamedTuple

from exporter.config.schema import Expected
from exporter.core.definition import ExpectKeys, SourceSteps
from exporter.core.poller import Step
from exporter.meaning.ports import bursts as burst_shares
from exporter.meaning.ports import (
    congestion_ratios,
    expectations,
    imbalance,
    links,
    oversubscription,
    rates,
    sampled_speeds,
    speeds,
)
from exporter.meaning.training import jobs, transport

MEANINGS = (
    speeds,
    sampled_speeds,
    rates,
    burst_shares,
    congestion_ratios,
    links,
    imbalance,
    oversubscription,
    transport,
    jobs,
    expectations,
)
"""The modules of all steps."""


class Expectation(NamedTuple):
    """Expected links of a source; speeds in bytes per second.

    Attributes:
        speed: Of each link.
        carrier_speed: Of links that carry RDMA, where `speed` is None.
        ports: Number of ports that should be ready.
    """

    speed: float | None = None
    carrier_speed: float | None = None
    ports: int | None = None


def steps(expected: Expectation, own: SourceSteps, verdicts: Step | None = None) -> list[Step]:
    """Return the steps of a source.

    Args:
        expected: Expected speed and number of its links.
        own: Steps of its kind of source.
        verdicts: Computes verdicts on jobs where its kind has no step of its own; by default from timings alone.
    """
    pipeline: list[Step] = [
        *own.first,
        speeds.step,
        sampled_speeds.step,
        rates.step,
        burst_shares.step,
        congestion_ratios.step,
        partial(links.step, expected.speed, expected.carrier_speed),
        imbalance.step,
        oversubscription.step,
        own.verdicts or verdicts or partial(jobs.step, jobs.JobKnowledge()),
    ]
    return pipeline if expected.ports is None else [*pipeline, expectations.step]


def expectation_of(keys: ExpectKeys, expected: Expected) -> Expectation:
    """Return the expected links of a source, by the keys of the section `expect` that apply to it."""
    return Expectation(*(getattr(expected, key) if key else None for key in keys))
