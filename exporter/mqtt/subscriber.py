"""The side of a collector: the batches of its slots, each operation once, and what is the case at ports and daemons.

Slots are owned and not shared by the broker (`$share`), so that all hosts of a job meet in one collector. What comes is
kept as it is, in a queue with a bound in bytes, until somebody asks for the next batch; only then is it decoded.
"""

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator
from time import monotonic
from types import TracebackType
from typing import Self

import aiomqtt
from paho.mqtt.subscribeoptions import SubscribeOptions

from exporter.mqtt.connection import (
    Backoff,
    Client,
    Link,
    Role,
    keep_connected,
)
from exporter.mqtt.dedup import Seen
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.retained_state import Board
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
from exporter.nccl.datagram import DatagramError, parse_datagram
from exporter.nccl.datagram_batch import batch_of
from exporter.nccl.decoding import FormatError

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Bytes of batches that wait to be decoded; the oldest make room."""

SESSION = 60.0
"""Seconds that the broker keeps what comes while this one is away."""

OVERHEAD = 256
"""Bytes that a message takes beside what is in it: many that are empty fill memory too."""

TIDY = 60.0
"""Seconds between looks at who may be forgotten."""

_DO_NOT_SEND_RETAINED = 2
_LIVE = SubscribeOptions(qos=1, retainHandling=_DO_NOT_SEND_RETAINED)
_RETAINED = SubscribeOptions(qos=1, retainAsPublished=True)


class Subscriber:
    """Hears the batches of some slots, from `async with` on.

    Args:
        options: The broker.
        slots: Which, such as `00-7f`.
        backoff: How long to wait between tries to connect.
        seen: What came already.
        most_bytes: Bytes of batches that wait.

    Attributes:
        link: How it goes with the broker.
        listening: Whether it is subscribed now.
        board: What is the case at ports and daemons.
        seen: What came already, with what was lost or came twice.
        taken: Batches that were given out.
        dropped: Batches that made room in the queue.
        refused: Messages that cannot be used, by reason; `sender` are those that stand under the name of another job or
            host than they tell of.
    """

    def __init__(
        self,
        options: MqttOptions,
        slots: str = "00-ff",
        *,
        backoff: Backoff | None = None,
        seen: Seen | None = None,
        most_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        self.link = Link()
        self.listening = False
        self.board = Board()
        self.seen = seen or Seen()
        self.taken = 0
        self.dropped = 0
        self.refused: Counter[str] = Counter()
        self._options, self._backoff = options, backoff or Backoff()
        self._filters = batch_filters(parse_slots(slots))
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._bytes = 0
        self._most_bytes = most_bytes
        self._news = asyncio.Event()
        self._tidied = monotonic()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        role = Role(f"fabric-exporter-collector-{secrets.token_hex(8)}", session=SESSION, hear=self._hear)
        self._task = asyncio.create_task(
            keep_connected(self._options, role, self.link, self._backoff, self._listen), name="mqtt subscriber"
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def waiting(self) -> tuple[int, int]:
        """Batches that wait, and their bytes."""
        return len(self._waiting), self._bytes

    async def batches(self) -> AsyncIterator[Batch]:
        """Give batches as they come, without end, and of each only operations that did not come before."""
        while True:
            while self._waiting:
                batch = self._read(*self._pop())
                if batch is not None:
                    self.taken += 1
                    yield batch
                await asyncio.sleep(0)  # many that are refused must not hold up all others
            self._news.clear()
            await self._news.wait()

    async def _listen(self, client: Client) -> None:
        """Subscribe, and go on until the connection ends.

        Raises:
            MqttError: The broker grants not all of it.
        """
        self.board.begin()
        for filters, how in ((self._filters, _LIVE), ([f"{EVENTS}/+/+/+", f"{HOSTS}/+"], _RETAINED)):
            granted = await client.subscribe([(one, how) for one in filters])
            denied = [code for code in granted if not isinstance(code, int) and code.is_failure]
            if denied:
                raise aiomqtt.MqttError(f"the broker refuses {len(denied)} of {len(filters)} topics: {denied[0]}")
        self.listening = True
        try:
            await asyncio.Event().wait()  # until it is cancelled
        finally:
            self.listening = False

    def _hear(self, topic: str, payload: bytes) -> None:
        """Take a message as it comes."""
        try:
            if self.board.hear(topic, payload):
                return
        except FormatError as error:
            self.refused[error.reason] += 1
            return
        except TopicError:
            self.refused["topic"] += 1
            return
        if len(payload) > MAX_BATCH:
            self.refused["too_large"] += 1
            return
        self._waiting.append((topic, payload))
        self._bytes += len(payload) + OVERHEAD
        while self._bytes > self._most_bytes:
            self._pop()
            self.dropped += 1
        self._news.set()

    def _pop(self) -> tuple[str, bytes]:
        topic, payload = self._waiting.popleft()
        self._bytes -= len(payload) + OVERHEAD
        return topic, payload

    def _read(self, topic: str, payload: bytes) -> Batch | None:
        """Decode a batch; None where it cannot be used, or nothing of it is new."""
        if monotonic() - self._tidied >= TIDY:
            self._tidied = monotonic()
            self.seen.forget_idle()
            self.board.forget()
        try:
            sender = parse_batch_topic(topic)
            batch = batch_of(parse_datagram(payload), sender[0]) if is_datagram_topic(topic) else decode(payload)
        except TopicError:
            self.refused["topic"] += 1
            return None
        except (DatagramError, FormatError) as error:
            self.refused[error.reason] += 1
            return None
        if sender != (batch.job, batch.host):
            self.refused["sender"] += 1
            return None
        return self.seen.fresh(batch)
