"""Best levels of jobs, which collectors keep in retained messages: the broker returns them after a restart.

A message is at the topic of its job, in the slot of the job, and expires a week after it was last published. Collectors
of the same slots all publish, and take over what the others publish. An empty message makes them forget a job's past.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Annotated

import msgspec

from exporter.mqtt.topics import LEVELS, is_valid_name, level_topic, parse_level_topic
from exporter.nccl.decoding import decode_versioned

logger = logging.getLogger(__name__)

VERSION = 1

EXPIRY = 7 * 86_400.0
"""Message Expiry Interval, in seconds."""

REFRESH = 86_400.0
"""Seconds after which unchanged levels of a job that runs are published again."""

CHANGED = 1.01
"""Factor by which a level has to rise to be published before that."""

PUBLISH_INTERVAL = 30.0
"""Seconds between two publications."""

MAX_MESSAGE = 16_384
"""Bytes of a message."""

MAX_JOBS = 4096
"""Jobs whose levels are stored; beyond that the one that was received least recently is dropped."""

LevelName = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Level = Annotated[float, msgspec.Meta(gt=0, le=1e18)]


class LevelsMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Payload: the best levels of a job by name."""

    version: int
    levels: Annotated[dict[LevelName, Level], msgspec.Meta(max_length=64)]


class _Version(msgspec.Struct):
    version: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LevelsMessage)
_version_decoder = msgspec.json.Decoder(_Version)

Publish = Callable[[str, bytes, float], Awaitable[bool]]
"""Publishes a retained message: topic, payload, and Message Expiry Interval in seconds. Returns whether the broker
accepted it."""


class JobLevels:
    """The levels that were received, and those to publish.

    Attributes:
        dropped: Jobs whose levels were dropped because of the limit.
        refused: Messages that the broker refused.
    """

    def __init__(self) -> None:
        self.dropped = self.refused = 0
        self._received: OrderedDict[str, Mapping[str, float]] = OrderedDict()
        self._kept: Mapping[str, Mapping[str, float]] = {}
        self._published: dict[str, tuple[Mapping[str, float], float]] = {}  # with the time of publication

    def receive(self, topic: str, payload: bytes) -> bool:
        """Process a message; return whether its topic is one of levels.

        Raises:
            FormatError: The payload is invalid.
            TopicError: The topic is invalid.
        """
        if not topic.startswith(f"{LEVELS}/"):
            return False
        job = parse_level_topic(topic)
        levels: Mapping[str, float] = {}
        if payload:
            message = decode_versioned(_decoder, _version_decoder.decode, payload, MAX_MESSAGE, VERSION)
            levels = message.levels
        self._received[job] = levels
        self._received.move_to_end(job)
        if len(self._received) > MAX_JOBS:
            self._received.popitem(last=False)
            self.dropped += 1
        return True

    def of(self, job: str) -> Mapping[str, float] | None:
        """Return the levels of a job that were received last; empty after an empty message, None without any."""
        return self._received.get(job)

    def keep(self, levels: Mapping[str, Mapping[str, float]]) -> None:
        """Set the levels of all jobs that run; thread-safe, as it replaces one object."""
        self._kept = levels

    async def publish_due(self, publish: Publish) -> None:
        """Publish the levels of jobs that rose, or were published long ago."""
        kept, now = self._kept, monotonic()
        self._published = {job: one for job, one in self._published.items() if kept.get(job)}
        for job, levels in kept.items():
            if not levels or not is_valid_name(job) or not self._is_due(job, levels, now):
                continue
            payload = _encoder.encode(LevelsMessage(version=VERSION, levels=dict(levels)))
            if not await publish(level_topic(job), payload, EXPIRY):
                self.refused += 1
                if self.refused == 1:
                    logger.warning("the broker refuses %s; check the rights of this user for it", level_topic(job))
            self._published[job] = (levels, now)

    def _is_due(self, job: str, levels: Mapping[str, float], now: float) -> bool:
        before, at = self._published.get(job, ({}, now))
        risen = any(value > CHANGED * before.get(name, 0.0) for name, value in levels.items())
        return risen or now - at >= REFRESH
