"""Section `jobs` of the configuration: the plan of training jobs, by name or pattern."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from math import ceil
from types import MappingProxyType
from typing import Literal

import msgspec

from exporter.config.errors import RuleError, check_patterns
from exporter.config.units import Amount, BitRate

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]
"""Number formats of parameters and gradients as transmitted."""

Algorithm = Literal["ring", "tree", "sharp"]
"""Algorithms of AllReduce."""

MIN_MFU = 0.4
"""Model FLOPs utilization below which an alert fires, unless the configuration sets another."""

MIN_AMOUNTS = MappingProxyType(
    {
        "parameters": (1e6, "B"),
        "active_parameters": (1e6, "B"),
        "tokens_per_step": (1e3, "M"),
        "peak_flops": (1e9, "T"),
    }
)
"""Amounts below which a unit letter is probably missing, with that letter."""

MAX_RANKS = 1 << 20
"""Maximum number of ranks of a job."""


class JobPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Plan of the jobs whose names match one pattern.

    Attributes:
        parameters: Parameters of the whole model.
        active_parameters: Parameters used by one token, for a mixture of experts; None for all.
        data_parallel: Ranks that hold the same part of the model and process different data.
        model_parallel: Ranks that share one copy of the model: tensor parallel size times pipeline parallel size.
        precision: Number format of parameters as transmitted.
        gradient_precision: Number format of gradients as transmitted; None for that of parameters.
        sharding: ZeRO stage: 0 none, 1 optimizer states, 2 also gradients, 3 also parameters (FSDP).
        accumulation: Micro-batches whose gradients are accumulated into one step.
        algorithm: Algorithm of AllReduce.
        tokens_per_step: Tokens of one step of the whole job.
        peak_flops: Peak floating-point operations per second of one GPU.
        least_mfu: Model FLOPs utilization below which an alert fires.
        nodes: Hosts that a data-parallel group spans; None to compute them from the number of ranks per host.
        link_speed: Speed of each link of a host; None if unknown.
        links: Links of a host that carry the job.
        ranks_per_host: Ranks that share the links of a host.
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
    least_mfu: float = MIN_MFU

    def __post_init__(self) -> None:
        """Validate the numbers.

        Raises:
            RuleError: A number is out of range or contradicts another.
        """
        self._check_numbers()
        if self.active_parameters is not None and self.active_parameters > self.parameters:
            raise RuleError(["active_parameters"], f"is more than parameters, {self.parameters:g}; give at most that")
        if self.nodes is not None:
            self._check_nodes(self.nodes)
        if self.algorithm != "ring" and self.sharding:
            raise RuleError(
                ["algorithm"],
                f"is {self.algorithm!r}, an algorithm of AllReduce, which sharding {self.sharding} does not"
                " use; remove it",
            )

    def _check_numbers(self) -> None:
        for name in ("data_parallel", "model_parallel", "accumulation", "nodes", "links", "ranks_per_host"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MAX_RANKS:
                raise RuleError([name], f"is {value}; give a number from 1 to {MAX_RANKS}")
        for name, (least, letter) in MIN_AMOUNTS.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise RuleError([name], f"is {value:g}, which is too small; did you mean {value:g}{letter}?")
        if not 0 < self.least_mfu < 1:
            raise RuleError(["least_mfu"], f"is {self.least_mfu:g}; give a share between 0 and 1, such as 0.4")

    def _check_nodes(self, nodes: int) -> None:
        if nodes > self.data_parallel:
            raise RuleError(
                ["nodes"],
                f"is {nodes}, more than the {self.data_parallel} ranks of data_parallel; a group spans at most as many"
                " hosts as it has ranks",
            )
        if nodes * self.ranks_per_host < self.data_parallel:
            raise RuleError(
                ["nodes"],
                f"is {nodes}, with ranks_per_host {self.ranks_per_host}; the {self.data_parallel} ranks of"
                f" data_parallel need {ceil(self.data_parallel / self.ranks_per_host)} hosts or more",
            )


def check(configured: Mapping[str, JobPlan]) -> None:
    """Validate the patterns of job names: well-formed, and not hidden by an earlier pattern.

    Raises:
        RuleError: A pattern is malformed or can never be used.
    """
    previous: list[str] = []
    for pattern in configured:
        if not pattern:
            raise RuleError(["jobs"], "a pattern is empty and matches no job; give a name, or '*' for all jobs")
        try:
            check_patterns("", [pattern])
        except RuleError as error:
            raise RuleError(["jobs", pattern], error.text) from None
        # A pattern whose only wildcards are stars that matches another pattern as a text matches all of its names too.
        earlier = next((one for one in previous if not set("?[") & set(one) and fnmatchcase(pattern, one)), None)
        if earlier is not None:
            raise RuleError(
                ["jobs", pattern],
                f"is never used: {earlier!r} comes before it and matches the same names; put it first",
            )
        previous.append(pattern)
