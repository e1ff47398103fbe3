"""Topics: where what is published, and who may hear it.

    fabric/v1/nccl/SLOT/JOB/HOST            batches of one host of one job; SLOT is 00 to ff, from a hash of the job
    fabric/v1/timing/SLOT/JOB/HOST          datagrams of processes of a job that tell their timings themselves
    fabric/v1/events/NAME/PORT/KIND         a state of a port of a host or switch, retained while it lasts
    fabric/v1/hosts/HOST                    whether the daemon of a host is there, retained

Names stand in them percent-encoded, so that none can be a wildcard or another level. The slot lets many collectors
share the load without a job being torn apart: each owns some slots, and a job is in one.
"""

import hashlib
import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

ROOT = "fabric/v1"
BATCHES = f"{ROOT}/nccl"
DATAGRAMS = f"{ROOT}/timing"
EVENTS = f"{ROOT}/events"
HOSTS = f"{ROOT}/hosts"

ALL_SLOTS = frozenset(range(256))

MAX_TOPIC = 2048
"""Bytes of a topic that is read."""

MAX_NAME = 256
"""Characters of a name in it."""

_SLOTS = re.compile(r"([0-9a-fA-F]{2})(?:-([0-9a-fA-F]{2}))?")


class TopicError(ValueError):
    """A topic that is none of ours."""


def slot_of(job: str) -> str:
    """Give the slot of a job, `00` to `ff`."""
    return hashlib.sha256(job.encode("utf-8", "surrogateescape")).hexdigest()[:2]


def parse_slots(text: str) -> frozenset[int]:
    """Read which slots a collector owns: `00-ff`, `3f`, `00-3f,80-bf`.

    Raises:
        ValueError: It is nothing of the kind.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _SLOTS.fullmatch(part.strip())
        first, last = (int(match[1], 16), int(match[2] or match[1], 16)) if match else (1, 0)
        if first > last:
            raise ValueError(f"slots has {part.strip()!r}; give two hexadecimal digits or a range, such as 00-7f")
        found.update(range(first, last + 1))
    return frozenset(found)


def batch_filters(slots: Iterable[int]) -> list[str]:
    """Give the filters that a collector of these slots subscribes to, of batches and of datagrams."""
    owned = sorted(set(slots))
    levels = ["+"] if ALL_SLOTS.issubset(owned) else [f"{slot:02x}" for slot in owned]
    return [f"{root}/{level}/+/+" for root in (BATCHES, DATAGRAMS) for level in levels]


def batch_topic(job: str, host: str) -> str:
    """Give where batches of a host of a job are published."""
    return f"{BATCHES}/{slot_of(job)}/{_level(job)}/{_level(host)}"


def is_datagram_topic(topic: str) -> bool:
    """Tell whether what is published there is a datagram, and no batch."""
    return topic.startswith(f"{DATAGRAMS}/")


def parse_batch_topic(topic: str) -> tuple[str, str]:
    """Give the job and the host of a topic of batches or datagrams.

    Raises:
        TopicError: It is none, or the slot is not that of the job.
    """
    slot, job, host = _names(topic, DATAGRAMS if is_datagram_topic(topic) else BATCHES, 3)
    if slot != slot_of(job):
        raise TopicError(f"slot {slot[:8]!r} is not that of the job")
    return job, host


def event_topic(name: str, port: str, kind: str) -> str:
    """Give where a state of a port is published; `name` is that of the host or switch."""
    return f"{EVENTS}/{_level(name)}/{_level(port)}/{_level(kind)}"


def parse_event_topic(topic: str) -> tuple[str, str, str]:
    """Give name, port and kind of a topic of states.

    Raises:
        TopicError: It is none.
    """
    name, port, kind = _names(topic, EVENTS, 3)
    return name, port, kind


def host_topic(host: str) -> str:
    """Give where it is published whether the daemon of a host is there."""
    return f"{HOSTS}/{_level(host)}"


def parse_host_topic(topic: str) -> str:
    """Give the host of such a topic.

    Raises:
        TopicError: It is none.
    """
    (host,) = _names(topic, HOSTS, 1)
    return host


def is_name(name: str) -> bool:
    """Tell whether a topic may have this name: it can be shown, and is not too long."""
    return 0 < len(name) <= MAX_NAME and name.isprintable()


def _level(name: str) -> str:
    """Encode a name as one level.

    Raises:
        ValueError: It is empty.
    """
    if not name:
        raise ValueError("a name of a topic is empty")
    return quote(name, safe="", errors="surrogateescape")


def _names(topic: str, root: str, count: int) -> list[str]:
    """Decode the levels below a root; each name has one way of writing, so that none can stand twice, and can be shown.

    Raises:
        TopicError: There are others than `count`, or one is not as `_level` writes it.
    """
    levels = topic.removeprefix(f"{root}/").split("/")
    if len(topic) > MAX_TOPIC or not topic.startswith(f"{root}/") or len(levels) != count:
        raise TopicError(f"not {count} levels below {root}")
    names = [unquote(level, errors="surrogateescape") for level in levels]
    for name, level in zip(names, levels, strict=True):
        if not is_name(name):
            raise TopicError(f"the level {level[:64]!r} is no name: empty, too long, or not to be shown")
        if _level(name) != level:
            raise TopicError(f"the level {level[:64]!r} is not percent-encoded as it should be")
    return names
