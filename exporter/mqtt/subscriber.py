"""MQTT subscriber of a collector: batches of its slots without duplicates, and retained states of ports and daemons.

Subscriptions are not shared (`$share`): each collector owns slots, so that all hosts of a job are received by one
collector. Received batches wait undecoded in a queue, in which each sender has a share of the bytes. They are decoded
in slices, between which the event loop runs other tasks.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from time import monotonic, thread_time
from types import TracebackType
from typing import Self

from paho.mqtt.subscribeoptions import SubscribeOptions

from exporter.core.supervision import SupervisedTask, Supervisor
from exporter.mqtt.client import BrokerClient, BrokerError, ClientSettings
from exporter.mqtt.connection import Backoff, ConnectionStatus, keep_connected
from exporter.mqtt.dedup import Deduplicator
from exporter.mqtt.fair_queue import FairQueue, Message
from exporter.mqtt.job_levels import PUBLISH_INTERVAL
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.retained_state import RetainedState
from exporter.mqtt.topics import (
    EVENTS,
    HOSTS,
    SETTINGS,
    TopicError,
    batch_filters,
    is_datagram_topic,
    level_filters,
    parse_batch_topic,
    parse_slots,
)
from exporter.nccl.batch import MAX_BATCH, Batch
from exporter.nccl.batch_codec import decode_parts
from exporter.nccl.datagram import parse_datagram
from exporter.nccl.datagram_batch import batch_of
from exporter.nccl.decoding import FormatError

MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""Bytes of batches in the queue; a sender may hold as many as are free, beyond that its oldest batches are dropped."""

SLICE_OPERATIONS = 2048
"""Operations decoded at once: some milliseconds of work."""

SLICE_SECONDS = 0.005
"""Seconds of work after which the event loop runs other tasks for as long: a flood takes half of a core at most."""

PROGRESS_COST = 8
"""Operations that take as much work and memory as one row of progress."""

MAX_OPEN = 4
"""Batches of which a part waits for credit of their sender; others are taken whole. Each takes some megabytes."""

MESSAGE_COST = 16
"""Operations that take as long as to decode a message without any, and …"""

BYTES_PER_COST = 64
"""… bytes of it that take as long as one more: those that are discarded cost their sender too."""

SESSION_EXPIRY = 60.0
"""Session Expiry Interval in seconds: the broker queues messages for that time while the collector is disconnected."""

EXPIRE_INTERVAL = 60.0
"""Seconds between removals of expired entries."""

_DO_NOT_SEND_RETAINED = 2


