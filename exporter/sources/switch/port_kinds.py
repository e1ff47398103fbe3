"""The kind of a row of an interface table: a port with a cable, a bundle, a sub-interface, or an interface without one.

Only physical ports are counted and compared: bundles and sub-interfaces repeat the traffic of their ports, and the
others carry none of the fabric's. No single piece of evidence decides. Rows of every kind have ifType 6
(ethernetCsmacd) on some switch: agents of Linux give it to bonds and bridges, Nokia SR Linux to all its rows. So the
most specific evidence is used first, and ifType 6 alone last.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType


class PortKind(enum.StrEnum):
    """What a row is; the value is a label.

    PHYSICAL: a port with a place for a cable, also one channel of a split port. AGGREGATE: a bundle of ports (LAG,
    bond). SUB_INTERFACE: a unit or VLAN of one port or bundle. VIRTUAL: any other row without a cable of the fabric:
    VLANs, loopbacks, tunnels, bridges, and ports inside the chassis or stack. MANAGEMENT: a port of the management
    network.
    """

    PHYSICAL = "physical"
    AGGREGATE = "aggregate"
    SUB_INTERFACE = "sub-interface"
    VIRTUAL = "virtual"
    MANAGEMENT = "management"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the tables of a switch report of a row, beside its name and type.

    Attributes:
        description: Another name of the row, its ifDescr.
        is_aggregator: It has ports attached (IEEE8023-LAG-MIB dot3adAggPortAttachedAggID).
        lower_layers: Rows directly below it (IF-MIB ifStackTable).
        connector: IF-MIB ifConnectorPresent; None where it is not known.
        port_names: Shell patterns, in lower case, of the names of this switch's ports; with them no other name is that
            of a port. Empty if the names that makers use are enough.
    """

    description: str = ""
    is_aggregator: bool = False
    lower_layers: int = 0
    connector: bool | None = None
    port_names: tuple[str, ...] = ()


NO_EVIDENCE = Evidence()

_PORT_TYPES = frozenset({"6", "62", "69", "117", "56", "199"})
"""ifType of ports: ethernetCsmacd and the obsolete values, fibreChannel, infiniband."""

_VAGUE_TYPES = frozenset({"", "1", "53", "54"})
"""ifType that says little: none, other, propVirtual, propMultiplexor."""

_BY_TYPE: Mapping[str, PortKind] = MappingProxyType(
    {"swp": PortKind.PHYSICAL}
    | dict.fromkeys(("161", "ieee8023adLag", "portChannel", "bond", "peerlink"), PortKind.AGGREGATE)
    | dict.fromkeys(("sub", "subinterface"), PortKind.SUB_INTERFACE)
)
"""ifType, or the word that an API has for it, that only one kind has. All other numbers, except those of ports and the
vague ones, are of virtual rows: 24 softwareLoopback, 131 tunnel, 135 l2vlan, 136 l3ipvlan, 209 bridge …"""

_UNIT = re.compile(r"(?:efp)?\d{1,10}")
"""What follows the last dot in the name of a sub-interface: `et-0/0/0.0`, `bond1.100`."""

_PARENT = re.compile("[a-z/:]")
"""What the name before that dot contains; without it, the dot is within the number of a port."""

_DOTTED_PORTS = re.compile(r"port\d{1,4}\.\d{1,4}\.\d{1,4}|[xtqcg]e-1/1/\d{1,4}\.[1-4]")
"""Names of ports that contain a dot: those of Allied Telesis, and the channels of a split port of PicOS. They are not
sub-interfaces if their type is that of Ethernet: a unit of Junos has ifType 53."""

_MANAGEMENT_EXACT = re.compile(r"eth[01]|em[01]|fxp\d|me\d|vme|re\d:mgmt-\d|[AB]/\d|mgmt")
"""Names of management ports in their exact spelling: `Eth1` may be a port of the fabric, and `A1` is one."""


def _words(*words: str) -> re.Pattern[str]:
    """Return the pattern of names that are one of these words, alone or followed by a number."""
    return re.compile(rf"(?:{'|'.join(words)})(?:[\s_-]{{0,4}}\d.*)?", re.DOTALL)


