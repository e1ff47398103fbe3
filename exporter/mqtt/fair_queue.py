"""The queue of a collector: received messages by sender, taken in turns, so that none waits for another's many.

A sender has a share of the room, beyond which its own oldest messages are dropped, and a rate of operations: those
above it wait, encoded, until the sender has credit again, while the messages of others are taken.
"""

from collections import OrderedDict, deque
from collections.abc import Container, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from exporter.core.shares import Shares

SENDER_RATE = 8192.0
"""Operations per second of one sender: those of eight GPUs with a thousand collectives a second each."""

SENDER_BURST = 16_384.0
"""Operations of a sender that are taken at once after a pause."""

MESSAGE_OVERHEAD = 256
"""Bytes that a queued message takes beside its payload: many empty ones fill memory too."""

MAX_CREDITS = 65_536
"""Senders whose credit is kept; beyond that the least recently received one begins again with all of it."""


class Message(NamedTuple):
    """A message: its topic, and its payload as it was received."""

    topic: str
    payload: bytes


@dataclass(slots=True)
class _Credit:
    """Operations that a sender may send; below 0 after a batch that was larger."""

    operations: float
    at: float

    def renew(self, now: float) -> float:
        """Add what has grown since the last call, and return the credit."""
        self.operations = min(SENDER_BURST, self.operations + (now - self.at) * SENDER_RATE)
        self.at = now
        return self.operations


class FairQueue:
    """Messages by sender.

    Args:
        max_bytes: Bytes of all messages.

    Attributes:
        bytes: Bytes of the queued messages, with their overhead.
        dropped: Messages dropped, of senders that had more than their share.
    """

    def __init__(self, max_bytes: int) -> None:
        self.bytes = 0
        self.dropped = 0
        self._max_bytes = max_bytes
        self._messages: OrderedDict[str, deque[Message]] = OrderedDict()
        self._shares: Shares[str] = Shares()
        self._credits: OrderedDict[str, _Credit] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, sender: str, message: Message) -> None:
        """Add a message; where the sender has no room for it, its oldest ones are dropped, or else this one."""
        size = _size(message)
        while not self._shares.has_room(sender, self._max_bytes, amount=size):
            self.dropped += 1
            if sender not in self._messages:
                return
            self._take(sender)
        self._shares.add(sender, size)
        self._messages.setdefault(sender, deque()).append(message)
        self.bytes += size
        self._count += 1

    def get(self, busy: Container[str] = ()) -> tuple[str, Message] | None:
        """Return the oldest message of the next sender that has credit and is not busy; None if there is none."""
        for sender in list(self._messages):
            if sender not in busy and self.has_credit(sender):
                message = self._take(sender)
                if sender in self._messages:
                    self._messages.move_to_end(sender)
                return sender, message
        return None

    def has_credit(self, sender: str) -> bool:
        """Return whether a sender may send operations."""
        return self._credit(sender).renew(monotonic()) > 0

    def spend(self, sender: str, operations: int) -> None:
        """Subtract operations from the credit of a sender."""
        self._credit(sender).operations -= operations

    def seconds_to_credit(self, busy: Iterable[str] = ()) -> float | None:
        """Return the seconds until a busy sender, or one of a queued message, has credit; None where there is none."""
        least = min((-self._credit(sender).operations for sender in {*busy, *self._messages}), default=None)
        return None if least is None else max(least / SENDER_RATE, 0.0) + 0.001

    def _credit(self, sender: str) -> _Credit:
        found = self._credits.get(sender)
        if found is None:
            if len(self._credits) >= MAX_CREDITS:
                self._credits.popitem(last=False)
            found = self._credits[sender] = _Credit(SENDER_BURST, monotonic())
        self._credits.move_to_end(sender)
        return found

    def _take(self, sender: str) -> Message:
        messages = self._messages[sender]
        message = messages.popleft()
        if not messages:
            del self._messages[sender]
        size = _size(message)
        self._shares.remove(sender, size)
        self.bytes -= size
        self._count -= 1
        return message


def _size(message: Message) -> int:
    return len(message.payload) + MESSAGE_OVERHEAD
