"""Sharding: which of several equal exporters polls which target.

By rendezvous hashing: each target goes to the shard whose hash with its name is the highest. Nobody has to agree on
anything, and with one shard more or less only the targets of that shard move.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from typing import Self

_FORM = re.compile(r"(?:(?P<number>\d{1,6})|(?P<pod>.+-)(?P<ordinal>\d{1,6}))/(?P<count>\d{1,6})", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several.

    Attributes:
        number: Which one, from 0.
        count: Of how many.
    """

    number: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `2/5`, or `NAME-2/5` as the name of a StatefulSet's pod gives it.

        Raises:
            ValueError: It is none.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} is no shard: write NUMBER/COUNT such as 0/3, or the name of a pod such as sw-0/3"
            )
        number, count = int(found["number"] or found["ordinal"] or 0), int(found["count"])
        if not 0 <= number < count:
            raise ValueError(f"{text!r} is no shard: the number goes from 0 to {count - 1}")
        return cls(number, count)

    @classmethod
    def of_environment(cls) -> Self:
        """Read the variable FABRIC_SHARD; without it there is one shard.

        Raises:
            ValueError: It holds none.
        """
        text = os.environ.get("FABRIC_SHARD")
        if not text:
            return cls()
        try:
            return cls.parse(text)
        except ValueError as error:
            raise ValueError(f"FABRIC_SHARD: {error}") from None

    def owns(self, target: str) -> bool:
        """Tell whether a target is this shard's."""
        return self.count == 1 or owner(target, self.count) == self.number


def owner(target: str, count: int) -> int:
    """Give the number of the shard, of so many, that a target goes to."""
    return max(range(count), key=lambda number: (_score(target, number), number))


def _score(target: str, number: int) -> bytes:
    """Give the score of a target in a shard: the same in every process, which Python's own hash is not."""
    return hashlib.blake2b(f"{number}/{target}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