_MANAGEMENT = _words(
    "management(?:ethernet|[ _-]?port|[ _-]?interface)?",
    "mgmt(?:eth|ether|ethernet|[ _-]?port|-oob)?",
    "meth",
    "m-(?:gigabit)?ethernet",
    r"mge(?=\d)",
    "mg",
    "ma",
    "oob",
    "oobm",
    "out-?of-?band(?:[ _-].*)?",
    "service-?port",
    "craft(?:[ _-]?port)?",
    "emp(?:-.{1,32})?",
)
"""Names of management ports in lower case: Arista, Cisco, Dell, Huawei, H3C, Ruijie, Edgecore, Alcatel-Lucent …"""

_CISCO_MANAGEMENT = re.compile(r"(?:gi|gigabitethernet)0(?:/0)?|(?:fa|fastethernet)0")
"""The management ports of Cisco IOS XE; a port of Dell OS9 is written with a blank, `GigabitEthernet 0/0`."""

_AGGREGATE = _words(
    r"(?:san-)?port-?channel",
    "po",
    "bundle(?:-ether)?",
    "be",
    "eth-trunk",
    "(?:bridge|route|blade)-aggregation",
    "[br]agg",
    r"aggregate\s?port",
    "agg?",
    "(?:port-)?aggregator",
    "port-aggregation",
    "link[ -]?aggregat(?:e|ion)(?: group)?",
    "lag",
    "lg",
    "lagg",
    "ae",
    "reth",
    r"[a-z0-9_-]{0,32}bond",
    "bonding",
    "team",
    "trunk",
    "trk",
    "mlag",
    "mpo",
    "mlt",
    "peer-?link",
    "sa",
)
"""Names of bundles in lower case."""

_VIRTUAL = re.compile(
    # Words that no maker gives to a port, whatever follows.
    r"(?:(?:unrouted |default_)?vlan|vbdif|vsi-|virtual|voip|vxlan|vethernet|veth|vtep|virbr|vmbr|vrf"
    r"|(?:in)?loopback|(?:register-)?tunnel|null|nve|bridge|docker|cni|cali|flannel|geneve|macvlan|ipvlan|dummy"
    r"|recirc|recycle|internal|inband|backplane|fabric|irf-port|stack|(?:logical|physical)[ -]stack|vcp"
    r"|cpu|control-?plane|console|mirror|swid\d|ovs|pimreg|tailscale|eobc|switch fabric"
    r"|ethernet-(?:ib|rec|bp)|appgigabitethernet|bluetooth|optics\d|coherentdsp|overlayrouter|unconnectedethernet"
    r"|software loopback|rif-|usb|erspan|gretap|ip6|\.local\.|demux|dialer|br[-_]"
    r"|cilium|lxc|lxd|podman|genev_|weave|kube-|nodelocaldns|azv|pw-).*"
    # Short words, alone or followed by a number.
    r"|(?:vlanif|vl|ve|vni|bdi|bd|bvi|irb|svi|lo|lb|nu|tu|tun|tap|tn|gre|ipip|sit|tunl|ip_vti|vti|wg|br|ifb|system"
    r"|lsi|dsc|pimd|pime|mtun|bme|esi|jsrv|pfe|pfh|gr|ip|lt|mt|pd|pe|sp|vt|ut|lc|si|ms|cbp|pp|pip|rbeb|fti|rtg|st"
    r"|stacksub|sxe|ixgbe|fab|swfab|em|tunnel-(?:te|ip|mte|tp)|fint|ptp|sip|dps|vfc|sup-(?:fc|eth)|ixlv|igb|rif|rtif|ap|ib-?port|nat"
    r"|register|test|zt)(?:[\s_(-]{0,4}\d.*)?",
    re.DOTALL,
)
"""Names, in lower case, of virtual rows: those without a cable of the fabric."""

_PHYSICAL = re.compile(
    r"(?:[a-z-]{0,32}ethernet|[a-z-]{0,32}gig(?:e|a(?:bit)?|abitether|aether)?|\d{1,4}g(?:e|ig|bit)?|[cfghlmtwx]{1,4}ge"
    r"|et|xe|ge|fe|te|qe|ce|xl|cd|eth|ether|etp|swp|port|combo|ib|sw|fc|en[opsx]"
    r"|gi|gig|twe|tw|fi|ten|fo|fou|hu|hun|fh|tfg[a-z]{0,16}|tg[a-z]{0,16}|slot)[\s_-]{0,4}\d.*"
    r"|q?sfp.{0,64}\d.*"
    r"|\d{1,8}(?:[:/]\w{1,32}){0,8}",
    re.DOTALL,
)
"""Names, in lower case, of ports: a word for Ethernet and a number, or the numbers of slot and port alone."""


