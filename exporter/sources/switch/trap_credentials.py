"""The credentials of targets in an engine of pysnmp, which checks those of each trap and inform."""

import hashlib
from types import MappingProxyType
from typing import NamedTuple

from pysnmp.entity import config
from pysnmp.entity.engine import SnmpEngine
from pysnmp.proto.rfc1902 import OctetString

from exporter.snmp.security import (
    Authentication,
    Community,
    Credentials,
    Privacy,
    User,
)

_AUTHENTICATION = MappingProxyType(
    {
        None: config.USM_AUTH_NONE,
        Authentication.MD5: config.USM_AUTH_HMAC96_MD5,
        Authentication.SHA: config.USM_AUTH_HMAC96_SHA,
        Authentication.SHA224: config.USM_AUTH_HMAC128_SHA224,
        Authentication.SHA256: config.USM_AUTH_HMAC192_SHA256,
        Authentication.SHA384: config.USM_AUTH_HMAC256_SHA384,
        Authentication.SHA512: config.USM_AUTH_HMAC384_SHA512,
    }
)
_PRIVACY = MappingProxyType(
    {
        None: config.USM_PRIV_NONE,
        Privacy.DES: config.USM_PRIV_CBC56_DES,
        Privacy.AES: config.USM_PRIV_CFB128_AES,
        Privacy.AES192: config.USM_PRIV_CFB192_AES_BLUMENTHAL,
        Privacy.AES256: config.USM_PRIV_CFB256_AES_BLUMENTHAL,
        Privacy.AES192C: config.USM_PRIV_CFB192_AES,
        Privacy.AES256C: config.USM_PRIV_CFB256_AES,
    }
)
"""Algorithms to their constants in pysnmp; those of longer keys without a name in them are Reeder's there."""


class Security(NamedTuple):
    """What pysnmp reports of a message whose credentials it knows.

    Attributes:
        name: Security name: that of the user, or one for a community.
        level: Security level from 1 to 3.
        is_user: Whether it is a user of version 3.
    """

    name: str
    level: int
    is_user: bool


def security_of(credentials: Credentials) -> Security:
    """Return the security name of credentials, and the minimum level of their messages."""
    if isinstance(credentials, Community):
        # one name for all targets with the community, which is not shown
        return Security(hashlib.sha256(credentials.community).hexdigest()[:32], 1, is_user=False)
    level = 1 + (credentials.authentication is not None) + (credentials.privacy is not None)
    return Security(credentials.name, level, is_user=True)


def add_credentials(engine: SnmpEngine, credentials: Credentials, engine_id: str | None) -> None:
    """Add a target's credentials to pysnmp, or replace those of the same user."""
    if isinstance(credentials, Community):
        name = security_of(credentials).name
        config.add_v1_system(engine, name, OctetString(credentials.community), securityName=name)
        return
    _add_user(engine, credentials, None)  # for informs, our own engine is authoritative
    if engine_id is not None:
        _add_user(engine, credentials, OctetString(hexValue=engine_id.removeprefix("0x")))


def remove_community(engine: SnmpEngine, community: Community) -> None:
    """Remove a community that no target has any more."""
    config.delete_v1_system(engine, security_of(community).name)


def _add_user(engine: SnmpEngine, user: User, engine_id: OctetString | None) -> None:
    config.add_v3_user(
        engine,
        user.name,
        _AUTHENTICATION[user.authentication],
        OctetString(user.authentication_password) if user.authentication else None,
        _PRIVACY[user.privacy],
        OctetString(user.privacy_password) if user.privacy else None,
        securityEngineId=engine_id,
    )
