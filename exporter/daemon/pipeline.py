"""The pipeline of a source: the steps that compute metrics from its tables, in their order."""

from functools import partial
from typing import NamedTuple

from exporter.config.schema import Expected
from exporter.core.poller import Step
from exporter.daemon.relay import Relay
from exporter.meaning.ports import bursts as burst_shares
from exporter.meaning.ports import (
    congestion_ratios,
    expectations,
    imbalance,
    links,
    oversubscription,
    rates,
)
from exporter.meaning.training import jobs

MEANINGS = (rates, burst_shares, congestion_ratios, links, imbalance, oversubscription, jobs, expectations)
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


def steps(expected: Expectation, relay: Relay | None = None, verdicts: Step | None = None) -> list[Step]:
    """Return the steps of a source.

    Args:
        expected: Expected speed and number of its links.
        relay: Publishes timings of jobs, of which no verdict is computed here then.
        verdicts: Computes verdicts on jobs; by default from their timings alone.
    """
    pipeline: list[Step] = [] if relay is None else [relay.step]
    pipeline += [
        rates.step,
        burst_shares.step,
        congestion_ratios.step,
        partial(links.step, expected.speed, expected.carrier_speed),
        imbalance.step,
        oversubscription.step,
        verdicts or partial(jobs.step, jobs.JobKnowledge()),
    ]
    return pipeline if expected.ports is None else [*pipeline, expectations.step]


def expected_of(name: str, expected: Expected) -> Expectation:
    """Return the expected links of a source, by its name."""
    known = {
        "rdma": Expectation(expected.rdma_speed, ports=expected.rdma_ports),
        "nic": Expectation(expected.nic_speed, carrier_speed=expected.rdma_speed),
    }
    return known.get(name, Expectation())