@lru_cache(maxsize=8192)
def kind_of(name: str, if_type: str = "", evidence: Evidence = NO_EVIDENCE) -> PortKind:
    """Return the kind of a row of an interface table.

    Args:
        name: Its name, as the switch spells it.
        if_type: The number of its ifType (IANAifType-MIB), or the word that an API has for it; empty if not known.
        evidence: What else is known of the row.

    Results are cached: readers of APIs call this for each port at each poll, and the patterns of all makers take 50 µs.
    """
    bare, lowered = name.strip(), name.strip().lower()
    parent = _parent_of_unit(bare, if_type)
    if parent:
        is_virtual = kind_of(parent) is PortKind.VIRTUAL
        return PortKind.VIRTUAL if is_virtual else PortKind.SUB_INTERFACE
    if evidence.is_aggregator and not (bare[:1].isalpha() and _PHYSICAL.fullmatch(lowered)):
        return PortKind.AGGREGATE  # some agents number aggregators from 1, which is the index of a port
    if if_type not in _PORT_TYPES | _VAGUE_TYPES and if_type.isdecimal():
        return _BY_TYPE.get(if_type, PortKind.VIRTUAL)
    return (
        _by_name(bare, evidence)
        or _BY_TYPE.get(if_type)
        or (_by_name(evidence.description.strip(), evidence) if evidence.description != name else None)
        or _by_layers(lowered, if_type, evidence)
    )


def port_info(
    target: str, name: str, index: str, alias: str, if_type: str, evidence: Evidence = NO_EVIDENCE
) -> tuple[str, ...]:
    """Return the label values of the metric `info` of a port, with its kind; for the arguments see `kind_of`."""
    return target, index, alias, if_type, kind_of(name, if_type, evidence).value


def _parent_of_unit(name: str, if_type: str) -> str:
    """Return the name of the port or bundle of a sub-interface, by its own name; empty if a row is not one."""
    parent, _, unit = name.lower().rpartition(".")
    if not (_PARENT.search(parent) and _UNIT.fullmatch(unit)):
        return ""
    is_port = if_type in _PORT_TYPES | {""} and _DOTTED_PORTS.fullmatch(name.lower())
    return "" if is_port else name[: len(parent)]


def _by_name(name: str, evidence: Evidence) -> PortKind | None:
    """Return the kind that a name shows, if no port of the fabric has such a name; None for all other names."""
    lowered = name.lower()
    if evidence.port_names and lowered == "mgmt":  # on Linux, the VRF of the management port
        return PortKind.VIRTUAL
    if _MANAGEMENT_EXACT.fullmatch(name) or _MANAGEMENT.fullmatch(lowered) or _CISCO_MANAGEMENT.fullmatch(lowered):
        return PortKind.MANAGEMENT
    if _AGGREGATE.fullmatch(lowered):
        return PortKind.AGGREGATE
    return PortKind.VIRTUAL if _VIRTUAL.fullmatch(lowered) else None


def _by_layers(lowered: str, if_type: str, evidence: Evidence) -> PortKind:
    """Return the kind of a row whose name is that of a port, or has no known form."""
    patterns = evidence.port_names
    if any(fnmatchcase(lowered, pattern) for pattern in patterns) or (not patterns and _PHYSICAL.fullmatch(lowered)):
        is_internal = lowered[:1].isdigit() and if_type in _VAGUE_TYPES - {""}  # `0/5/1`, the interface of a CPU
        return PortKind.VIRTUAL if is_internal else PortKind.PHYSICAL
    if evidence.lower_layers:
        return PortKind.AGGREGATE if evidence.lower_layers > 1 else PortKind.SUB_INTERFACE
    if patterns or evidence.connector is False:
        return PortKind.VIRTUAL
    return PortKind.PHYSICAL if if_type in _PORT_TYPES or if_type == "" else PortKind.VIRTUAL
