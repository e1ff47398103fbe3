"""What the configuration tells of training jobs: from it follows what a step needs, to be set beside what it takes."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from exporter.meaning.budget import Algorithm, Plan, Precision
from exporter.rules import RuleError, check_patterns
from exporter.units import Amount, BitRate

MAX_RANKS = 1 << 20
"""Ranks of a job, at most."""


class JobPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of jobs of one name or pattern.

    Attributes:
        parameters: Of the whole model.
        data_parallel: Ranks that each hold the same part of the model and see other data.
        model_parallel: Ranks that share one copy of the model: tensor times pipeline.
        precision: Of gradients and parameters as they are sent.
        sharding: Stage of ZeRO: 0 none, 1 states of the optimiser, 2 also gradients, 3 also parameters (FSDP).
        nodes: Hosts that a data-parallel group spans; None for one rank on each.
        algorithm: How AllReduce is done.
        link_speed: Of each link of a host; None where nothing is known of them.
        links: Of a host that carry the job …
        ranks_per_host: … and the ranks that share them.
        tokens_per_second: Of the whole job.
        peak_flops: Floating-point operations per second of one GPU.
    """

    parameters: Amount
    data_parallel: int
    model_parallel: int = 1
    precision: Precision = "bf16"
    sharding: Literal[0, 1, 2, 3] = 0
    nodes: int | None = None
    algorithm: Algorithm = "ring"
    link_speed: BitRate | None = None
    links: int = 8
    ranks_per_host: int = 8
    tokens_per_second: Amount | None = None
    peak_flops: Amount | None = None

    def __post_init__(self) -> None:
        """See that the numbers can be such.

        Raises:
            RuleError: One cannot.
        """
        for name in ("data_parallel", "model_parallel", "nodes", "links", "ranks_per_host"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MAX_RANKS:
                raise RuleError([name], f"is {value}; give a number from 1 to {MAX_RANKS}")
        if self.nodes is not None and self.nodes > self.data_parallel:
            raise RuleError(
                ["nodes"],
                f"is {self.nodes}, and only {self.data_parallel} ranks are data_parallel; a group spans at most as many"
                " hosts as it has ranks",
            )

    def plan(self) -> Plan:
        """Give it as what a budget is made from."""
        bandwidth = None if self.link_speed is None else self.link_speed * self.links / self.ranks_per_host
        return Plan(
            self.parameters,
            self.data_parallel,
            self.model_parallel,
            self.precision,
            self.sharding,
            self.nodes,
            self.algorithm,
            bandwidth,
            self.tokens_per_second,
            self.peak_flops,
        )


def plans(configured: Mapping[str, JobPlan]) -> tuple[tuple[str, Plan], ...]:
    """Give the plans of jobs, each with the pattern of their names, in the order of the configuration."""
    return tuple((pattern, one.plan()) for pattern, one in configured.items())


def check(configured: Mapping[str, JobPlan]) -> None:
    """See that the patterns of names are whole.

    Raises:
        RuleError: One is not.
    """
    for pattern in configured:
        try:
            check_patterns("", [pattern])
        except RuleError as error:
            raise RuleError(["jobs", pattern], error.text) from None
