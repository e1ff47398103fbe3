"""SNMP credentials of a target, read from the configuration, files or environment variables; blocks for files."""

from exporter.config.secret import SecretError, read_secret
from exporter.snmp.message import V1, V2C
from exporter.snmp.security import (
    Authentication,
    Community,
    Credentials,
    Privacy,
    User,
)
from exporter.sources.switch.options import Snmp


def read_credentials(options: Snmp) -> Credentials:
    """Return the community or the v3 user of a target. Blocks for files.

    Raises:
        SecretError: A secret cannot be read, or is invalid, such as a password that is too short.
    """
    if not options.is_v3:
        community = _read_bytes("community", options.community, options.community_file, options.community_env)
        return Community(community, V1 if str(options.version) == "1" else V2C)
    auth, priv = b"", b""
    if options.auth is not None:
        auth = _read_bytes(
            "auth_password", options.auth_password, options.auth_password_file, options.auth_password_env
        )
    if options.priv is not None:
        priv = _read_bytes(
            "priv_password", options.priv_password, options.priv_password_file, options.priv_password_env
        )
    try:
        return User(
            options.user or "",
            None if options.auth is None else Authentication(options.auth),
            auth,
            None if options.priv is None else Privacy(options.priv),
            priv,
            options.context.encode(),
        )
    except UnicodeEncodeError:
        raise SecretError("user or context: it is not valid UTF-8") from None
    except ValueError as error:  # of User, which checks the lengths
        raise SecretError(str(error)) from None


def _read_bytes(key: str, inline: str | None, file: str | None, variable: str | None) -> bytes:
    """Return a secret as bytes; a variable that is not UTF-8 cannot be encoded, and its error would have a part of it.

    Raises:
        SecretError: The secret cannot be read, or is not valid UTF-8.
    """
    secret = read_secret(inline, file, variable)
    try:
        return secret.encode()
    except UnicodeEncodeError:
        place = key if variable is None else f"environment variable {variable}"
        raise SecretError(f"{place}: the secret is not valid UTF-8") from None
