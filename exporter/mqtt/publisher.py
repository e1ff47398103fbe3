"""MQTT publisher of a host: batches of timings, and retained messages of port states, presence and settings.

Publishing never blocks the caller: batches wait in a bounded queue, from which the oldest are dropped while the broker
is unavailable; collectors detect dropped batches by gaps in their numbers. One message is in flight at a time, and
leaves the queue when the broker confirms it. A batch that is sent again is recognised by its number.
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

from exporter.core.supervision import SupervisedTask, Supervisor
from exporter.mqtt import states
from exporter.mqtt.client import BrokerClient, ClientSettings, Will
from exporter.mqtt.connection import Backoff, ConnectionStatus, keep_connected
from exporter.mqtt.host_settings import Setting, encode_settings
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.states import PortAddress, Presence, StateKey, StateMessage
from exporter.mqtt.topics import batch_topic, event_topic, host_topic, settings_topic
from exporter.nccl.batch import Batch
from exporter.nccl.batch_codec import encode
from exporter.nccl.decoding import FormatError

logger = logging.getLogger(__name__)

MAX_QUEUED = 4096
"""Batches in the queue."""

MAX_QUEUED_BYTES = 16 * 1024 * 1024

MAX_TRIES = 5
"""Tries of a message: a broker may close the connection on a message that is too large for it."""

MAX_JOBS = 256
"""Jobs with a sequence of batch numbers; beyond that the least recently used one is forgotten and restarts later."""

SHUTDOWN_SECONDS = 1.0
"""Seconds at the end for sending the queue and clearing retained messages; less than the daemon waits for the end."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message in the queue.

    Attributes:
        topic: The topic.
        payload: The payload.
        queued_at: Monotonic seconds when it was queued.
        tries: How often it was sent and not confirmed.
    """

    topic: str
    payload: bytes
    queued_at: float
    tries: int = 0


class PublishQueue:
    """A bounded queue that drops the oldest messages.

    Args:
        max_messages: Messages at most.
        max_bytes: Bytes of their payloads at most.
        expiry: Seconds after which a message is dropped.

    Attributes:
        dropped: Messages dropped because of a limit or their age.
        bytes: Bytes in the queue.
    """

    def __init__(self, max_messages: int, max_bytes: int, expiry: float) -> None:
        self._max_messages, self._max_bytes, self._expiry = max_messages, max_bytes, expiry
        self._messages: deque[QueuedMessage] = deque()
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: QueuedMessage) -> None:
        """Append a message."""
        self._messages.append(message)
        self.bytes += len(message.payload)
        while len(self._messages) > self._max_messages or self.bytes > self._max_bytes:
            self._pop()
            self.dropped += 1

    def requeue(self, message: QueuedMessage) -> None:
        """Put back the message that was taken last; drop it if there is no room, or after MAX_TRIES."""
        has_room = len(self._messages) < self._max_messages and self.bytes + len(message.payload) <= self._max_bytes
        if has_room and message.tries + 1 < MAX_TRIES:
            self._messages.appendleft(replace(message, tries=message.tries + 1))
            self.bytes += len(message.payload)
        else:
            self.dropped += 1

    def get(self) -> QueuedMessage | None:
        """Remove and return the oldest message that has not expired; None if there is none."""
        while self._messages:
            message = self._pop()
            if monotonic() - message.queued_at < self._expiry:
                return message
            self.dropped += 1
        return None

    def _pop(self) -> QueuedMessage:
        message = self._messages.popleft()
        self.bytes -= len(message.payload)
        return message


@dataclass(slots=True)
class _BatchSequence:
    epoch: str
    tick: int = 0


class Publisher:
    """Publishes for one host, within `async with`; its methods neither block nor raise.

    Args:
        options: The broker.
        host: Name of this host.
        backoff: Waits between tries to connect.
        supervisor: Runs the task that publishes.

    Attributes:
        status: State of the connection.
        sent: Batches that the broker accepted.
        refused: Batches that the broker refused, such as for lack of a right.
        invalid: Batches that could not be encoded.
        omitted_states: States of the last `set_states` that are not published: beyond MAX_STATES, or with names that a
            topic cannot contain.
    """

    def __init__(
        self,
        options: MqttOptions,
        host: str,
        backoff: Backoff | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.status = ConnectionStatus()
        self.sent = 0
        self.refused = 0
        self.invalid = 0
        self.omitted_states = 0
        self._options, self._host = options, host
        self._backoff = backoff or Backoff()
        self._queue = PublishQueue(MAX_QUEUED, MAX_QUEUED_BYTES, float(options.expiry))
        self._sequences: OrderedDict[tuple[str, str], _BatchSequence] = OrderedDict()
        self._active: dict[StateKey, StateMessage] = {}
        self._published: dict[StateKey, tuple[StateMessage, float]] = {}  # with the time of publication
        self._settings = b""
        self._published_settings: tuple[bytes, float] = b"", 0.0  # with the time of publication
        self._started = time.time()
        self._wakeup = asyncio.Event()
        self._closing = False
        self._supervisor = supervisor or Supervisor()
        self._task: SupervisedTask | None = None

    async def __aenter__(self) -> Self:
        will = Will(host_topic(self._host), _gone_message(), states.GONE_EXPIRY)
        # A new connection with the same identifier ends the old one, so its will precedes what the new one publishes.
        settings = ClientSettings(f"fabric-exporter-{self._host}", will=will)
        self._task = self._supervisor.start(
            "mqtt publisher",
            lambda: keep_connected(self._options, settings, self.status, self._backoff, self._serve),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._wakeup.set()
        if self._task is not None:
            self._task.expect_end()
            if self.status.connected:
                await self._task.wait(SHUTDOWN_SECONDS)
            await self._task.stop()

    @property
    def dropped(self) -> int:
        """Batches dropped from the queue."""
        return self._queue.dropped

    @property
    def queued(self) -> tuple[int, int]:
        """Batches in the queue, and their bytes."""
        return len(self._queue), self._queue.bytes

    def publish(self, batch: Batch) -> None:
        """Queue a batch; its epoch, tick and, where it is 0, its time of sending are set here."""
        sequence = self._sequence(batch.job, batch.host)
        batch = replace(batch, epoch=sequence.epoch, tick=sequence.tick, sent=batch.sent or time.time())
        try:
            parts = encode(batch)
        except FormatError as error:
            self.invalid += 1
            logger.debug("a batch of job %r cannot be encoded: %s", batch.job, error)
            return
        sequence.tick += len(parts)
        now = monotonic()
        for part in parts:
            self._queue.put(QueuedMessage(batch_topic(batch.job, batch.host), part, now))
        self._wakeup.set()

    def set_states(self, active: Iterable[tuple[PortAddress, StateMessage]]) -> None:
        """Set the active port states: new ones are published, those that are not among them are cleared."""
        given = list(active)
        self._active = dict(list(states.states_by_key(given).items())[: states.MAX_STATES])
        self.omitted_states = len(given) - len(self._active)
        self._wakeup.set()

    def set_settings(self, settings: Iterable[Setting]) -> None:
        """Set the settings of this host; they are published when they change."""
        self._settings = encode_settings(settings)
        self._wakeup.set()

    def _sequence(self, job: str, host: str) -> _BatchSequence:
        key = (job, host)
        sequence = self._sequences.get(key)
        if sequence is None:
            if len(self._sequences) >= MAX_JOBS:
                self._sequences.popitem(last=False)
            sequence = self._sequences[key] = _BatchSequence(secrets.token_hex(8))
        self._sequences.move_to_end(key)
        return sequence

    # --- while connected

    async def _serve(self, client: BrokerClient) -> None:
        """Send the queue and the states until the publisher is closed."""
        # The broker may be another one, or have lost its retained messages: publish all states again.
        self._published = {key: (state, -states.REFRESH) for key, (state, _) in self._published.items()}
        self._published_settings = self._published_settings[0], -states.REFRESH
        presence_at = -states.REFRESH
        while True:
            self._wakeup.clear()
            if monotonic() - presence_at >= states.REFRESH:
                presence_at = monotonic()
                await self._publish_retained(client, host_topic(self._host), self._up_message(), states.EXPIRY)
            await self._publish_states(client, {} if self._closing else self._active)
            await self._publish_settings(client, b"" if self._closing else self._settings)
            message = self._queue.get()
            if message is not None:
                await self._send(client, message)
            elif self._closing:
                await self._publish_retained(client, host_topic(self._host), _gone_message(), states.GONE_EXPIRY)
                return
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wakeup.wait(), self._seconds_to_refresh(presence_at))

    async def _send(self, client: BrokerClient, message: QueuedMessage) -> None:
        left = float(self._options.expiry) - (monotonic() - message.queued_at)
        try:
            accepted = await self._publish(client, message.topic, message.payload, expiry=left)
        except BaseException:
            self._queue.requeue(message)
            raise
        self.sent += accepted
        self.refused += not accepted

    async def _publish_states(self, client: BrokerClient, active: states.States) -> None:
        """Publish states that are new or due for a refresh, and clear those that ended."""
        for key, topic, payload in list(self._due_states(active)):
            now = monotonic()
            await self._publish_retained(client, topic, payload, states.EXPIRY)
            if payload:
                self._published[key] = (active[key], now)
            else:
                del self._published[key]

    def _due_states(self, active: states.States) -> Iterator[tuple[StateKey, str, bytes]]:
        now = monotonic()
        current = {
            key: state for key, (state, at) in self._published.items() if now - at < states.REFRESH or key not in active
        }
        keys = {event_topic(*key): key for key in (*self._published, *active)}
        return ((keys[topic], topic, payload) for topic, payload in states.state_changes(current, active))

    async def _publish_settings(self, client: BrokerClient, payload: bytes) -> None:
        """Publish settings that changed or are due for a refresh, and clear those that there are no more."""
        before, at = self._published_settings
        if payload == before and (not payload or monotonic() - at < states.REFRESH):
            return
        now = monotonic()
        await self._publish_retained(client, settings_topic(self._host), payload, states.EXPIRY)
        self._published_settings = payload, now

    def _seconds_to_refresh(self, presence_at: float) -> float:
        settings, settings_at = self._published_settings
        others = [*([settings_at] if settings else []), *(at for _, at in self._published.values())]
        oldest = min([presence_at, *others])
        return max(1.0, oldest + states.REFRESH - monotonic())

    async def _publish_retained(self, client: BrokerClient, topic: str, payload: bytes, expiry: float) -> None:
        await self._publish(client, topic, payload, retain=True, expiry=expiry if payload else None)

    async def _publish(
        self, client: BrokerClient, topic: str, payload: bytes, *, retain: bool = False, expiry: float | None
    ) -> bool:
        """Publish one message; return whether the broker accepted it, and count it otherwise."""
        accepted = await client.publish_confirmed(topic, payload, retain=retain, expiry=expiry)
        if not accepted:
            self.status.refused += 1
            if self.status.refused == 1:
                logger.warning("the broker refuses messages to %s; check the rights of this user for the topic", topic)
        return accepted

    def _up_message(self) -> bytes:
        presence = Presence(version=states.VERSION, state="up", since=self._started, number=self.status.connects)
        return states.encode(presence)


def _gone_message() -> bytes:
    return states.encode(Presence(version=states.VERSION, state="gone"))
