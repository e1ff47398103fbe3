"""Sharding: which of several equal exporters polls which target.

By rendezvous hashing: each target belongs to the shard whose hash with the name of the target is the highest. The
shards need no coordination, and when their number changes by one, only the targets of that shard move.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from typing import Self

from exporter.config.errors import UserError

_FORM = re.compile(
    r"(?:(?P<number>\d{1,6})|(?P<pod>.{1,253}-)(?P<ordinal>\d{1,6}))/(?P<count>\d{1,6})", re.ASCII | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of several.

    Attributes:
        number: Its number, from 0.
        count: Number of shards.
    """

    number: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `2/5`, or `NAME-2/5` with the pod name of a StatefulSet.

        Raises:
            UserError: The text has neither form, or the number is out of range.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise UserError(
                f"{text!r} is not a shard: give NUMBER/COUNT such as 0/3, or the name of a pod such as sw-0/3"
            )
        number, count = int(found["number"] or found["ordinal"] or 0), int(found["count"])
        if not 0 <= number < count:
            raise UserError(f"{text!r} is not a shard: the number must be from 0 to {count - 1}")
        return cls(number, count)

    @classmethod
    def from_environment(cls) -> Self:
        """Parse the environment variable FABRIC_SHARD; one shard if it is not set.

        Raises:
            UserError: Its value is invalid.
        """
        text = os.environ.get("FABRIC_SHARD")
        if not text:
            return cls()
        try:
            return cls.parse(text)
        except UserError as error:
            raise UserError(f"FABRIC_SHARD: {error}") from None

    def owns(self, target: str) -> bool:
        """Return whether a target belongs to this shard."""
        return self.count == 1 or owner(target, self.count) == self.number


def owner(target: str, count: int) -> int:
    """Return the number of the shard that a target belongs to."""
    return max(range(count), key=lambda number: (_score(target, number), number))


def _score(target: str, number: int) -> bytes:
    """Return the hash of a target and a shard: the same in every process, unlike the hash of Python."""
    return hashlib.blake2b(f"{number}/{target}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
