"""Settings of hosts in retained messages, which collectors compare.

A host publishes the settings that other hosts of its class, or of its jobs, should have alike; again before they
expire, and an empty message at the end.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, TypeAlias

import msgspec

from exporter.core.table import MAX_LABEL_LENGTH, clean_label
from exporter.nccl.decoding import decode_versioned

VERSION = 1

MAX_MESSAGE = 16_384
"""Bytes of a message."""

MAX_SETTINGS = 128
"""Settings of a message."""

MAX_TOTAL = 64 * 1024 * 1024
"""Bytes of the messages of all hosts that a subscriber keeps."""

Setting: TypeAlias = tuple[str, str, str]
"""The class of hosts or job that should have one value, the name of the setting, and a value."""

Settings: TypeAlias = tuple[Setting, ...]

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LABEL_LENGTH)]
Values = Annotated[list[Text], msgspec.Meta(max_length=MAX_SETTINGS)]
Named = Annotated[dict[Text, Values], msgspec.Meta(max_length=MAX_SETTINGS)]


class SettingsMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Payload: values by setting, by the class of hosts or the job; the host is in the topic."""

    version: int
    settings: Annotated[dict[Text, Named], msgspec.Meta(max_length=MAX_SETTINGS)]


class _Version(msgspec.Struct):
    version: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(SettingsMessage)
_version_decoder = msgspec.json.Decoder(_Version)


def encode_settings(settings: Iterable[Setting]) -> bytes:
    """Encode settings, without those that a message has no room for; empty if there are none.

    Texts are made valid as values of labels, as JSON has no half of a UTF-16 pair.
    """
    kept = [tuple(map(clean_label, one)) for one in settings if all(one)][:MAX_SETTINGS]
    while kept:
        found: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for of, name, value in kept:
            found[of][name].append(value)
        payload = _encoder.encode({"version": VERSION, "settings": found})
        if len(payload) <= MAX_MESSAGE:
            return payload
        kept = kept[: len(kept) * 7 // 8]
    return b""


def decode_settings(data: bytes) -> Settings:
    """Decode a message that is not empty.

    Raises:
        FormatError: The payload is invalid.
    """
    message = decode_versioned(_decoder, _version_decoder.decode, data, MAX_MESSAGE, VERSION)
    found = (
        (of, name, value)
        for of, named in message.settings.items()
        for name, values in named.items()
        for value in dict.fromkeys(values)
    )
    return tuple(islice(found, MAX_SETTINGS))
