"""Secrets: inline, in a file, or in the environment; read when they are used, and never shown."""

import os
import stat

MAX_SIZE = 64 * 1024
"""Bytes of a secret's file; a larger one is some other file."""


class SecretError(Exception):
    """A secret cannot be had; the text names where it should be, never what it is."""


def check_one(name: str, inline: str | None, file: str | None, variable: str | None) -> None:
    """See that exactly one way is given.

    Raises:
        ValueError: None or several are.
    """
    given = [value for value in (inline, file, variable) if value is not None]
    if len(given) != 1:
        raise ValueError(f"give exactly one of {name}, {name}_file and {name}_env")


def read_secret(inline: str | None, file: str | None, variable: str | None) -> str:
    """Give the secret from the one way that is set; the end of a file's line is no part of it. Blocks for a file.

    Raises:
        SecretError: It cannot be read, or is empty.
    """
    if inline is not None:
        return inline
    if file is not None:
        try:
            secret = _content(file).decode("utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            reason = "it is no UTF-8" if isinstance(error, UnicodeDecodeError) else reason
            raise SecretError(f"{file}: the secret cannot be read: {reason}") from None
        place = file
    else:
        place = f"environment variable {variable}"
        secret = os.environ.get(variable or "", "")
    if not secret:
        raise SecretError(f"{place}: the secret is empty or not set")
    return secret


def _content(file: str) -> bytes:
    """Read a file that may turn out to be a pipe, which would block for ever, or a device without end.

    Raises:
        OSError: As open and read do.
        ValueError: It is no regular file, or too large.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no regular file")
        content = os.read(descriptor, MAX_SIZE + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_SIZE:
        raise ValueError(f"it is larger than {MAX_SIZE} bytes")
    return content
