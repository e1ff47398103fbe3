"""Checks of a configuration as a whole: errors that no section has on its own.

A pattern that matches no metric is a typo. Expected ports are not checked where ports are not read.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from exporter.config.errors import RuleError
from exporter.config.schema import Config
from exporter.core.definition import Definition
from exporter.core.table import Metric


def check_matches(
    steps: Sequence[str | int], patterns: Iterable[str], metrics: Sequence[Metric], *, details: bool
) -> None:
    """Check that each pattern of `drop` matches a metric, or of `keep` a detail.

    Args:
        steps: Keys that lead to the patterns.
        patterns: The patterns.
        metrics: The metrics.
        details: Whether only details count.

    Raises:
        RuleError: A pattern matches none.
    """
    for place, pattern in enumerate(patterns):
        if not any(fnmatchcase(metric.name, pattern) for metric in metrics if metric.detail or not details):
            what = "detail" if details else "metric"
            raise RuleError([*steps, place], f"{pattern!r} matches no {what}; docs/metrics.md lists their full names")


def check_expectations(config: Config, host: str, definitions: Iterable[Definition]) -> None:
    """Check that ports are read where their number is expected: otherwise a missing port is never reported.

    Raises:
        RuleError: They are not.
    """
    expected = config.expect.for_host(host)
    for definition in definitions:
        key = definition.expect.ports
        count = getattr(expected, key) if key else None
        if count is not None and not config.sources[definition.name].enabled:
            raise RuleError(
                ["expect", *config.expect.path_of(key, host)],
                f"is {count} for the host {host!r}, and sources.{definition.name}.enabled is false, so that no port is"
                " counted; remove one of the two",
            )


def check_classes(config: Config, definitions: Iterable[Definition]) -> None:
    """Check the same for each class of hosts, where one file serves a fleet.

    Raises:
        RuleError: Ports are expected of a class and not read.
    """
    counted = [one for one in definitions if one.expect.ports and not config.sources[one.name].enabled]
    for place, one in enumerate(config.expect.classes):
        for definition in counted:
            key = definition.expect.ports
            if getattr(one, key) is not None:
                raise RuleError(
                    ["expect", "classes", place, key],
                    f"is {getattr(one, key)}, and sources.{definition.name}.enabled is false, so that no port is"
                    " counted; remove one of the two",
                )
