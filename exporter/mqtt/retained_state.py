"""State received in retained messages: active port states, daemons that are present, levels of jobs, host settings."""

from dataclasses import dataclass
from time import monotonic, time
from typing import Generic, TypeVar

import msgspec

from exporter.core.shares import Shares
from exporter.mqtt import host_settings, states
from exporter.mqtt.host_settings import Settings, decode_settings
from exporter.mqtt.job_levels import JobLevels
from exporter.mqtt.states import Presence, StateKey, StateMessage
from exporter.mqtt.topics import EVENTS, HOSTS, SETTINGS, parse_host_topic, parse_settings_topic

MAX_HOSTS = 65_536
"""Hosts whose presence is kept."""

MAX_STATES_OF_ONE = 8192
"""States of one host or switch: eight of each port of the largest switch."""

SETTLE_SECONDS = 15.0
"""Seconds after a new connection in which the broker sends its retained messages; entries not sent by then expire."""

Key = TypeVar("Key")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Item]):
    item: Item
    owner: str
    amount: int
    received_at: float


class _ExpiringEntries(Generic[Key, Item]):
    """A bounded dictionary whose entries expire; each owner has a share of it.

    Args:
        limit: Sum of the amounts of all entries.
        of_one: The same of one owner.
        expiry: Seconds after which an entry expires.

    Attributes:
        dropped: Entries dropped because their owner had no room.
    """

    def __init__(self, limit: int, of_one: int, expiry: float) -> None:
        self._limit, self._of_one, self._expiry = limit, of_one, expiry
        self._entries: dict[Key, _Entry[Item]] = {}
        self._shares: Shares[str] = Shares()
        self.dropped = 0

    def put(self, key: Key, owner: str, item: Item, amount: int = 1) -> None:
        """Add or replace an entry; without room for it, the previous one of its key is removed too."""
        before = self._entries.get(key)
        more = amount - (0 if before is None else before.amount)
        if more > 0 and not self._shares.has_room(owner, self._limit, self._of_one, more):
            self.dropped += 1
            self.remove(key)
            return
        self._shares.add(owner, max(more, 0))
        self._shares.remove(owner, max(-more, 0))
        self._entries[key] = _Entry(item, owner, amount, monotonic())

    def get(self, key: Key) -> Item | None:
        """Return the item of a key, None if there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry.item

    def remove(self, key: Key) -> None:
        removed = self._entries.pop(key, None)
        if removed is not None:
            self._shares.remove(removed.owner, removed.amount)

    def expire(self, since: float) -> None:
        """Remove entries received before a time, and expired ones."""
        since = max(since, monotonic() - self._expiry)
        for key in [key for key, entry in self._entries.items() if entry.received_at < since]:
            self.remove(key)

    def current(self, since: float) -> dict[Key, Item]:
        """Return the items received after a time that have not expired; thread-safe."""
        since = max(since, monotonic() - self._expiry)
        return {key: entry.item for key, entry in self._entries.copy().items() if entry.received_at >= since}


class RetainedState:
    """The port states, daemons, levels and settings of the retained messages.

    Attributes:
        levels: Best levels of jobs.
    """

    def __init__(self) -> None:
        self.levels = JobLevels()
        self._states: _ExpiringEntries[StateKey, StateMessage] = _ExpiringEntries(
            states.MAX_STATES, MAX_STATES_OF_ONE, states.EXPIRY
        )
        self._hosts: _ExpiringEntries[str, Presence] = _ExpiringEntries(MAX_HOSTS, 1, states.GONE_EXPIRY)
        self._settings: _ExpiringEntries[str, bytes] = _ExpiringEntries(  # encoded, as they take least memory
            host_settings.MAX_TOTAL, host_settings.MAX_MESSAGE, states.EXPIRY
        )
        self._connected_at = float("-inf")

    @property
    def dropped(self) -> int:
        """States, hosts, levels and settings dropped because of the limits."""
        return self._states.dropped + self._hosts.dropped + self.levels.dropped + self._settings.dropped

    def expire(self) -> None:
        """Remove expired entries; called periodically by the task that receives messages."""
        self._states.expire(self._valid_since())
        self._hosts.expire(self._valid_since())
        self._settings.expire(self._valid_since())

    def on_connect(self) -> None:
        """Record a new connection: the broker sends all retained messages again, except those cleared meanwhile."""
        self._connected_at = monotonic()

    def receive(self, topic: str, payload: bytes) -> bool:
        """Process a message; return whether its topic is one of states, hosts, levels or settings.

        Raises:
            FormatError: The payload is invalid.
            TopicError: The topic is invalid.
        """
        if topic.startswith(f"{EVENTS}/"):
            key, state = states.decode_state(topic, payload)
            if state is None:
                self._states.remove(key)
            else:
                self._states.put(key, key[0], self._begun(key, state))
            return True
        if topic.startswith(f"{HOSTS}/"):
            host = parse_host_topic(topic)
            if payload:
                self._hosts.put(host, host, states.decode_presence(payload))
            else:
                self._hosts.remove(host)
            return True
        if topic.startswith(f"{SETTINGS}/"):
            host = parse_settings_topic(topic)
            if payload:
                decode_settings(payload)
                self._settings.put(host, host, payload, len(payload))
            else:
                self._settings.remove(host)
            return True
        return self.levels.receive(topic, payload)

    def _begun(self, key: StateKey, state: StateMessage) -> StateMessage:
        """Return a state that began when its first message arrived, if the clock of its host is ahead of ours."""
        now = time()
        if state.since <= now:
            return state
        before = self._states.get(key)
        is_known = before is not None and before.number == state.number
        return msgspec.structs.replace(state, since=before.since if before is not None and is_known else now)

    def states(self) -> dict[StateKey, StateMessage]:
        """Return the active states by name, port and kind; thread-safe."""
        return self._states.current(self._valid_since())

    def hosts(self) -> dict[str, Presence]:
        """Return the presence of daemons by host; thread-safe."""
        return self._hosts.current(self._valid_since())

    def settings(self) -> dict[str, Settings]:
        """Return the settings by host; thread-safe."""
        return {host: decode_settings(one) for host, one in self._settings.current(self._valid_since()).items()}

    def _valid_since(self) -> float:
        """Return the time before which entries are outdated: the last connect, once all messages have been sent."""
        return self._connected_at if monotonic() - self._connected_at >= SETTLE_SECONDS else float("-inf")
