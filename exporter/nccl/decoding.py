"""What the codecs share: the one error that hostile or foreign input ends in, bounds that are believed, and JSON.

All input comes from jobs, which are not trusted: every decoder is given the largest input that it takes, and nothing
but `FormatError` leaves it.
"""

from typing import Annotated, Literal, TypeVar

import msgspec

MAX_RANKS = 1 << 20
"""Ranks of a communicator that are still believed."""

MAX_BYTES = 1 << 50
"""Bytes of one message that are still believed."""

MAX_MICROSECONDS = 86_400_000_000
"""Microseconds (a day) of one operation that are still believed."""

MAX_BANDWIDTH = 1e15
"""Bytes per second that are still believed."""

MAX_DETAIL = 200
"""Characters of an error's text: it may quote input."""

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Ranks = Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)]
MessageBytes = Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_MICROSECONDS)]
Took = Annotated[int, msgspec.Meta(ge=1, le=MAX_MICROSECONDS)]
"""Microseconds of what is timed at all."""
Word = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_:.+\-]{1,64}\Z")]
Host = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_:.%\-]{0,256}\Z")]
ShortText = Annotated[str, msgspec.Meta(max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=256)]

Reason = Literal["malformed", "invalid", "too_large", "pickle", "unsupported", "refused"]


class FormatError(ValueError):
    """Input that cannot be used, or must not be.

    Attributes:
        reason: `malformed` (not in the format at all), `invalid` (a value is missing, of a wrong type or beyond
            belief), `too_large`, `pickle` (it would run code), `unsupported` (known, but another format) or `refused`
            (well formed, and yet no evidence).
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(printable(detail[:MAX_DETAIL]))
        self.reason: Reason = reason


T = TypeVar("T")


def decode_json(decoder: msgspec.json.Decoder[T], data: bytes, largest: int) -> T:
    """Decode JSON of at most `largest` bytes.

    Raises:
        FormatError: It is larger (`too_large`), no JSON (`malformed`) or of another shape (`invalid`).
    """
    if len(data) > largest:
        raise FormatError("too_large", f"{len(data)} bytes; at most {largest} are read")
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise FormatError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError("malformed", str(error) or "nested too deeply") from None


def refuse_pickle(data: bytes) -> None:
    """Refuse what looks like a pickle: loading one runs code that whoever wrote it chose.

    Raises:
        FormatError: It is one, of any protocol.
    """
    # protocol 2 and later say so in front; 0 and 1 begin with a mark, a dict or a global, and all end with a stop
    if data[:1] == b"\x80" or (data[:1] in b"(}]c" and data[-1:] == b"." and data):
        raise FormatError("pickle", "a pickle is never loaded; have the job write JSON (_dump_nccl_trace_json)")


def printable(text: str) -> str:
    """Replace the characters that could break out of a line or a terminal."""
    return text if text.isprintable() else "".join(one if one.isprintable() else " " for one in text)
