"""IP addresses in texts."""

import ipaddress


def is_ip_address(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address, and not a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
