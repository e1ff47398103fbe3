"""Errors of the system as logs name them: part of the text of strerror, number on Linux, and a name for labels.

The texts are those of glibc; those of musl that differ come first where they would match another entry.
"""

from typing import NamedTuple


class KnownError(NamedTuple):
    """One error: part of its text, its errno on Linux, and its name."""

    text: str
    number: int
    name: str


ERRORS = (
    KnownError("Connection refused", 111, "refused"),
    KnownError("timed out", 110, "timed_out"),
    KnownError("No route to host", 113, "no_route"),
    KnownError("Host is unreachable", 113, "no_route"),
    KnownError("unreachable", 101, "unreachable"),
    KnownError("Network is down", 100, "network_down"),
    KnownError("Host is down", 112, "host_down"),
    KnownError("Connection reset", 104, "reset"),
    KnownError("connection abort", 103, "aborted"),
    KnownError("Broken pipe", 32, "broken_pipe"),
    KnownError("Cannot assign requested address", 99, "address_unavailable"),
    KnownError("Address already in use", 98, "address_in_use"),
    KnownError("not connected", 107, "not_connected"),
    KnownError("temporarily unavailable", 11, "temporarily_unavailable"),
    KnownError("Too many open files", 24, "too_many_files"),
    KnownError("Cannot allocate memory", 12, "no_memory"),
    KnownError("No buffer space", 105, "no_buffers"),
    KnownError("Invalid argument", 22, "invalid_argument"),
    KnownError("not permitted", 1, "not_permitted"),
    KnownError("Permission denied", 13, "not_permitted"),
    KnownError("not supported", 95, "not_supported"),
    KnownError("Bad address", 14, "bad_address"),
    KnownError("No such device", 19, "no_device"),
    KnownError("Input/output error", 5, "input_output"),
    KnownError("Operation canceled", 125, "canceled"),
)
"""Errors that calls of a network return."""


def number_of_text(text: str) -> int | None:
    """Return the errno of a text; None if it is not known."""
    return next((one.number for one in ERRORS if one.text in text), None)


def name_of(text: str, number: int | None) -> str | None:
    """Return the name of an error by its text, else by its number; None if it is not known."""
    by_text = (one.name for one in ERRORS if one.text in text)
    by_number = (one.name for one in ERRORS if one.number == number)
    return next(by_text, None) or next(by_number, None)
