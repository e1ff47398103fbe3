"""The section `jobs` of the configuration: what is known of training jobs beforehand, by name or pattern."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from math import ceil
from typing import Literal

import msgspec

from exporter.config.errors import RuleError, check_patterns
from exporter.config.units import Amount, BitRate

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]
"""Number formats of parameters and gradients as they are sent."""

Algorithm = Literal["ring", "tree", "sharp"]
"""Algorithms of AllReduce."""

LEAST_MFU = 0.4
"""Share of the GPUs' peak below which something is wrong, unless the configuration sets another."""

LEAST = {
    "parameters": (1e6, "B"),
    "active_parameters": (1e6, "B"),
    "tokens_per_step": (1e3, "M"),
    "peak_flops": (1e9, "T"),
}
"""Amounts below which a letter is missing, and which."""

MAX_RANKS = 1 << 20
"""Ranks of a job, at most."""


class JobPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of jobs of one name or pattern.

    Attributes:
        parameters: Of the whole model.
        active_parameters: Those that one token uses, for a mixture of experts; None for all.
        data_parallel: Ranks that each hold the same part of the model and see other data.
        model_parallel: Ranks that share one copy of the model: tensor times pipeline.
        precision: Of parameters as they are sent.
        gradient_precision: Of gradients; None where it is the same.
        sharding: Stage of ZeRO: 0 none, 1 optimiser states, 2 also gradients, 3 also parameters (FSDP).
        accumulation: Batches whose gradients make one step.
        algorithm: Algorithm of AllReduce.
        tokens_per_step: Of the whole job.
        peak_flops: Floating-point operations per second of one GPU.
        least_mfu: Share of the peak below which something is wrong.
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
