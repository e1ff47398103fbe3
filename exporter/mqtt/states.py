"""States of ports, and whether daemons are there: retained messages that go when the state goes, or its teller.

A state that is active stands at its topic, and is told again before it expires; one that is over is cleared by an empty
message. So whoever connects hears at once what is the case now, and nothing of it outlives a daemon for long.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from exporter.mqtt.topics import event_topic, is_name, parse_event_topic
from exporter.nccl.decoding import FormatError, decode_json, printable

VERSION = 1

_OF_JOB = "@"

EXPIRY = 3600.0
"""Seconds that the broker keeps a state that is not told again."""

REFRESH = EXPIRY / 2
"""Seconds after which it is told again."""

GONE_EXPIRY = 86_400.0
"""Seconds that the broker keeps that a daemon is gone."""

MAX_STATE = 4096
"""Bytes of a message."""

MAX_STATES = 65_536
"""States that one publisher tells, or one subscriber keeps."""

MAX_TEXT = 512

Line = Annotated[str, msgspec.Meta(max_length=MAX_TEXT, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\Z")]
"""Text without line ends or control characters."""

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is told of a state of a port; where it is stands in the topic.

    Attributes:
        kind: Which one: down, errors ….
        since: Seconds since 1970 of its begin.
        number: How often it began since the start of the one who tells, from 1: one that went and came back between
            two looks is another.
        value: How much, in the base unit of the kind; None where there is no number to it.
        text: In words, for people.
        version: Of the form.
    """

    version: int
    kind: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_]{1,64}\Z")]
    since: Seconds
    number: Count
    value: Number | None = None
    text: Line = ""


class Presence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the daemon of a host is there.

    Attributes:
        state: `up`, or `gone` as its last will says.
        since: Seconds since 1970 of its start; 0 where it is gone.
        number: How often it connected since, from 1; 0 where it is gone.
        version: Of the form.
    """

    version: int
    state: Literal["up", "gone"]
    since: Seconds = 0.0
    number: Count = 0


Place = tuple[str, str]
"""Name of the host or switch, and the port or device."""

States = Mapping[tuple[str, str, str], State]
"""Active states by name, port and kind."""

_encoder = msgspec.json.Encoder()
_state_decoder = msgspec.json.Decoder(State)
_presence_decoder = msgspec.json.Decoder(Presence)


def port_of_job(port: str, job: str) -> str:
    """Name a port of which a job's log tells; without a job it keeps its name."""
    return f"{port}{_OF_JOB}{job}" if job else port


def job_of_port(name: str) -> tuple[str, str]:
    """Give the port and the job of such a name; no job where the port itself tells."""
    port, _, job = name.partition(_OF_JOB)
    return port, job


def state(kind: str, since: float, number: int = 1, value: float | None = None, text: str = "") -> State:
    """Make a state of the version that is written; of its text what stands in one line, and not too long."""
    return State(version=VERSION, kind=kind, since=since, number=number, value=value, text=printable(text[:MAX_TEXT]))


def by_key(active: Iterable[tuple[Place, State]]) -> dict[tuple[str, str, str], State]:
    """Give states by name, port and kind; without those whose names no topic can have."""
    found = {(name, port, one.kind): one for (name, port), one in active}
    return {key: one for key, one in found.items() if all(map(is_name, key))}


def changes(before: States, after: States) -> list[tuple[str, bytes]]:
    """Give what is to be published, retained, to turn one set of active states into another.

    Returns:
        Topics and messages; an empty message clears its topic. What is over comes first. A state that goes on with
        another value or text is no change: those of an error rate would change at every look.
    """
    over = [(event_topic(*key), b"") for key in before if key not in after]
    begun = [(key, one) for key, one in after.items() if key not in before or not _is_same(before[key], one)]
    return over + [(event_topic(*key), encode(one)) for key, one in begun]


def _is_same(one: State, other: State) -> bool:
    return (one.since, one.number) == (other.since, other.number)


def encode(what: State | Presence) -> bytes:
    """Write a message."""
    return _encoder.encode(what)


def decode_state(topic: str, data: bytes) -> tuple[tuple[str, str, str], State | None]:
    """Read a message of a state: its key, and None where it is over.

    Raises:
        FormatError: It cannot be used.
        TopicError: Its topic is none of states.
    """
    key = parse_event_topic(topic)
    if not data:
        return key, None
    found = decode_json(_state_decoder, data, MAX_STATE)
    _check_version(found.version)
    if found.kind != key[2]:
        raise FormatError("refused", "the kind is another one than that of the topic")
    return key, found


def decode_presence(data: bytes) -> Presence:
    """Read whether a daemon is there.

    Raises:
        FormatError: It cannot be used.
    """
    found = decode_json(_presence_decoder, data, MAX_STATE)
    _check_version(found.version)
    return found


def _check_version(version: int) -> None:
    if version != VERSION:
        raise FormatError("unsupported", f"version {version}; {VERSION} is read")
