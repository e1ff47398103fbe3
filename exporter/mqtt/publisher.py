"""The side of a host: batches go out as they come, and the states of ports stand at the broker while they last.

Nobody waits for the broker: batches go into a buffer of bounded size, of which the oldest make room while the broker is
away; a gap in their numbers tells collectors how many. One message is under way at a time, and leaves the buffer when
the broker confirms it: what is sent twice for that is known by its number.
"""

import asyncio
import logging
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from types import TracebackType
from typing import Self

import aiomqtt
from paho.mqtt.packettypes import PacketTypes

from exporter.mqtt import states
from exporter.mqtt.connection import (
    Backoff,
    Client,
    Link,
    Role,
    expiring,
    keep_connected,
)
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.states import Place, Presence, State
from exporter.mqtt.topics import batch_topic, event_topic, host_topic
from exporter.nccl.batch import Batch
from exporter.nccl.batch_codec import encode
from exporter.nccl.decoding import FormatError

log = logging.getLogger(__name__)

MAX_WAITING = 4096
"""Batches in the buffer."""

MAX_WAITING_BYTES = 16 * 1024 * 1024

MAX_TRIES = 5
"""Times that a message is sent: a broker may end the connection for what it finds too large."""

MAX_JOBS = 256
"""Jobs whose numbering goes on; one that was silent longest makes room, and begins anew if it comes back."""

LAST_WORDS = 3.0
"""Seconds at the end to send what waits, and to clear what is retained."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that waits for the broker.

    Attributes:
        topic: Where it goes.
        payload: What goes there.
        since: Seconds of the monotonic clock of its coming.
        tries: How often it was sent, and the connection ended without an answer.
    """

    topic: str
    payload: bytes
    since: float
    tries: int = 0


class Buffer:
    """Messages that wait, within bounds; the oldest make room.

    Args:
        most: Messages.
        most_bytes: Bytes of all of them together.
        expiry: Seconds after which one is worthless.

    Attributes:
        dropped: Messages that made room or became worthless.
        bytes: Bytes that wait.
    """

    def __init__(self, most: int, most_bytes: int, expiry: float) -> None:
        self._most, self._most_bytes, self._expiry = most, most_bytes, expiry
        self._messages: deque[Waiting] = deque()
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Waiting) -> None:
        """Add the newest message."""
        self._messages.append(message)
        self.bytes += len(message.payload)
        while len(self._messages) > self._most or self.bytes > self._most_bytes:
            self._pop()
            self.dropped += 1

    def put_back(self, message: Waiting) -> None:
        """Add again the one that was taken last, if there is room still, and it is not what ends the connections."""
        has_room = len(self._messages) < self._most and self.bytes + len(message.payload) <= self._most_bytes
        if has_room and message.tries + 1 < MAX_TRIES:
            self._messages.appendleft(replace(message, tries=message.tries + 1))
            self.bytes += len(message.payload)
        else:
            self.dropped += 1

    def take(self) -> Waiting | None:
        """Take the oldest message that is worth something; None where there is none."""
        while self._messages:
            message = self._pop()
            if monotonic() - message.since < self._expiry:
                return message
            self.dropped += 1
        return None

    def _pop(self) -> Waiting:
        message = self._messages.popleft()
        self.bytes -= len(message.payload)
        return message


@dataclass(slots=True)
class _Numbering:
    epoch: str
    tick: int = 0


