"""What is made of the tables of a source, and in which order."""

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
"""What is made of the tables, in this order."""


class Expectation(NamedTuple):
    """What is expected of a source's links; bytes per second.

    Attributes:
        speed: Of each link.
        of_carriers: Of links that carry RDMA, where the one before says nothing.
        ports: How many ports should be ready.
    """

    speed: float | None = None
    of_carriers: float | None = None
    ports: int | None = None


def steps(expected: Expectation, relay: Relay | None = None, judging: Step | None = None) -> list[Step]:
    """Give the meanings for a source, with what is expected of its links and of their number.

    Args:
        expected: What.
        relay: Takes timings away to those who judge them.
        judging: Judges jobs; None where nothing is known of them beside their timings.
    """
    made: list[Step] = [] if relay is None else [relay.step]
    made += [
        rates.step,
        burst_shares.step,
        congestion_ratios.step,
        partial(links.step, expected.speed, expected.of_carriers),
        imbalance.step,
        oversubscription.step,
        judging or partial(jobs.step, jobs.JobKnowledge()),
    ]
    return made if expected.ports is None else [*made, expectations.step]


def expected_of(name: str, expected: Expected) -> Expectation:
    """Give what the configuration expects of a source."""
    known = {
        "rdma": Expectation(expected.rdma_speed, ports=expected.rdma_ports),
        "nic": Expectation(expected.nic_speed, of_carriers=expected.rdma_speed),
    }
    return known.get(name, Expectation())
