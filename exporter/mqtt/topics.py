"""MQTT topics.

    fabric/v1/nccl/SLOT/JOB/HOST            batches of one host of one job; SLOT is 00 to ff, from a hash of the job
    fabric/v1/timing/SLOT/JOB/HOST          datagrams of processes of a job that publish their own timings
    fabric/v1/events/NAME/PORT/KIND         a state of a port of a host or switch, retained while it is active
    fabric/v1/hosts/HOST                    presence of the daemon of a host, retained
    fabric/v1/levels/SLOT/JOB               best levels of a job, retained
    fabric/v1/settings/HOST                 settings of a host that other hosts should have alike, retained

Names are percent-encoded, so they cannot contain wildcards or level separators. Slots distribute jobs over collectors:
each collector owns some slots, and each job is in one slot.
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
LEVELS = f"{ROOT}/levels"
SETTINGS = f"{ROOT}/settings"

ALL_SLOTS = frozenset(range(256))

MAX_TOPIC = 2048
"""Characters of a topic that is parsed."""

MAX_NAME = 256
"""Characters of a name in a topic."""

_SLOTS = re.compile(r"([0-9a-fA-F]{2})(?:-([0-9a-fA-F]{2}))?")


class TopicError(ValueError):
    """A topic that does not have the documented form."""


def slot_of(job: str) -> str:
    """Return the slot of a job, `00` to `ff`: the first byte of the SHA-256 of its name."""
    return hashlib.sha256(job.encode("utf-8", "surrogateescape")).hexdigest()[:2]


def parse_slots(text: str) -> frozenset[int]:
    """Parse the slots of a collector: `00-ff`, `3f`, `00-3f,80-bf`.

    Raises:
        ValueError: The text has another form.
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
    """Return the topic filters of batches and datagrams for the given slots."""
    return [f"{root}/{slot}/+/+" for root in (BATCHES, DATAGRAMS) for slot in _slot_filters(slots)]


def level_filters(slots: Iterable[int]) -> list[str]:
    """Return the topic filters of levels for the given slots."""
    return [f"{LEVELS}/{slot}/+" for slot in _slot_filters(slots)]


def _slot_filters(slots: Iterable[int]) -> list[str]:
    owned = sorted(set(slots))
    return ["+"] if ALL_SLOTS.issubset(owned) else [f"{slot:02x}" for slot in owned]


def batch_topic(job: str, host: str) -> str:
    """Return the topic of the batches of a host of a job."""
    return f"{BATCHES}/{slot_of(job)}/{_encode_level(job)}/{_encode_level(host)}"


def is_datagram_topic(topic: str) -> bool:
    """Return whether a topic carries datagrams and not batches."""
    return topic.startswith(f"{DATAGRAMS}/")


def parse_batch_topic(topic: str) -> tuple[str, str]:
    """Return job and host of a topic of batches or datagrams.

    Raises:
        TopicError: The topic has another form, or the slot is not that of the job.
    """
    slot, job, host = _decode_levels(topic, DATAGRAMS if is_datagram_topic(topic) else BATCHES, 3)
    if slot != slot_of(job):
        raise TopicError(f"slot {slot[:8]!r} is not that of the job")
    return job, host


def level_topic(job: str) -> str:
    """Return the topic of the best levels of a job."""
    return f"{LEVELS}/{slot_of(job)}/{_encode_level(job)}"


def parse_level_topic(topic: str) -> str:
    """Return the job of a topic of levels.

    Raises:
        TopicError: The topic has another form, or the slot is not that of the job.
    """
    slot, job = _decode_levels(topic, LEVELS, 2)
    if slot != slot_of(job):
        raise TopicError(f"slot {slot[:8]!r} is not that of the job")
    return job


def event_topic(name: str, port: str, kind: str) -> str:
    """Return the topic of a state of a port; `name` is that of the host or switch."""
    return f"{EVENTS}/{_encode_level(name)}/{_encode_level(port)}/{_encode_level(kind)}"


def parse_event_topic(topic: str) -> tuple[str, str, str]:
    """Return name, port and kind of a topic of states.

    Raises:
        TopicError: The topic has another form.
    """
    name, port, kind = _decode_levels(topic, EVENTS, 3)
    return name, port, kind


def host_topic(host: str) -> str:
    """Return the topic of the presence of a host's daemon."""
    return f"{HOSTS}/{_encode_level(host)}"


def parse_host_topic(topic: str) -> str:
    """Return the host of a topic of presence.

    Raises:
        TopicError: The topic has another form.
    """
    (host,) = _decode_levels(topic, HOSTS, 1)
    return host


def settings_topic(host: str) -> str:
    """Return the topic of the settings of a host."""
    return f"{SETTINGS}/{_encode_level(host)}"


def parse_settings_topic(topic: str) -> str:
    """Return the host of a topic of settings.

    Raises:
        TopicError: The topic has another form.
    """
    (host,) = _decode_levels(topic, SETTINGS, 1)
    return host


def is_valid_name(name: str) -> bool:
    """Return whether a topic may contain a name: it is not empty, printable, and not too long."""
    return 0 < len(name) <= MAX_NAME and name.isprintable()


def _encode_level(name: str) -> str:
    """Encode a name as one level of a topic.

    Raises:
        ValueError: The name is empty.
    """
    if not name:
        raise ValueError("a name in a topic is empty")
    return quote(name, safe="", errors="surrogateescape")


def _decode_levels(topic: str, root: str, count: int) -> list[str]:
    """Decode the levels below a root; each name has exactly one encoding, so that a name has one topic.

    Raises:
        TopicError: The number of levels is not `count`, or a level is not encoded as by `_encode_level`.
    """
    levels = topic.removeprefix(f"{root}/").split("/")
    if len(topic) > MAX_TOPIC or not topic.startswith(f"{root}/") or len(levels) != count:
        raise TopicError(f"not {count} levels below {root}")
    names = [unquote(level, errors="surrogateescape") for level in levels]
    for name, level in zip(names, levels, strict=True):
        if not is_valid_name(name):
            raise TopicError(f"the level {level[:64]!r} is not a valid name: empty, too long or not printable")
        if _encode_level(name) != level:
            raise TopicError(f"the level {level[:64]!r} is not percent-encoded correctly")
    return names
