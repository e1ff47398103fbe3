"""Runs: whether several jobs report under one name.

Each run has a rank 0, on a host of its own. A rank that keeps returning to a host where it was before is therefore two
ranks, of two runs. After a restart on other hosts a rank moves once, and reports that were delayed arrive together.

Runs of one name are not separated: they would need labels of their own, and which communicators belong together
is known only as far as ranks report from both. They are counted, and not judged.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

LASTING_SECONDS = 10.0
"""Seconds between the first and the last time that a rank came from another host, for this to be another run."""

VALID_SECONDS = 30.0
"""Seconds for which a rank that came from a host counts there: hosts report each 5."""

MAX_HOSTS = 8
"""Hosts of one rank that are stored."""

MAX_RANKS = 4096
"""Ranks whose hosts are stored: those of all runs of a name are alike."""


class _Claim(NamedTuple):
    """When a rank first and last came from a host after it had come from another one."""

    first: float
    last: float


@dataclass(slots=True)
class Claims:
    """Hosts that ranks came from, of the ranks that came from more than one."""

    _hosts: dict[str, dict[str, _Claim]] = field(default_factory=dict)

    def move(self, rank: str, host: str, now: float) -> None:
        """Record that a rank comes from another host than before."""
        if rank not in self._hosts and len(self._hosts) >= MAX_RANKS:
            return
        hosts = self._hosts.setdefault(rank, {})
        known = hosts.pop(host, None)
        first = now if known is None or now - known.last > VALID_SECONDS else known.first
        hosts[host] = _Claim(first, now)
        if len(hosts) > MAX_HOSTS:
            del hosts[next(iter(hosts))]

    def runs(self, now: float) -> int:
        """Return the number of runs that report now; what is too old is dropped."""
        for rank, hosts in list(self._hosts.items()):
            if all(now - one.last > VALID_SECONDS for one in hosts.values()):
                del self._hosts[rank]
        return max((_lasting(hosts.values(), now) for hosts in self._hosts.values()), default=1) or 1


def _lasting(claims: Iterable[_Claim], now: float) -> int:
    """Return from how many hosts a rank keeps coming."""
    return sum(now - one.last <= VALID_SECONDS and one.last - one.first >= LASTING_SECONDS for one in claims)
