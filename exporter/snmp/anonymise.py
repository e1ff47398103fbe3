"""Anonymises a recording of a switch: removes what identifies its owner, and keeps its counters.

The tables that are kept are listed below; all others are dropped, since their content is unknown. Names, addresses and
serial numbers are replaced, see `pseudonyms`: equal ones by equal ones within a file.
"""

import enum
import ipaddress
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from exporter.snmp.ber import (
    IP_ADDRESS,
    OCTET_STRING,
    Oid,
    Typed,
)
from exporter.snmp.pseudonyms import IPV4_BYTES, IPV6_BYTES, MAC_BYTES, Pseudonyms

_MIB2 = (1, 3, 6, 1, 2, 1)
_ENTERPRISES = (1, 3, 6, 1, 4, 1)
_LLDP = (1, 0, 8802, 1, 1, 2, 1)
_LLDP_V2 = (1, 3, 111, 2, 802, 1, 1, 13, 1)
_ENTITY = (*_MIB2, 47, 1, 1, 1, 1)


class Rule(enum.Enum):
    """How the strings of a column are treated; all its other values are kept, except for addresses.

    KEEP: kept. SCRUB: kept, with names, addresses and serial numbers inside them replaced. NAME: replaced. PORT: kept
    if they are a usual interface name, else replaced. IDENTITY: replaced by another MAC address or another text. DROP:
    rows with strings are dropped.
    """

    KEEP = enum.auto()
    SCRUB = enum.auto()
    NAME = enum.auto()
    PORT = enum.auto()
    IDENTITY = enum.auto()
    DROP = enum.auto()


RULES: Final[Mapping[Oid, Rule]] = MappingProxyType(
    {
        (*_MIB2, 1, 1): Rule.SCRUB,
        (*_MIB2, 1, 2): Rule.KEEP,
        (*_MIB2, 1, 3): Rule.KEEP,
        (*_MIB2, 1, 4): Rule.NAME,
        (*_MIB2, 1, 5): Rule.NAME,
        (*_MIB2, 1, 6): Rule.NAME,
        (*_MIB2, 1, 7): Rule.KEEP,
        (*_MIB2, 2): Rule.DROP,
        (*_MIB2, 2, 2, 1, 2): Rule.PORT,
        (*_MIB2, 2, 2, 1, 6): Rule.IDENTITY,
        (*_MIB2, 10, 7): Rule.DROP,
        (*_MIB2, 31, 1, 1): Rule.DROP,
        (*_MIB2, 31, 1, 1, 1, 1): Rule.PORT,
        (*_MIB2, 31, 1, 1, 1, 18): Rule.NAME,
        **{(*_ENTITY, column): Rule.SCRUB for column in (2, 7, 8, 9, 10, 12, 13)},
        **{(*_ENTITY, column): Rule.KEEP for column in (3, 4, 5, 6, 16)},
        **{(*_ENTITY, column): Rule.NAME for column in (11, 14, 15)},
        (*_MIB2, 47, 1, 3, 2): Rule.KEEP,
        (*_MIB2, 99, 1, 1): Rule.KEEP,
        (*_LLDP, 3): Rule.DROP,
        (*_LLDP, 3, 2): Rule.IDENTITY,
        (*_LLDP, 3, 3): Rule.NAME,
        (*_LLDP, 3, 4): Rule.SCRUB,
        (*_LLDP, 3, 5): Rule.KEEP,
        (*_LLDP, 3, 6): Rule.KEEP,
        (*_LLDP, 3, 7, 1, 3): Rule.IDENTITY,
        (*_LLDP, 3, 7, 1, 4): Rule.PORT,
        (*_LLDP, 3, 8): Rule.DROP,
        (*_LLDP, 4, 1, 1): Rule.KEEP,
        (*_LLDP, 4, 1, 1, 5): Rule.IDENTITY,
        (*_LLDP, 4, 1, 1, 7): Rule.IDENTITY,
        (*_LLDP, 4, 1, 1, 8): Rule.PORT,
        (*_LLDP, 4, 1, 1, 9): Rule.NAME,
        (*_LLDP, 4, 1, 1, 10): Rule.NAME,
        (*_LLDP, 4, 2): Rule.DROP,
        (*_LLDP_V2, 3): Rule.DROP,
        (*_LLDP_V2, 3, 2): Rule.IDENTITY,
        (*_LLDP_V2, 3, 3): Rule.NAME,
        (*_LLDP_V2, 3, 4): Rule.SCRUB,
        (*_LLDP_V2, 3, 7, 1, 3): Rule.IDENTITY,
        (*_LLDP_V2, 3, 7, 1, 4): Rule.PORT,
        (*_LLDP_V2, 4, 1, 1): Rule.KEEP,
        (*_LLDP_V2, 4, 1, 1, 6): Rule.IDENTITY,
        (*_LLDP_V2, 4, 1, 1, 8): Rule.IDENTITY,
        (*_LLDP_V2, 4, 1, 1, 9): Rule.PORT,
        (*_LLDP_V2, 4, 1, 1, 10): Rule.NAME,
        (*_LLDP_V2, 4, 1, 1, 11): Rule.NAME,
        (*_LLDP_V2, 4, 2): Rule.DROP,
        (1, 3, 111, 2, 802, 1, 1, 21): Rule.DROP,
        # Vendor tables of counters by interface, which have no address in their indexes.
        **{(*_ENTERPRISES, 9, 9, table): Rule.DROP for table in (91, 580, 813)},
        (*_ENTERPRISES, 2636, 3, 15): Rule.DROP,
        (*_ENTERPRISES, 2636, 3, 60): Rule.DROP,
        **{(*_ENTERPRISES, 30065, 3, table): Rule.DROP for table in (6, 11, 13, 15)},
        (*_ENTERPRISES, 33049, 3, 1): Rule.DROP,
        (*_ENTERPRISES, 33049, 15): Rule.DROP,
        (*_ENTERPRISES, 40310, 2): Rule.DROP,
        **{(*_ENTERPRISES, 40310, 2, *table, 1, 1): Rule.PORT for table in ((1, 1), (1, 2), (2, 2), (2, 3))},
    }
)
"""By column or table; the longest matching prefix of an identifier applies."""

