"""MQTT subscriber of a collector: batches of its slots without duplicates, and retained states of ports and daemons.

Subscriptions are not shared (`$share`): each collector owns slots, so that all hosts of a job are received by one
collector. Received batches wait undecoded in a queue with a limit in bytes.
"""

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator
from time import monotonic
from types import TracebackType
from typing import Self

from paho.mqtt.subscribeoptions import SubscribeOptions

from exporter.core.supervision import SupervisedTask, Supervisor
from exporter.mqtt.client import BrokerClient, BrokerError, ClientSettings
from exporter.mqtt.connection import Backoff, ConnectionStatus, keep_connected
from exporter.mqtt.dedup import Deduplicator
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.retained_state import RetainedState
from exporter.mqtt.topics import (
    EVENTS,
    HOSTS,
    TopicError,
    batch_filters,
    is_datagram_topic,
    parse_batch_topic,
    parse_slots,
)
from exporter.nccl.batch import MAX_BATCH, Batch
from exporter.nccl.batch_codec import decode
from exporter.nccl.datagram import parse_datagram
from exporter.nccl.datagram_batch import batch_of
from exporter.nccl.decoding import FormatError

MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""Bytes of batches in the queue; beyond that the oldest are dropped."""

SESSION_EXPIRY = 60.0
"""Session Expiry Interval in seconds: the broker queues messages for that time while the collector is disconnected."""

MESSAGE_OVERHEAD = 256
"""Bytes that a queued message takes beside its payload: many empty ones fill memory too."""

EXPIRE_INTERVAL = 60.0
"""Seconds between removals of expired entries."""

_DO_NOT_SEND_RETAINED = 2


class Subscriber:
    """Receives the batches of some slots, within `async with`.

    Args:
        options: The broker.
        slots: The slots, such as `00-7f`.
        backoff: Waits between tries to connect.
        deduplicator: Filters received batches.
        max_queued_bytes: Bytes of batches in the queue.

    Attributes:
        status: State of the connection.
        subscribed: Whether the broker granted all subscriptions of the current connection.
        retained: State of the retained messages.
        deduplicator: Filters received batches, and counts lost and duplicate ones.
        accepted: Batches returned by `batches`.
        dropped: Batches dropped from the queue.
        refused: Messages that were discarded, by reason; `sender_mismatch` are batches whose job or host differs from
            that of their topic.
    """

    def __init__(
        self,
        options: MqttOptions,
        slots: str = "00-ff",
        *,
        backoff: Backoff | None = None,
        deduplicator: Deduplicator | None = None,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.status = ConnectionStatus()
        self.subscribed = False
        self.retained = RetainedState()
        self.deduplicator = deduplicator or Deduplicator()
        self.accepted = 0
        self.dropped = 0
        self.refused: Counter[str] = Counter()
        self._options, self._backoff = options, backoff or Backoff()
        self._filters = batch_filters(parse_slots(slots))
        self._queue: deque[tuple[str, bytes]] = deque()
        self._queued_bytes = 0
        self._max_queued_bytes = max_queued_bytes
        self._received = asyncio.Event()
        self._expired_at = monotonic()
        self._supervisor = supervisor or Supervisor()
        self._task: SupervisedTask | None = None

    async def __aenter__(self) -> Self:
        identifier = f"fabric-exporter-collector-{secrets.token_hex(8)}"
        settings = ClientSettings(identifier, session_expiry=SESSION_EXPIRY, on_received=self._on_received)
        self._task = self._supervisor.start(
            "mqtt subscriber",
            lambda: keep_connected(self._options, settings, self.status, self._backoff, self._subscribe),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            await self._task.stop()

    @property
    def queued(self) -> tuple[int, int]:
        """Batches in the queue, and their bytes."""
        return len(self._queue), self._queued_bytes

    async def batches(self) -> AsyncIterator[Batch]:
        """Return batches as they arrive, without end and without duplicate operations."""
        while True:
            while self._queue:
                batch = self._decode(*self._pop())
                if batch is not None:
                    self.accepted += 1
                    yield batch
                await asyncio.sleep(0)  # many discarded messages must not block the event loop
            self._received.clear()
            await self._received.wait()

    async def _subscribe(self, client: BrokerClient) -> None:
        """Subscribe, and wait until the connection ends.

        Raises:
            BrokerError: The broker did not grant all subscriptions.
        """
        self.retained.on_connect()
        live = SubscribeOptions(qos=1, retainHandling=_DO_NOT_SEND_RETAINED)
        retained = SubscribeOptions(qos=1, retainAsPublished=True)
        for filters, options in ((self._filters, live), ([f"{EVENTS}/+/+/+", f"{HOSTS}/+"], retained)):
            denied = [code for code in await client.subscribe(filters, options) if code.is_failure]
            if denied:
                raise BrokerError(f"the broker refuses {len(denied)} of {len(filters)} topics: {denied[0]}")
        self.subscribed = True
        try:
            await asyncio.Event().wait()  # until it is cancelled
        finally:
            self.subscribed = False

    def _on_received(self, topic: str, payload: bytes) -> None:
        """Process a retained message, or queue a batch."""
        try:
            if self.retained.receive(topic, payload):
                return
        except FormatError as error:
            self.refused[error.reason] += 1
            return
        except TopicError:
            self.refused["invalid_topic"] += 1
            return
        if len(payload) > MAX_BATCH:
            self.refused["too_large"] += 1
            return
        self._queue.append((topic, payload))
        self._queued_bytes += len(payload) + MESSAGE_OVERHEAD
        while self._queued_bytes > self._max_queued_bytes:
            self._pop()
            self.dropped += 1
        self._received.set()

    def _pop(self) -> tuple[str, bytes]:
        topic, payload = self._queue.popleft()
        self._queued_bytes -= len(payload) + MESSAGE_OVERHEAD
        return topic, payload

    def _decode(self, topic: str, payload: bytes) -> Batch | None:
        """Decode a batch; None where it is invalid or a duplicate."""
        if monotonic() - self._expired_at >= EXPIRE_INTERVAL:
            self._expired_at = monotonic()
            self.deduplicator.expire_idle()
            self.retained.expire()
        try:
            sender = parse_batch_topic(topic)
            batch = batch_of(parse_datagram(payload), sender[0]) if is_datagram_topic(topic) else decode(payload)
        except TopicError:
            self.refused["invalid_topic"] += 1
            return None
        except FormatError as error:
            self.refused[error.reason] += 1
            return None
        if sender != (batch.job, batch.host):
            self.refused["sender_mismatch"] += 1
            return None
        return self.deduplicator.filter_new(batch)
