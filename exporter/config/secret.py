"""Secrets: given inline, in a file or in an environment variable; read when used, never logged or shown."""

import os
from pathlib import Path

from exporter.config.errors import UserError
from exporter.config.files import read_regular

MAX_SIZE = 64 * 1024
"""Maximum size of a file with a secret, in bytes; a larger file is not one."""


class SecretError(UserError):
    """A secret cannot be read. The text names its place, never its value."""


def check_exactly_one(name: str, inline: str | None, file: str | None, variable: str | None) -> None:
    """Check that exactly one of the three ways to give a secret is used.

    Raises:
        ValueError: None or several are used.
    """
    given = [value for value in (inline, file, variable) if value is not None]
    if len(given) != 1:
        raise ValueError(f"give exactly one of {name}, {name}_file and {name}_env")


def read_secret(inline: str | None, file: str | None, variable: str | None) -> str:
    """Return the secret, without the line end of a file. Blocks for a file.

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
            reason = "it is not valid UTF-8" if isinstance(error, UnicodeDecodeError) else reason
            raise SecretError(f"{Path(file).absolute()}: the secret cannot be read: {reason}") from None
        place = file
    else:
        place = f"environment variable {variable}"
        secret = os.environ.get(variable or "", "")
    if not secret:
        raise SecretError(f"{place}: the secret is empty or not set")
    return secret