_MAC_SUBTYPES: Final[Mapping[Oid, int]] = MappingProxyType(
    {
        (*_LLDP, 3, 2): 4,
        (*_LLDP, 3, 7, 1, 3): 3,
        (*_LLDP, 4, 1, 1, 5): 4,
        (*_LLDP, 4, 1, 1, 7): 3,
        (*_LLDP_V2, 3, 2): 4,
        (*_LLDP_V2, 3, 7, 1, 3): 3,
        (*_LLDP_V2, 4, 1, 1, 6): 4,
        (*_LLDP_V2, 4, 1, 1, 8): 3,
    }
)
"""Columns of identities whose subtype is in the column before, and the subtype of a MAC address."""

_ADDRESS_INDEXED: Final[Mapping[Oid, int]] = MappingProxyType(
    {
        (*_LLDP, 3, 8, 1): 1,
        (*_LLDP, 4, 2, 1): 4,
        (*_LLDP_V2, 3, 8, 1): 1,
        (*_LLDP_V2, 4, 2, 1): 5,
    }
)
"""Tables with an address in the index (subtype, length, bytes), and how many numbers come before it."""

_PORT_NAME = re.compile(
    r"(?:eth|ethernet|fourhundredgige|hundredgige|fiftygige|twentyfivegige|tengige|gigabitethernet|ge|xe|et|fo|te|hu|ce"
    r"|swp|port|po|port-?channel|ae|bond|peerlink|lag|lo|loopback|mgmt|management|vlan|vxlan|irb|null|cpu|me|em|fxp|vme"
    r"|bridge|br|br_default|mpo|swid[0-9]+_eth|mirror|lsi|dsc|tap|gre|ipip|pime|pimd|mtun|jsrv|esi|vtep|bme|gr|rtg|pfe|pfh)"
    r"[ -]?(?:[0-9][0-9/.:_s-]{0,64})?(?:\(port[0-9]{1,10}\))?"
    r"|[0-9]{1,10}(?:/[0-9]{1,10}){1,8}(?::[0-9]{1,10})?",
    re.IGNORECASE,
)
_VENDOR_NAMES: Final = frozenset(
    ("arista", "cumulus", "eos", "juniper", "linux", "localhost", "onyx", "sonic", "switch")
)
"""Factory names of switches, which occur in the vendors' descriptions too."""

