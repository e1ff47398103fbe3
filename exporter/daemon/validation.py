"""What is wrong with a configuration only as a whole, though every part of it is good; and how many switches it has.

A pattern that fits no metric is a typo; what is expected of ports that nobody reads is never told; a switch that is
polled and probed is asked twice as often as anybody meant.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from exporter.config.errors import RuleError
from exporter.config.schema import Config
from exporter.core.table import Metric
from exporter.daemon.probe import ProbeOptions, is_allowed, places_of
from exporter.sources.switch.options import Target
from exporter.sources.switch.targets import SwitchOptions, resolve_targets


def check_fits(
    steps: Sequence[str | int], patterns: Iterable[str], metrics: Sequence[Metric], *, details: bool
) -> None:
    """See that every pattern of `drop` fits a metric, and of `keep` a detail: one that fits none is a typo.

    Args:
        steps: Keys that lead to the patterns.
        patterns: The patterns.
        metrics: All that they may fit.
        details: Whether they are to fit details.

    Raises:
        RuleError: One fits none.
    """
    for place, pattern in enumerate(patterns):
        if not any(fnmatchcase(metric.name, pattern) for metric in metrics if metric.detail or not details):
            what = "detail" if details else "metric"
            raise RuleError([*steps, place], f"{pattern!r} fits no {what}; docs/metrics.md lists their full names")


def check_expectations(config: Config, host: str) -> None:
    """See that ports whose number is expected are read: else nothing would be said of them, whatever is gone.

    Args:
        config: The configuration.
        host: The name of this host.

    Raises:
        RuleError: They are not.
    """
    ports = config.expect.for_host(host).rdma_ports
    if ports is not None and not config.sources["rdma"].enabled:
        raise RuleError(
            ["expect", *config.expect.path_of("rdma_ports", host)],
            f"is {ports} for the host {host!r}, and sources.rdma.enabled is false, so that no port is counted; remove"
            " one of the two",
        )


def check_classes(config: Config) -> None:
    """See the same for every class of hosts, where a file is checked for a whole fleet.

    Raises:
        RuleError: They are not.
    """
    for place, one in enumerate(config.expect.classes):
        if one.rdma_ports is not None and not config.sources["rdma"].enabled:
            raise RuleError(
                ["expect", "classes", place, "rdma_ports"],
                f"is {one.rdma_ports}, and sources.rdma.enabled is false, so that no port is counted; remove one of"
                " the two",
            )


def check_probe(options: ProbeOptions, switches: SwitchOptions) -> None:
    """See that nothing that is polled in the background may be probed as well.

    Raises:
        RuleError: Something may.
    """
    for target, _ in resolve_targets(switches):
        if target.poll and any(is_allowed(host, options.allow) for host, _ in places_of(target)):
            raise RuleError(
                ["probe", "allow"],
                f"allows {target.address!r}, which is the switch {target.name!r} that is polled in the background; give"
                " that `poll: false`, or allow less",
            )


def counted(switches: Sequence[Target]) -> str:
    """Say how many switches there are, of each role and by each way, and how many are not polled."""
    roles = Counter(target.role for target in switches if target.role)
    ways = Counter(way for target in switches for way in target.protocols())
    on_demand = sum(not target.poll for target in switches)
    told = [f"{count} {role}" for role, count in sorted(roles.items())]
    told += [f"{count} by {way}" for way, count in sorted(ways.items())]
    told += [f"{on_demand} on demand"] if on_demand else []
    return f"{len(switches)} target{'' if len(switches) == 1 else 's'}" + (f" ({', '.join(told)})" if told else "")
