"""Canonical names of switch ports, to compare names of two protocols or two ends of a link.

`Gi1/0/1` and `GigabitEthernet1/0/1` are the same port, and `Eth1/1`, `Ethernet1/1` and `ethernet 1/1` are. Labels keep
the spelling of the switch.
"""

import re
from types import MappingProxyType

_WORDS = MappingProxyType(
    {
        "et": "ethernet",
        "eth": "ethernet",
        "ethernet": "ethernet",
        "fa": "fastethernet",
        "gi": "gigabitethernet",
        "gig": "gigabitethernet",
        "gige": "gigabitethernet",
        "te": "tengigabitethernet",
        "ten": "tengigabitethernet",
        "tengige": "tengigabitethernet",
        "ten-gigabitethernet": "tengigabitethernet",
        "xge": "tengigabitethernet",
        "twe": "twentyfivegige",
        "twentyfivegigabitethernet": "twentyfivegige",
        "wge": "twentyfivegige",
        "fo": "fortygigabitethernet",
        "fortygige": "fortygigabitethernet",
        "fge": "fortygigabitethernet",
        "hu": "hundredgige",
        "hun": "hundredgige",
        "hge": "hundredgige",
        "hundredgigabitethernet": "hundredgige",
        "twohundredgigabitethernet": "twohundredgige",
        "fourhundredgigabitethernet": "fourhundredgige",
        "ma": "management",
        "mgmt": "management",
        "po": "port-channel",
        "portchannel": "port-channel",
        "lo": "loopback",
        "vl": "vlan",
    }
)
"""Abbreviations and synonyms to the canonical word."""

_NAME = re.compile(r"([A-Za-z-]{0,63}?)[\s-]?([0-9].*)", re.DOTALL)
"""A word and what begins with a number. The longest word has 29 letters; bounded, since names are of others."""


def canonical(name: str) -> str:
    """Return the canonical name of a port: for comparison only, never as a label."""
    bare = _without_comment(name.strip())
    found = _NAME.fullmatch(bare)
    if found is None:
        return bare.lower()
    word = found[1].lower()
    return f"{_WORDS.get(word, word)}{found[2].lower()}"


def _without_comment(name: str) -> str:
    """Return a name without the text in parentheses at its end."""
    bare, opening, comment = name.rpartition("(")
    return bare.rstrip() if opening and comment.endswith(")") and ")" not in comment[:-1] else name
