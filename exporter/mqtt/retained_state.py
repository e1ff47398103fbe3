"""What the retained messages say now: states of ports that are active, and which daemons are there."""

from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from exporter.mqtt import states
from exporter.mqtt.states import Presence, State
from exporter.mqtt.topics import EVENTS, HOSTS, parse_host_topic

MAX_HOSTS = 65_536
"""Hosts of which it is kept whether their daemon is there."""

SETTLED = 15.0
"""Seconds after a new connection until the broker has told all that it retains; what it did not tell again is over."""

Key = TypeVar("Key")
Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Told]):
    told: Told
    at: float


class _Kept(Generic[Key, Told]):
    """Entries within a bound, which end with their time.

    Attributes:
        left_out: Those that there was no room for.
    """

    def __init__(self, most: int, expiry: float) -> None:
        self._most, self._expiry = most, expiry
        self._entries: dict[Key, _Entry[Told]] = {}
        self.left_out = 0

    def put(self, key: Key, told: Told) -> None:
        if key not in self._entries and len(self._entries) >= self._most:
            self.left_out += 1
        else:
            self._entries[key] = _Entry(told, monotonic())

    def remove(self, key: Key) -> None:
        self._entries.pop(key, None)

    def forget(self, since: float) -> None:
        """Forget what was told before a time, or is too old."""
        since = max(since, monotonic() - self._expiry)
        self._entries = {key: entry for key, entry in self._entries.items() if entry.at >= since}

    def current(self, since: float) -> dict[Key, Told]:
        """Give what was told after a time and is not too old; from any thread."""
        since = max(since, monotonic() - self._expiry)
        return {key: entry.told for key, entry in self._entries.copy().items() if entry.at >= since}


class Board:
    """The states and daemons that retained messages told of."""

    def __init__(self) -> None:
        self._states: _Kept[tuple[str, str, str], State] = _Kept(states.MAX_STATES, states.EXPIRY)
        self._hosts: _Kept[str, Presence] = _Kept(MAX_HOSTS, states.GONE_EXPIRY)
        self._connected = float("-inf")

    @property
    def left_out(self) -> int:
        """States and hosts that there was no room for."""
        return self._states.left_out + self._hosts.left_out

    def forget(self) -> None:
        """Forget what is over; to be called now and then, by whoever lets this hear."""
        self._states.forget(self._retold())
        self._hosts.forget(self._retold())

    def begin(self) -> None:
        """Note a new connection: the broker tells all that it retains again, and not what was cleared meanwhile."""
        self._connected = monotonic()

    def hear(self, topic: str, payload: bytes) -> bool:
        """Take a message; tell whether it is one of these.

        Raises:
            FormatError: It cannot be used.
            TopicError: Likewise.
        """
        if topic.startswith(f"{EVENTS}/"):
            key, state = states.decode_state(topic, payload)
            if state is None:
                self._states.remove(key)
            else:
                self._states.put(key, state)
            return True
        if topic.startswith(f"{HOSTS}/"):
            host = parse_host_topic(topic)
            if payload:
                self._hosts.put(host, states.decode_presence(payload))
            else:
                self._hosts.remove(host)
            return True
        return False

    def states(self) -> dict[tuple[str, str, str], State]:
        """Give the active states by name, port and kind; from any thread."""
        return self._states.current(self._retold())

    def hosts(self) -> dict[str, Presence]:
        """Give which daemons are there or gone, by host; from any thread."""
        return self._hosts.current(self._retold())

    def _retold(self) -> float:
        """Give since when all that is the case must have been told."""
        return self._connected if monotonic() - self._connected >= SETTLED else float("-inf")
