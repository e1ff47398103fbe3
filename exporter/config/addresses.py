"""IP addresses and host names in texts."""

import ipaddress
import re


def is_ip_address(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address, and not a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_host_name(text: str) -> bool:
    """Return whether the resolver accepts a text as a name, or an IPv4 address: labels of 1 to 63 characters."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return re.fullmatch(r"[^\s:/@%\[\]]+", text) is not None
