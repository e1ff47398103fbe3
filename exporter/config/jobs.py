"""What the configuration tells of training jobs: from it follows what a step needs, to be set beside what it takes."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from math import ceil
from typing import Literal

import msgspec

from exporter.config.errors import RuleError, check_patterns
from exporter.config.units import Amount, BitRate
from exporter.meaning.training.step_budget import (
    LEAST_MFU,
    Algorithm,
    Plan,
    Precision,
    budget,
)

LEAST = {
    "parameters": (1e6, "B"),
    "active_parameters": (1e6, "B"),
    "tokens_per_step": (1e3, "M"),
    "peak_flops": (1e9, "T"),
}
"""Amounts below which a letter is missing, and which."""

TOLD = tuple(one.name for one in fields(Plan) if one.name not in {"nodes", "bandwidth"})
"""What of a plan is configured as it is; the rest follows."""

MAX_RANKS = 1 << 20
"""Ranks of a job, at most."""


class JobPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of jobs of one name or pattern.

    What `Plan` has too means the same there.

    Attributes:
        nodes: Hosts that a data-parallel group spans; None for as many as all ranks need, and it has ranks for.
        link_speed: Of each link of a host; None where nothing is known of them.
        links: Of a host that carry the job …
        ranks_per_host: … and the ranks that share them.
    """

    parameters: Amount
    active_parameters: Amount | None = None
    data_parallel: int
    model_parallel: int = 1
    precision: Precision = "bf16"
    gradient_precision: Precision | None = None
    sharding: Literal[0, 1, 2, 3] = 0
    accumulation: int = 1
    nodes: int | None = None
    algorithm: Algorithm = "ring"
    link_speed: BitRate | None = None
    links: int = 8
    ranks_per_host: int = 8
    tokens_per_step: Amount | None = None
    peak_flops: Amount | None = None
    least_mfu: float = LEAST_MFU

    def __post_init__(self) -> None:
        """See that the numbers can be such.

        Raises:
            RuleError: One cannot.
        """
        self._check_numbers()
        if self.active_parameters is not None and self.active_parameters > self.parameters:
            raise RuleError(["active_parameters"], f"is more than parameters, {self.parameters:g}; give a part of them")
        if self.nodes is not None:
            self._check_nodes(self.nodes)
        if self.algorithm != "ring" and self.sharding:
            raise RuleError(
                ["algorithm"],
                f"is {self.algorithm!r}, which is of AllReduce, and sharding {self.sharding} does none; leave it out",
            )

    def _check_numbers(self) -> None:
        for name in ("data_parallel", "model_parallel", "accumulation", "nodes", "links", "ranks_per_host"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MAX_RANKS:
                raise RuleError([name], f"is {value}; give a number from 1 to {MAX_RANKS}")
        for name, (least, letter) in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise RuleError([name], f"is {value:g}, which is too few; was {value:g}{letter} meant?")
        if not 0 < self.least_mfu < 1:
            raise RuleError(["least_mfu"], f"is {self.least_mfu:g}; give a share between 0 and 1, such as 0.4")

    def _check_nodes(self, nodes: int) -> None:
        if nodes > self.data_parallel:
            raise RuleError(
                ["nodes"],
                f"is {nodes}, and only {self.data_parallel} ranks are data_parallel; a group spans at most as many"
                " hosts as it has ranks",
            )
        if nodes * self.ranks_per_host < self.data_parallel:
            raise RuleError(
                ["nodes"],
                f"is {nodes}, with ranks_per_host {self.ranks_per_host}; the {self.data_parallel} ranks of"
                f" data_parallel need {ceil(self.data_parallel / self.ranks_per_host)} hosts or more",
            )

    @property
    def ranks(self) -> int:
        """Ranks of the job."""
        return self.data_parallel * self.model_parallel

    def plan(self) -> Plan:
        """Give it as what a budget is made from."""
        bandwidth = None if self.link_speed is None else self.link_speed * self.links / self.ranks_per_host
        hosts = min(self.data_parallel, ceil(self.ranks / self.ranks_per_host))
        told = {name: getattr(self, name) for name in TOLD}
        return Plan(**told, nodes=hosts if self.nodes is None else self.nodes, bandwidth=bandwidth)


def plans(configured: Mapping[str, JobPlan]) -> tuple[tuple[str, Plan], ...]:
    """Give the plans of jobs, each with the pattern of their names, in the order of the configuration."""
    return tuple((pattern, one.plan()) for pattern, one in configured.items())


def check(configured: Mapping[str, JobPlan]) -> None:
    """See that the patterns of names are whole, and that each can be reached.

    Raises:
        RuleError: One is not, or cannot.
    """
    before: list[str] = []
    for pattern in configured:
        if not pattern:
            raise RuleError(["jobs"], "a pattern is empty, and no job is called so; name a job, or give '*'")
        try:
            check_patterns("", [pattern])
        except RuleError as error:
            raise RuleError(["jobs", pattern], error.text) from None
        # Whatever a pattern with stars alone fits as a text, it fits as all that this one stands for.
        hiding = next((one for one in before if not set("?[") & set(one) and fnmatchcase(pattern, one)), None)
        if hiding is not None:
            raise RuleError(
                ["jobs", pattern], f"is never used: {hiding!r} stands before it and fits the same names; put it first"
            )
        before.append(pattern)


def told(configured: Mapping[str, JobPlan]) -> Iterator[str]:
    """Say of each plan what follows from it, for people who check their configuration."""
    for pattern, one in configured.items():
        plan = one.plan()
        expected = budget(plan).expected_network
        network = "" if expected is None else f", {expected:.3g} s of network a step at least"
        yield (
            f"jobs.{pattern}: {one.ranks} ranks, data-parallel groups of {plan.data_parallel} on {plan.hosts}"
            f" host{'' if plan.hosts == 1 else 's'}{network}"
        )
