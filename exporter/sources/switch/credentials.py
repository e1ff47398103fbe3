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
        community = read_secret(options.community, options.community_file, options.community_env)
        return Community(community.encode(), V1 if str(options.version) == "1" else V2C)
    auth, priv = b"", b""
    if options.auth is not None:
        auth = read_secret(options.auth_password, options.auth_password_file, options.auth_password_env).encode()
    if options.priv is not None:
        priv = read_secret(options.priv_password, options.priv_password_file, options.priv_password_env).encode()
    try:
        return User(
            options.user or "",
            None if options.auth is None else Authentication(options.auth),
            auth,
            None if options.priv is None else Privacy(options.priv),
            priv,
            options.context.encode(),
        )
    except ValueError as error:  # of User, which checks the lengths
        raise SecretError(str(error)) from None
