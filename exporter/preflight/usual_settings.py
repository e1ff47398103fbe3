"""Settings that most hosts of a class, or of a job, have alike, and hosts that have another value."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from exporter.preflight.fleet import MIN_HOSTS
from exporter.preflight.settings import Setting

USUAL_SHARE = 0.5
"""Share of the hosts with a setting above which a value of it is usual."""


def usual_settings(hosts: Mapping[str, Iterable[Setting]]) -> dict[Setting, float]:
    """Return the usual values, each with its share of the hosts that have the setting.

    A setting of less than MIN_HOSTS hosts has no usual value. A host may have several values of a setting, and then
    counts for each; so a setting may have several usual values.
    """
    by_value: Counter[Setting] = Counter()
    by_setting: Counter[tuple[str, str]] = Counter()
    for settings in hosts.values():
        own = set(settings)
        by_value.update(own)
        by_setting.update({one[:2] for one in own})
    shares = {one: number / by_setting[one[:2]] for one, number in by_value.items()}
    return {one: share for one, share in shares.items() if share > USUAL_SHARE and by_setting[one[:2]] >= MIN_HOSTS}


def unusual_settings(hosts: Mapping[str, Iterable[Setting]], usual: Iterable[Setting]) -> Iterator[tuple[str, Setting]]:
    """Yield each host with each of its values that is not usual, where there is a usual one."""
    values: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for one in usual:
        values[one[:2]].add(one.value)
    for host, settings in sorted(hosts.items()):
        yield from ((host, one) for one in sorted(set(settings)) if one.value not in values.get(one[:2], {one.value}))
