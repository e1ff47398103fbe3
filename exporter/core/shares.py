"""Fair shares of what is bounded: one owner that names, sends or holds too much takes nothing from the others.

What messages name costs memory, and their senders choose the names. So each bound is shared: amounts by their
owner (`Shares`), and names by who brought them (`Admission`).
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)
Key = TypeVar("Key", bound=Hashable)

GRACE_SECONDS = 5.0
"""Seconds without a report after which a key gives way to a new one: hosts report more often than that."""

SEARCH_SECONDS = 0.1
"""Seconds between two searches for such a key: each looks at all of them."""

PROVEN_SECONDS = 10.0
"""Seconds of reports after which a key of one owner is proven, and …"""

PROVEN_FOR_SECONDS = 60.0
"""… seconds without a report after which it is no longer."""


class Shares(Generic[Owner]):
    """Amounts by owner. The limit is an argument, since it belongs to the caller.

    An owner may hold as much as is still free, and all of it while it is the only one: dynamic thresholds, as switches
    share their packet memory (Choudhury and Hahne, 1998). So n owners that want all get 1/(n + 1) each, the same amount
    stays free for those that want less, and the limit is never exceeded.

    Attributes:
        total: Sum of all amounts.
    """

    __slots__ = ("_held", "total")

    def __init__(self) -> None:
        self._held: dict[Owner, int] = {}
        self.total = 0

    def __len__(self) -> int:
        return len(self._held)

    def held(self, owner: Owner) -> int:
        """Return the amount of an owner."""
        return self._held.get(owner, 0)

    def has_room(self, owner: Owner, limit: int, largest: int | None = None, amount: int = 1) -> bool:
        """Return whether an owner may hold more.

        Args:
            owner: The owner.
            limit: Limit of the sum.
            largest: Limit of one owner; None where it is only the share.
            amount: How much more.
        """
        held = self._held.get(owner, 0) + amount
        free = limit - self.total - amount
        if free < 0 or (largest is not None and held > largest):
            return False
        return held - amount <= free or len(self._held) == (held > amount)

    def add(self, owner: Owner, amount: int = 1) -> None:
        """Add to the amount of an owner."""
        self._held[owner] = self._held.get(owner, 0) + amount
        self.total += amount

    def remove(self, owner: Owner, amount: int = 1) -> None:
        """Subtract from the amount of an owner; an owner without an amount is forgotten."""
        held = self._held.get(owner, 0)
        self.total -= min(amount, held)
        if held > amount:
            self._held[owner] = held - amount
        else:
            self._held.pop(owner, None)


@dataclass(slots=True)
class _Standing(Generic[Owner]):
    """Reports of a key: times of the first and the last, and its owner while there is one alone."""

    first: float
    last: float
    alone: Owner | None

    def is_proven(self, now: float) -> bool:
        """Return whether the key is hardly invented: several owners report it, or one did for a while."""
        lasted = self.alone is None or self.last - self.first >= PROVEN_SECONDS
        return lasted and now - self.last < PROVEN_FOR_SECONDS


class Admission(Generic[Key, Owner]):
    """Which keys are kept, of those that owners report. Both may be invented.

    A key that one owner alone reports counts as that owner's. Where the limit is reached, the owner with most such keys
    loses one to an owner with fewer; else the key goes that is not proven and was not reported for longest, but for
    GRACE_SECONDS at least. A proven key of an owner within its share never gives way.
    """

    def __init__(self) -> None:
        self._standings: dict[Key, _Standing[Owner]] = {}
        self._alone: dict[Owner, dict[Key, None]] = {}
        self._full_until = float("-inf")

    def __len__(self) -> int:
        return len(self._standings)

    def keys(self) -> set[Key]:
        """Return the keys that are kept."""
        return set(self._standings)

    def report(
        self, key: Key, owner: Owner, now: float, limit: int, of_one: int | None = None
    ) -> tuple[bool, Key | None]:
        """Report a key; return whether it is admitted, and the key that gave way to it.

        Args:
            key: The key.
            owner: Who reports it.
            now: Current time in seconds.
            limit: Keys at most.
            of_one: Keys at most that one owner alone reports; None for its share only.
        """
        known = self._standings.get(key)
        if known is not None:
            known.last = now
            if known.alone is not None and known.alone != owner:
                self._disown(key, known)
            return True, None
        own = self._alone.get(owner, {})
        evicted: Key | None = None
        if of_one is not None and len(own) >= of_one:
            evicted = self._idle(own, now)
        elif len(self._standings) >= limit:
            evicted = self._of_greediest(len(own), now)
            if evicted is None and now >= self._full_until:
                evicted = self._idle(self._standings, now)
                self._full_until = now + SEARCH_SECONDS if evicted is None else now
        else:
            self._add(key, owner, now)
            return True, None
        if evicted is None:
            return False, None
        self.forget(evicted)
        self._add(key, owner, now)
        return True, evicted

    def forget(self, key: Key) -> None:
        """Forget a key."""
        known = self._standings.get(key)
        if known is not None:
            self._disown(key, known)
            del self._standings[key]

    def _add(self, key: Key, owner: Owner, now: float) -> None:
        self._standings[key] = _Standing(now, now, owner)
        self._alone.setdefault(owner, {})[key] = None

    def _disown(self, key: Key, known: _Standing[Owner]) -> None:
        """Record that a key is not of one owner alone."""
        if known.alone is not None:
            keys = self._alone[known.alone]
            del keys[key]
            if not keys:
                del self._alone[known.alone]
            known.alone = None

    def _of_greediest(self, own: int, now: float) -> Key | None:
        """Return a key of the owner with most keys, the least proven; None where a new one would make another so."""
        keys = max(self._alone.values(), key=len, default={})
        if len(keys) <= own + 1:
            return None
        return min(keys, key=lambda key: (self._standings[key].is_proven(now), self._standings[key].last))

    def _idle(self, keys: "dict[Key, None] | dict[Key, _Standing[Owner]]", now: float) -> Key | None:
        """Return the key that is not proven and was not reported for longest; None where all were of late."""
        found = min(keys, key=lambda key: (self._standings[key].is_proven(now), self._standings[key].last))
        known = self._standings[found]
        return None if known.is_proven(now) or now - known.last < GRACE_SECONDS else found