_MAC_TEXT = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f])")
_MAC_DOTTED = re.compile(r"(?<![0-9A-Fa-f.])(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}(?![0-9A-Fa-f.])")
_MAC_PLAIN = re.compile(r"(?<![0-9A-Za-z])(?=[0-9]*[A-Fa-f])(?=[A-Fa-f]*[0-9])[0-9A-Fa-f]{12}(?![0-9A-Za-z])")
_IPV4 = re.compile(r"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9.])")
_IPV6 = re.compile(r"(?<![0-9A-Fa-f:])[0-9A-Fa-f:]{2}[0-9A-Fa-f]*+:[0-9A-Fa-f:.]*+")
_VERSION = re.compile(r"version.{0,20}$", re.IGNORECASE)
_MAX_MAJOR_VERSION: Final = 9
_SERIAL = re.compile(r"(?i)\b(serial(?: ?(?:number|no\.?))?|s/n|sn)([ :#=]+)(\S+)")

_NAME_RULES: Final = (Rule.NAME, Rule.PORT, Rule.IDENTITY)
_SENTENCE_COLUMNS: Final = ((*_ENTITY, 14), (*_LLDP, 4, 1, 1, 10), (*_LLDP_V2, 4, 1, 1, 11))
"""Columns that are replaced like names, but contain sentences or words that are not names."""
_MAX_BYTE: Final = 255
_MIN_INSIDE_WORDS = 4
"""Length of a name that is replaced also inside of words; shorter ones are replaced as whole words only."""


def anonymise(rows: Mapping[Oid, Typed]) -> dict[Oid, Typed]:
    """Return the rows of a recording, anonymised as the module describes."""
    return _Anonymiser(rows).rows()


