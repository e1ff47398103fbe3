"""The one spelling of a port's name, by which it is told whether two names mean the same port.

`Gi1/0/1` and `GigabitEthernet1/0/1` are one port, and `Eth1/1`, `Ethernet1/1` and `ethernet 1/1` are. Labels keep the
spelling of the switch; this is for joining what two ways, or two ends of a link, say.
"""

import re

_WORDS = {
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
"""Short forms, and forms that mean the same, to the one that is kept."""

_NAME = re.compile(r"\s*([A-Za-z-]*?)[\s-]?([0-9].*?)\s*", re.DOTALL)
_REMARK = re.compile(r"\s*\([^()]*\)\s*$")


def canonical(name: str) -> str:
    """Give the one spelling of a port's name: for comparing only, never for showing."""
    bare = _REMARK.sub("", name)
    found = _NAME.fullmatch(bare)
    if found is None:
        return bare.strip().lower()
    word = found[1].lower()
    return f"{_WORDS.get(word, word)}{found[2].lower()}"