class _Pace:
    """Measures the work between two rests, which are as long as the work.

    Work is CPU time of this thread: the wait for a reader that has no room, or for a processor, is none.
    """

    def __init__(self) -> None:
        self._worked = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin to work, after a pause, in which other tasks worked."""
        self._begun = thread_time()

    async def rest(self) -> None:
        """Let the event loop run other tasks; wait where there was work for a slice."""
        self._worked += thread_time() - self._begun
        wait, self._worked = (self._worked, 0.0) if self._worked >= SLICE_SECONDS else (0.0, self._worked)
        await asyncio.sleep(wait)
        self.begin()


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
        self.refused: Counter[str] = Counter()
        self._options, self._backoff = options, backoff or Backoff()
        self._filters = batch_filters(parse_slots(slots))
        self._retained_filters = [
            *(f"{EVENTS}/+/+/+", f"{HOSTS}/+", f"{SETTINGS}/+"),
            *level_filters(parse_slots(slots)),
        ]
        self._queue = FairQueue(max_queued_bytes)
        self._open: dict[str, Iterator[Batch]] = {}
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
        return len(self._queue), self._queue.bytes

    @property
    def dropped(self) -> int:
        """Batches dropped from the queue."""
        return self._queue.dropped

    async def batches(self) -> AsyncIterator[Batch]:
        """Return batches as they arrive, without end and without duplicate operations; large ones in several parts."""
        pace = _Pace()
        while True:
            self._received.clear()
            while (found := self._next()) is not None:
                sender, parts = found
                for batch in parts:
                    yield batch
                    await pace.rest()
                    if len(self._open) < MAX_OPEN and not self._queue.has_credit(sender):
                        self._open[sender] = parts
                        break
                await pace.rest()  # many discarded messages must not block the event loop
            with suppress(TimeoutError):
                await asyncio.wait_for(self._received.wait(), self._queue.seconds_to_credit(self._open))
            pace.begin()

    def _next(self) -> tuple[str, Iterator[Batch]] | None:
        """Return the next sender with credit, and the parts of its batch; the rest of one that waited comes first."""
        for sender in self._open:
            if self._queue.has_credit(sender):
                return sender, self._open.pop(sender)
        found = self._queue.get(self._open)
        return None if found is None else (found[0], self._decode(*found))

    async def _subscribe(self, client: BrokerClient) -> None:
        """Subscribe, and publish the best levels of jobs until the connection ends.

        Raises:
            BrokerError: The broker did not grant all subscriptions.
        """
        self.retained.on_connect()
        live = SubscribeOptions(qos=1, retainHandling=_DO_NOT_SEND_RETAINED)
        retained = SubscribeOptions(qos=1, retainAsPublished=True)
        for filters, options in ((self._filters, live), (self._retained_filters, retained)):
            denied = [code for code in await client.subscribe(filters, options) if code.is_failure]
            if denied:
                raise BrokerError(f"the broker refuses {len(denied)} of {len(filters)} topics: {denied[0]}")
        self.subscribed = True
        try:
            while True:
                await asyncio.sleep(PUBLISH_INTERVAL)  # first: what the broker retained counts too
                await self.retained.levels.publish_due(partial(_retain, client))
        finally:
            self.subscribed = False

    def _on_received(self, topic: str, payload: bytes) -> None:
        """Process a retained message, or queue a batch."""
        try:
            if self.retained.receive(topic, payload):
                return
            _, host = parse_batch_topic(topic)
        except FormatError as error:
            self.refused[error.reason] += 1
            return
        except TopicError:
            self.refused["invalid_topic"] += 1
            return
        if len(payload) > MAX_BATCH:
            self.refused["too_large"] += 1
            return
        # What processes publish themselves, for any host, takes nothing of what the daemon of that host may send.
        self._queue.put(f"{host} by itself" if is_datagram_topic(topic) else host, Message(topic, payload))
        self._received.set()

    def _decode(self, sender: str, message: Message) -> Iterator[Batch]:
        """Decode a batch, and yield its parts; nothing where it is invalid or a duplicate."""
        if monotonic() - self._expired_at >= EXPIRE_INTERVAL:
            self._expired_at = monotonic()
            self.deduplicator.expire_idle()
            self.retained.expire()
        self._queue.spend(sender, MESSAGE_COST + len(message.payload) // BYTES_PER_COST)
        try:
            claimed = parse_batch_topic(message.topic)
            if is_datagram_topic(message.topic):
                parts = iter([batch_of(parse_datagram(message.payload), claimed[0])])
            else:
                parts = decode_parts(message.payload, SLICE_OPERATIONS)
            first = next(parts)
        except FormatError as error:
            self.refused[error.reason] += 1
            return
        if claimed != (first.job, first.host):
            self.refused["sender_mismatch"] += 1
            return
        if not self.deduplicator.admits(first):
            return
        self.accepted += 1
        for part in chain((first,), parts):
            self._queue.spend(sender, part.operations() + PROGRESS_COST * len(part.progress))
            yield self.deduplicator.without_duplicates(part)


async def _retain(client: BrokerClient, topic: str, payload: bytes, expiry: float) -> bool:
    return await client.publish_confirmed(topic, payload, retain=True, expiry=expiry)
