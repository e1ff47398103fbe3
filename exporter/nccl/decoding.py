"""What the codecs share: the error for rejected input, plausibility limits, and JSON.

All input comes from jobs and is untrusted: every decoder is given the maximum size of its input, and raises
`FormatError` only.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from exporter.core.printable import printable

MAX_RANKS = 1 << 20
"""Maximum plausible number of ranks of a communicator."""

MAX_BYTES = 1 << 50
"""Maximum plausible bytes of one message."""

MAX_MICROSECONDS = 86_400_000_000
"""Maximum plausible microseconds of one operation: a day."""

MAX_SEQUENCE = 1 << 62
"""Maximum plausible sequence number: those of a batch after it are still in the range of 63 bits."""

MAX_BANDWIDTH = 1e15
"""Maximum plausible bytes per second."""

MAX_DETAIL = 200
"""Characters of an error's text, which may quote input."""

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
SequenceNumber = Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE)]
Ranks = Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)]
MessageBytes = Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_MICROSECONDS)]
PositiveMicroseconds = Annotated[int, msgspec.Meta(ge=1, le=MAX_MICROSECONDS)]
Word = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_:.+\-]{1,64}\Z")]
Host = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_:.%\-]{0,256}\Z")]
ShortText = Annotated[str, msgspec.Meta(max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=256)]

Reason = Literal["malformed", "invalid", "too_large", "pickle", "unsupported", "unsupported_version", "refused"]


class FormatError(ValueError):
    """Input that cannot be used.

    Attributes:
        reason: `malformed` (not in the format), `invalid` (a value is missing, has the wrong type or is implausible),
            `too_large`, `pickle` (loading it would run code), `unsupported` (a known but different format),
            `unsupported_version` (of our own messages) or `refused` (well formed, but not usable as evidence).
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(printable(detail[:MAX_DETAIL]))
        self.reason: Reason = reason


T = TypeVar("T")


class Versioned(Protocol):
    """A message that contains its version."""

    @property
    def version(self) -> int: ...  # noqa: D102


V = TypeVar("V", bound=Versioned)

Decoder: TypeAlias = msgspec.json.Decoder[T] | msgspec.msgpack.Decoder[T]


def decode_versioned(
    decoder: Decoder[V], decode_version: Callable[[bytes], Versioned], data: bytes, largest: int, supported: int
) -> V:
    """Decode one of our own messages of at most `largest` bytes.

    Args:
        decoder: Of the message.
        decode_version: Decodes the version alone: a message of a newer version may have another form.
        data: The message.
        largest: Bytes.
        supported: The only version that is supported.

    Raises:
        FormatError: As by `decode`, or `unsupported_version`.
    """
    try:
        found = decode(decoder, data, largest)
    except FormatError as error:
        if error.reason == "invalid":
            with suppress(msgspec.MsgspecError):
                _check_version(decode_version(data).version, supported)
        raise
    _check_version(found.version, supported)
    return found


def _check_version(version: int, supported: int) -> None:
    if version != supported:
        raise FormatError("unsupported_version", f"version {version}; {supported} is supported")


def decode(decoder: Decoder[T], data: bytes, largest: int) -> T:
    """Decode JSON or MessagePack of at most `largest` bytes.

    Raises:
        FormatError: The data is larger (`too_large`), not in the format (`malformed`) or does not match the type
            (`invalid`).
    """
    if len(data) > largest:
        raise FormatError("too_large", f"{len(data)} bytes; at most {largest} are read")
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise FormatError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError("malformed", str(error) or "nested too deeply") from None


def reject_pickle(data: bytes) -> None:
    """Reject data that looks like a pickle: loading one runs code chosen by its writer.

    Raises:
        FormatError: It is a pickle, of any protocol.
    """
    # Protocols 2 and later start with a PROTO opcode; 0 and 1 start with a MARK, a dict or a global. All end with STOP.
    if data[:1] == b"\x80" or (data[:1] in b"(}]c" and data[-1:] == b"." and data):
        raise FormatError("pickle", "a pickle is never loaded; have the job write JSON (_dump_nccl_trace_json)")
