"""Plans of jobs: from the configuration of a job to the plan that its step budget is computed from."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from math import ceil
from typing import Literal, Protocol

from exporter.meaning.training.step_budget import Plan, budget

CONFIGURED = tuple(one.name for one in fields(Plan) if one.name not in {"nodes", "bandwidth"})
"""Fields of a plan that are configured as they are; the others are computed."""


class ConfiguredJob(Protocol):
    """A job as the configuration describes it; the fields that `Plan` has too mean the same."""

    @property
    def parameters(self) -> float: ...  # noqa: D102
    @property
    def active_parameters(self) -> float | None: ...  # noqa: D102
    @property
    def data_parallel(self) -> int: ...  # noqa: D102
    @property
    def model_parallel(self) -> int: ...  # noqa: D102
    @property
    def precision(self) -> str: ...  # noqa: D102
    @property
    def gradient_precision(self) -> str | None: ...  # noqa: D102
    @property
    def sharding(self) -> Literal[0, 1, 2, 3]: ...  # noqa: D102
    @property
    def accumulation(self) -> int: ...  # noqa: D102
    @property
    def algorithm(self) -> str: ...  # noqa: D102
    @property
    def tokens_per_step(self) -> float | None: ...  # noqa: D102
    @property
    def peak_flops(self) -> float | None: ...  # noqa: D102
    @property
    def least_mfu(self) -> float: ...  # noqa: D102

    @property
    def nodes(self) -> int | None:
        """Hosts that a data-parallel group spans; None for as many as all ranks need."""

    @property
    def link_speed(self) -> float | None:
        """Bytes per second of each link of a host."""

    @property
    def links(self) -> int:
        """Links of a host that carry the job."""

    @property
    def ranks_per_host(self) -> int:
        """Ranks that share them."""


def ranks_of(job: ConfiguredJob) -> int:
    """Return the number of ranks of the job."""
    return job.data_parallel * job.model_parallel


def plan_of(job: ConfiguredJob) -> Plan:
    """Return the plan of a configured job."""
    bandwidth = None if job.link_speed is None else job.link_speed * job.links / job.ranks_per_host
    hosts = min(job.data_parallel, ceil(ranks_of(job) / job.ranks_per_host))
    configured = {name: getattr(job, name) for name in CONFIGURED}
    return Plan(**configured, nodes=hosts if job.nodes is None else job.nodes, bandwidth=bandwidth)


def plans_of(configured: Mapping[str, ConfiguredJob]) -> tuple[tuple[str, Plan], ...]:
    """Return the plans of jobs, each with the pattern of their names, in the order of the configuration."""
    return tuple((pattern, plan_of(one)) for pattern, one in configured.items())


def described(configured: Mapping[str, ConfiguredJob]) -> Iterator[str]:
    """Describe what follows from each plan, one line each, for people who check their configuration."""
    for pattern, one in configured.items():
        plan = plan_of(one)
        expected = budget(plan).expected_network
        network = "" if expected is None else f", {expected:.3g} s of network a step at least"
        yield (
            f"jobs.{pattern}: {ranks_of(one)} ranks, data-parallel groups of {plan.data_parallel} on {plan.hosts}"
            f" host{'' if plan.hosts == 1 else 's'}{network}"
        )
