"""Secrets: inline, in a file, or in the environment; read when they are used, and never shown."""

import os
from pathlib import Path

from exporter.config.files import read_regular

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
            secret = read_regular(file, MAX_SIZE).decode("utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            reason = "it is no UTF-8" if isinstance(error, UnicodeDecodeError) else reason
            raise SecretError(f"{Path(file).absolute()}: the secret cannot be read: {reason}") from None
        place = file
    else:
        place = f"environment variable {variable}"
        secret = os.environ.get(variable or "", "")
    if not secret:
        raise SecretError(f"{place}: the secret is empty or not set")
    return secret
