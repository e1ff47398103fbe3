"""The secrets of a switch, read where the configuration says they are; in a thread, since they may be in files."""

from exporter.config.secret import read_secret
from exporter.snmp.message import V1, V2C
from exporter.snmp.security import (
    Authentication,
    Community,
    Credentials,
    Privacy,
    User,
)
from exporter.sources.switch.options import Snmp


def credentials_of(given: Snmp) -> Credentials:
    """Give the community or the user by which a switch is asked. Blocks for files.

    Raises:
        SecretError: A secret cannot be read.
        ValueError: It is none that an agent would take, such as a password that is too short.
    """
    if not given.is_v3:
        community = read_secret(given.community, given.community_file, given.community_env)
        return Community(community.encode(), V1 if str(given.version) == "1" else V2C)
    signed, secret = b"", b""
    if given.auth is not None:
        signed = read_secret(given.auth_password, given.auth_password_file, given.auth_password_env).encode()
    if given.priv is not None:
        secret = read_secret(given.priv_password, given.priv_password_file, given.priv_password_env).encode()
    return User(
        given.user or "",
        None if given.auth is None else Authentication(given.auth),
        signed,
        None if given.priv is None else Privacy(given.priv),
        secret,
        given.context.encode(),
    )