class Publisher:
    """Publishes for one host, from `async with` on; nothing of it waits or raises where it is used.

    Args:
        options: The broker.
        host: Name of this host.
        backoff: How long to wait between tries to connect.

    Attributes:
        link: How it goes with the broker.
        sent: Batches that the broker took.
        refused: Batches that it did not, such as for lack of a right.
        invalid: Batches that were offered and could not be written.
        left_out: States of the last `show` that are not told: beyond MAX_STATES, or of names that no topic can have.
    """

    def __init__(self, options: MqttOptions, host: str, backoff: Backoff | None = None) -> None:
        self.link = Link()
        self.sent = 0
        self.refused = 0
        self.invalid = 0
        self.left_out = 0
        self._options, self._host = options, host
        self._backoff = backoff or Backoff()
        self._buffer = Buffer(MAX_WAITING, MAX_WAITING_BYTES, float(options.expiry))
        self._numbers: OrderedDict[tuple[str, str], _Numbering] = OrderedDict()
        self._wanted: dict[tuple[str, str, str], State] = {}
        self._told: dict[tuple[str, str, str], tuple[State, float]] = {}
        self._since = time.time()
        self._news = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        will = aiomqtt.Will(
            host_topic(self._host), _gone(), qos=1, retain=True, properties=expiring(states.GONE_EXPIRY, _WILL)
        )
        role = Role(f"fabric-exporter-{self._host}", will=will)  # by its name it comes before what the next one says
        self._task = asyncio.create_task(
            keep_connected(self._options, role, self.link, self._backoff, self._serve), name="mqtt publisher"
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._news.set()
        if self._task is not None:
            if self.link.connected:
                await asyncio.wait([self._task], timeout=LAST_WORDS)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def dropped(self) -> int:
        """Batches that were lost because the broker was away, or slow, for too long."""
        return self._buffer.dropped

    @property
    def waiting(self) -> tuple[int, int]:
        """Batches that wait, and their bytes."""
        return len(self._buffer), self._buffer.bytes

    def offer(self, batch: Batch) -> None:
        """Send a batch as soon as may be; its epoch, its tick and where it is 0 its time of sending are set here."""
        numbers = self._numbering(batch.job, batch.host)
        batch = replace(batch, epoch=numbers.epoch, tick=numbers.tick, sent=batch.sent or time.time())
        try:
            parts = encode(batch)
        except FormatError as error:
            self.invalid += 1
            log.debug("a batch of job %r cannot be written: %s", batch.job, error)
            return
        numbers.tick += len(parts)
        now = monotonic()
        for part in parts:
            self._buffer.put(Waiting(batch_topic(batch.job, batch.host), part, now))
        self._news.set()

    def show(self, active: Iterable[tuple[Place, State]]) -> None:
        """Say which states of ports are the case now; what is not among them is over."""
        given = list(active)
        self._wanted = dict(list(states.by_key(given).items())[: states.MAX_STATES])
        self.left_out = len(given) - len(self._wanted)
        self._news.set()

    def _numbering(self, job: str, host: str) -> _Numbering:
        key = (job, host)
        numbers = self._numbers.get(key)
        if numbers is None:
            if len(self._numbers) >= MAX_JOBS:
                self._numbers.popitem(last=False)
            numbers = self._numbers[key] = _Numbering(secrets.token_hex(8))
        self._numbers.move_to_end(key)
        return numbers

    # --- with a connection

    async def _serve(self, client: Client) -> None:
        """Send what there is, and what comes; end when this publisher does."""
        self._told = {key: (state, -states.REFRESH) for key, (state, _) in self._told.items()}  # or another broker's
        up_at = -states.REFRESH
        while True:
            self._news.clear()
            if monotonic() - up_at >= states.REFRESH:
                up_at = monotonic()
                await self._retain(client, host_topic(self._host), self._up(), states.EXPIRY)
            await self._tell_states(client, {} if self._closing else self._wanted)
            message = self._buffer.take()
            if message is not None:
                await self._send(client, message)
            elif self._closing:
                await self._retain(client, host_topic(self._host), _gone(), states.GONE_EXPIRY)
                return
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), self._until_refresh(up_at))

    async def _send(self, client: Client, message: Waiting) -> None:
        left = float(self._options.expiry) - (monotonic() - message.since)
        try:
            taken = await client.confirmed(message.topic, message.payload, expiry=left)
        except BaseException:
            self._buffer.put_back(message)
            raise
        self.sent += taken
        self.refused += not taken

    async def _tell_states(self, client: Client, wanted: states.States) -> None:
        """Publish the states that began or are to be told again, and clear those that are over."""
        for key, topic, payload in list(self._due(wanted)):
            at = monotonic()
            await self._retain(client, topic, payload, states.EXPIRY)
            if payload:
                self._told[key] = (wanted[key], at)
            else:
                del self._told[key]

    def _due(self, wanted: states.States) -> Iterator[tuple[tuple[str, str, str], str, bytes]]:
        now = monotonic()
        fresh = {
            key: state for key, (state, at) in self._told.items() if now - at < states.REFRESH or key not in wanted
        }
        keys = {event_topic(*key): key for key in (*self._told, *wanted)}
        return ((keys[topic], topic, payload) for topic, payload in states.changes(fresh, wanted))

    def _until_refresh(self, up_at: float) -> float:
        first = min([up_at, *(at for _, at in self._told.values())])
        return max(1.0, first + states.REFRESH - monotonic())

    async def _retain(self, client: Client, topic: str, payload: bytes, expiry: float) -> None:
        await client.confirmed(topic, payload, retain=True, expiry=expiry if payload else None)

    def _up(self) -> bytes:
        return states.encode(Presence(version=states.VERSION, state="up", since=self._since, number=self.link.connects))


_WILL = PacketTypes.WILLMESSAGE


def _gone() -> bytes:
    return states.encode(Presence(version=states.VERSION, state="gone"))
