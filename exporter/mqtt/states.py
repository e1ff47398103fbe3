"""Retained messages: states of ports, and the presence of daemons.

An active state is retained at its topic, and published again before it expires; a state that ended is cleared by an
empty message. So a new subscriber receives the current states at once, and they do not outlive a daemon for long.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from exporter.core.printable import printable
from exporter.mqtt.topics import event_topic, is_valid_name, parse_event_topic
from exporter.nccl.decoding import FormatError, decode_versioned

VERSION = 1

_JOB_SEPARATOR = "@"

EXPIRY = 3600.0
"""Message Expiry Interval of a state, in seconds."""

REFRESH = EXPIRY / 2
"""Seconds after which an active state is published again."""

GONE_EXPIRY = 86_400.0
"""Message Expiry Interval of the presence `gone`, in seconds."""

MAX_MESSAGE = 4096
"""Bytes of a message."""

MAX_STATES = 65_536
"""States of one publisher, or of one subscriber."""

MAX_TEXT = 512

Line = Annotated[str, msgspec.Meta(max_length=MAX_TEXT, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\Z")]
"""Text without line ends or control characters."""

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]


class StateMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Payload of an active state; host and port are in the topic.

    Attributes:
        kind: Kind of the state: down, errors ….
        since: Unix time at which it began.
        number: How often it began since the start of the publisher, from 1: a state that ended and began again between
            two publications has another number.
        value: Value in the base unit of the kind; None where the kind has no value.
        text: Description for people.
        quiet_since: Unix time of the last increase, if a state that counts them has had none for minutes; else None.
        version: Version of the format.
    """

    version: int
    kind: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_]{1,64}\Z")]
    since: Seconds
    number: Count
    value: Number | None = None
    text: Line = ""
    quiet_since: Seconds | None = None


class Presence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Payload of the presence of a host's daemon.

    Attributes:
        state: `up`, or `gone`, which is also published as the will.
        since: Unix time of the daemon's start; 0 for `gone`.
        number: Connections since then, from 1; 0 for `gone`.
        version: Version of the format.
    """

    version: int
    state: Literal["up", "gone"]
    since: Seconds = 0.0
    number: Count = 0


PortAddress = tuple[str, str]
"""Name of the host or switch, and the port or device."""

StateKey = tuple[str, str, str]
"""Name of the host or switch, port, and kind of the state."""

States = Mapping[StateKey, StateMessage]


class _Version(msgspec.Struct):
    version: int


_encoder = msgspec.json.Encoder()
_version_decoder = msgspec.json.Decoder(_Version)
_state_decoder = msgspec.json.Decoder(StateMessage)
_presence_decoder = msgspec.json.Decoder(Presence)


def port_with_job(port: str, job: str) -> str:
    """Return the name under which a state of a port that a job's log reports is published; the port without a job."""
    return f"{port}{_JOB_SEPARATOR}{job}" if job else port


def split_port_and_job(name: str) -> tuple[str, str]:
    """Split a published port name into port and job; the job is empty for a state of the port itself."""
    port, _, job = name.partition(_JOB_SEPARATOR)
    return port, job


def make_state(
    kind: str,
    since: float,
    number: int = 1,
    value: float | None = None,
    text: str = "",
    quiet_since: float | None = None,
) -> StateMessage:
    """Return a message of the current version; the text is truncated and made printable."""
    text = printable(text[:MAX_TEXT])
    return StateMessage(
        version=VERSION, kind=kind, since=since, number=number, value=value, text=text, quiet_since=quiet_since
    )


def states_by_key(active: Iterable[tuple[PortAddress, StateMessage]]) -> dict[StateKey, StateMessage]:
    """Return states by key, without those whose names a topic cannot contain."""
    found = {(name, port, one.kind): one for (name, port), one in active}
    return {key: one for key, one in found.items() if all(map(is_valid_name, key))}


def state_changes(before: States, after: States) -> list[tuple[str, bytes]]:
    """Return the retained messages that turn one set of active states into another.

    Returns:
        Topics and payloads; an empty payload clears its topic. States that ended come first. A state whose value or
        text changed is not published again: those of an error rate change all the time. One that becomes quiet, or
        is not any more, is.
    """
    ended = [(event_topic(*key), b"") for key in before if key not in after]
    begun = [(key, one) for key, one in after.items() if key not in before or not _is_same(before[key], one)]
    return ended + [(event_topic(*key), encode(one)) for key, one in begun]


def _is_same(one: StateMessage, other: StateMessage) -> bool:
    """Whether both are one state, quiet in both or in neither: the time varies with the offset of the clocks."""
    same = (one.since, one.number) == (other.since, other.number)
    return same and (one.quiet_since is None) == (other.quiet_since is None)


def encode(message: StateMessage | Presence) -> bytes:
    """Encode a message as JSON."""
    return _encoder.encode(message)


def decode_state(topic: str, data: bytes) -> tuple[StateKey, StateMessage | None]:
    """Decode a retained message: the key of the state, and the state, or None for an empty payload, which clears it.

    Raises:
        FormatError: The payload is invalid.
        TopicError: The topic is invalid.
    """
    key = parse_event_topic(topic)
    if not data:
        return key, None
    found = decode_versioned(_state_decoder, _version_decoder.decode, data, MAX_MESSAGE, VERSION)
    if found.kind != key[2]:
        raise FormatError("refused", "the kind differs from that of the topic")
    return key, found


def decode_presence(data: bytes) -> Presence:
    """Decode the message of a daemon's presence.

    Raises:
        FormatError: The payload is invalid.
    """
    return decode_versioned(_presence_decoder, _version_decoder.decode, data, MAX_MESSAGE, VERSION)