class _Anonymiser:
    """Replaces the identities of one recording."""

    def __init__(self, rows: Mapping[Oid, Typed]) -> None:
        self._rows = rows
        self._pseudonyms = Pseudonyms()
        self._names = self._name_pattern()

    def rows(self) -> dict[Oid, Typed]:
        """Return the rows that are kept, with identities replaced."""
        anonymised: dict[Oid, Typed] = {}
        for oid, value in self._rows.items():
            column, rule = _rule(oid)
            changed = None if rule is None else self._value(oid, column, rule, value)
            if changed is not None:
                anonymised[self._identifier(oid)] = changed
        return anonymised

    def _value(self, oid: Oid, column: Oid, rule: Rule, value: Typed) -> Typed | None:
        """Return the replacement of a value; None if the row is dropped."""
        tag, content = value
        if not isinstance(content, bytes):
            return value
        if tag == IP_ADDRESS:
            return Typed(tag, self._pseudonyms.ipv4(content))
        if rule is Rule.DROP or tag != OCTET_STRING:
            return None
        return Typed(tag, self._string(oid, column, rule, content))

    def _string(self, oid: Oid, column: Oid, rule: Rule, content: bytes) -> bytes:
        """Return the replacement of a string that is not dropped."""
        if rule is Rule.KEEP or not content:
            return content
        if rule is Rule.IDENTITY:
            return self._identity(oid, column, content)
        text = _text(content)
        if rule is Rule.SCRUB:
            return self._scrub(text).encode()
        return content if rule is Rule.PORT and _PORT_NAME.fullmatch(text) else self._pseudonyms.name(text).encode()

    def _identifier(self, oid: Oid) -> Oid:
        """Return an identifier with the address in its index, if there is one, replaced."""
        for table, before in _ADDRESS_INDEXED.items():
            start = len(table) + 1 + before + 1  # after the column, the numbers before and the length
            if oid[: len(table)] == table and len(oid) > start:
                head, address = oid[:start], oid[start:]
                if max(address) > _MAX_BYTE:
                    return (*head, *self._pseudonyms.digest("address", repr(address).encode(), len(address)))
                return (*head, *self._pseudonyms.address(bytes(address)))
        return oid

    def _name_pattern(self) -> re.Pattern[str] | None:
        """Return the pattern of all names to replace inside of texts, the longest first; None if there is none."""
        found = set()
        for oid, (tag, content) in self._rows.items():
            column, rule = _rule(oid)
            has_names = rule in _NAME_RULES and column not in _SENTENCE_COLUMNS
            if tag == OCTET_STRING and isinstance(content, bytes) and has_names:
                text = _text(content)
                if text.isprintable() and not _PORT_NAME.fullmatch(text):
                    found |= {text, text.partition(".")[0]}  # also a host without its domain
        letters = [name for name in found if len(name) > 1 and re.search("[A-Za-z]", name)]
        names = sorted((name for name in letters if name.lower() not in _VENDOR_NAMES), key=len, reverse=True)
        patterns = [re.escape(name) if len(name) >= _MIN_INSIDE_WORDS else rf"\b{re.escape(name)}\b" for name in names]
        return re.compile("|".join(patterns), re.IGNORECASE) if patterns else None

    def _scrub(self, text: str) -> str:
        """Replace names, addresses and serial numbers inside of a text."""
        text = _SERIAL.sub(lambda found: f"{found[1]}{found[2]}{self._pseudonyms.name(found[3])}", text)
        for pattern in (_MAC_TEXT, _MAC_DOTTED, _MAC_PLAIN, _IPV6, _IPV4):
            text = pattern.sub(self._replace_address, text)
        return text if self._names is None else self._names.sub(lambda found: self._pseudonyms.name(found[0]), text)

    def _replace_address(self, found: re.Match[str]) -> str:
        """Replace an address inside of a text; four numbers that are a version are kept."""
        major = found[0].partition(".")[0]
        if major.isdecimal() and int(major) <= _MAX_MAJOR_VERSION and _VERSION.search(found.string[: found.start()]):
            return found[0]
        return self._text_address(found[0]) or found[0]

    def _identity(self, oid: Oid, column: Oid, content: bytes) -> bytes:
        """Replace a MAC address, a network address or a name; a usual interface name is kept."""
        mac_kind = _MAC_SUBTYPES.get(column)
        kind = self._rows.get((*column[:-1], column[-1] - 1, *oid[len(column) :]))
        if len(content) == MAC_BYTES and (mac_kind is None or (kind is not None and kind.value == mac_kind)):
            return self._pseudonyms.mac(content)
        if len(content) in (1 + IPV4_BYTES, 1 + IPV6_BYTES) and content[0] in (1, 2):  # family, then address
            return content[:1] + self._pseudonyms.address(content[1:])
        text = _text(content)
        if _PORT_NAME.fullmatch(text):
            return content
        if len(content) == MAC_BYTES and not text.isprintable():
            return self._pseudonyms.mac(content)
        return (self._text_address(text) or self._pseudonyms.name(text)).encode()

    def _text_address(self, text: str) -> str | None:
        """Replace an address in a usual notation by another in the same notation; None if it is not an address."""
        digits = re.sub(r"[:.-]", "", text)
        if _MAC_TEXT.fullmatch(text):
            separator = text[2]
            return separator.join(f"{byte:02x}" for byte in self._pseudonyms.mac(bytes.fromhex(digits)))
        if _MAC_DOTTED.fullmatch(text):
            other = self._pseudonyms.mac(bytes.fromhex(digits)).hex()
            return ".".join(other[start : start + 4] for start in (0, 4, 8))
        if _MAC_PLAIN.fullmatch(text):
            return self._pseudonyms.mac(bytes.fromhex(text)).hex()
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return None
        return str(ipaddress.ip_address(self._pseudonyms.address(address.packed)))


def _text(content: bytes) -> str:
    """Decode a string; invalid bytes are replaced."""
    return content.decode("utf-8", "replace").strip("\0 \t\r\n")


def _rule(oid: Oid) -> tuple[Oid, Rule | None]:
    """Return the column or table of an identifier that has a rule, and the rule; None if it has none."""
    for length in range(len(oid) - 1, 5, -1):
        rule = RULES.get(oid[:length])
        if rule is not None:
            return oid[:length], rule
    return (), None
