"""Virtual functions of a port by rtnetlink (IFLA_VFINFO_LIST): traffic of each, as its physical function counts it.

Layouts: include/uapi/linux/if_link.h. They are requested of one port at a time: with many functions the answer is
longer than a message of a dump. The counters are those of the function, in whichever namespace it is, and also where it
has no network device. For a driver without such counters (ndo_get_vf_stats) the kernel sends zeros.
"""

import errno
import struct
from dataclasses import dataclass
from types import MappingProxyType

from exporter.linux.netlink.messages import attribute_u32, attributes, number

GET_LINK = 18
"""RTM_GETLINK; a request with an index is answered with that link."""

MAX_FUNCTIONS = 4096
"""Virtual functions of a port that are parsed; PCI Express allows 65,535, cards at present 1,024."""

_LINK = struct.Struct("=BxHiII")
_EXT_MASK = 29
_VF_FILTER = 1  # RTEXT_FILTER_VF; with RTEXT_FILTER_SKIP_STATS the kernel would leave out those of the functions too

_VFINFO_LIST = 22
_VF_INFO = 1
_VF_MAC = 1
_VF_STATS = 8
_MAC = struct.Struct("=I6s")  # ifla_vf_mac: number of the function, address

_COUNTERS = MappingProxyType(
    {
        0: "rx_packets",
        1: "tx_packets",
        2: "rx_bytes",
        3: "tx_bytes",
        7: "rx_dropped",
        8: "tx_dropped",
    }
)
"""enum of IFLA_VF_STATS_*, with the names that struct rtnl_link_stats64 has for the same; received by the function is
rx."""


@dataclass(frozen=True, slots=True)
class VirtualFunction:
    """One virtual function.

    Attributes:
        number: Its number, as N of `virtfnN`.
        mac: Its address; None if it has none.
        stats: Its counters by the names of struct rtnl_link_stats64.
    """

    number: int
    mac: str | None
    stats: dict[str, int]


def virtual_functions_request(ifindex: int) -> bytes:
    """Encode the body of a GET_LINK request for one port with its virtual functions."""
    return _LINK.pack(0, 0, ifindex, 0, 0) + attribute_u32(_EXT_MASK, _VF_FILTER)


def parse_virtual_functions(body: bytes) -> list[VirtualFunction]:
    """Parse the answer, a link; malformed parts are skipped.

    Raises:
        OSError: EOVERFLOW: there are more than MAX_FUNCTIONS.
    """
    found: list[VirtualFunction] = []
    for entry_kind, entry in attributes(dict(attributes(body, _LINK.size)).get(_VFINFO_LIST, b"")):
        if entry_kind != _VF_INFO:
            continue
        fields = dict(attributes(entry))
        mac = fields.get(_VF_MAC, b"")
        if len(mac) < _MAC.size:
            continue
        index, address = _MAC.unpack_from(mac)
        counters = {
            _COUNTERS[kind]: value
            for kind, data in attributes(fields.get(_VF_STATS, b""))
            if kind in _COUNTERS and (value := number(data)) is not None
        }
        if len(found) >= MAX_FUNCTIONS:
            raise OSError(errno.EOVERFLOW, f"rtnetlink: more than {MAX_FUNCTIONS} virtual functions")
        found.append(VirtualFunction(index, address.hex(":") if any(address) else None, counters))
    return found
