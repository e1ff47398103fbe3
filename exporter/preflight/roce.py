"""RoCE: pause and priority flow control, trust, congestion control, MTU and GIDs of the ports that carry RDMA."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from exporter.preflight.facts import Gid, HostFacts, NetworkPortFacts, RdmaPortFacts
from exporter.preflight.link_layers import ETHERNET, of_known_layers
from exporter.preflight.results import Check, Finding, fail, not_applicable, ok, unknown, warn

HEADERS = 96
"""Bytes that Linux reserves for the headers of RoCE in an MTU (`iboe_get_mtu`)."""

RDMA_MTUS = (4096, 2048, 1024, 512, 256)

NO_ROCE = frozenset({"efa", "erdma", "mana_ib", "siw"})
"""Drivers of RDMA devices that do not use RoCE, or whose network is that of a cloud provider."""

SOFTWARE = frozenset({"rdma_rxe"})
"""Drivers without an adapter: they have no queues to configure."""

V2 = "RoCE v2"

_LINK_LOCAL, _MAPPED = bytes.fromhex("fe80"), bytes.fromhex("00000000000000000000ffff")


class RocePort(NamedTuple):
    """A RoCE port and its network device."""

    rdma: RdmaPortFacts
    net: NetworkPortFacts


def _ports(facts: HostFacts, *, with_software: bool = False) -> list[RocePort]:
    """Return the RoCE ports whose network device is hardware of this host."""
    found = []
    for one in facts.rdma_ports:
        net = facts.network_port(one.netdev)
        is_software = one.driver in SOFTWARE and not with_software
        if one.link_layer == ETHERNET and net is not None and one.driver not in NO_ROCE and not is_software:
            found.append(RocePort(one, net))
    return found


def _flow_control(facts: HostFacts) -> Iterator[Finding]:
    for _, net in _ports(facts):
        if net.pfc is None:
            yield unknown(net.device, "the driver does not report priority flow control (DCB)")
        elif net.pfc and net.pause is not None and any(net.pause):
            yield fail(
                net.device,
                f"PFC is on for {_priorities(net.pfc)}, and so is global pause (802.3x), which stops all traffic of the"
                " port",
                f"Turn global pause off here and at the switch: ethtool -A {net.device} rx off tx off, which is lost at"
                " reboot; with some drivers the link goes down and up again",
            )
        elif not net.pfc and (net.pause is None or not any(net.pause)):
            yield warn(
                net.device,
                "neither PFC nor global pause is on",
                "Enable PFC on the priority of RDMA, here and at the switch, unless the fabric is lossy by design;"
                " that takes the port down and up again, so drain the host first",
            )
        elif not net.pfc:
            yield warn(
                net.device,
                "global pause is on, and PFC is not: a pause stops all traffic of the port",
                "Enable PFC on the priority of RDMA in place of it, here and at the switch; that takes the port down"
                " and up again",
            )
        elif len(net.pfc) > 2:
            yield warn(
                net.device,
                f"PFC is on for {_priorities(net.pfc)}; buffers of switches hold one or two lossless priorities",
                "Enable PFC on the priority of RDMA alone; that takes the port down and up again",
            )
        else:
            yield ok(net.device, f"PFC is on for {_priorities(net.pfc)}, global pause is off")


def _trust(facts: HostFacts) -> Iterator[Finding]:
    for _, net in _ports(facts):
        if not net.trust:
            yield unknown(net.device, "the driver does not report what the port trusts")
        elif net.trust == "dscp":
            yield ok(net.device, "trusts DSCP")
        else:
            yield warn(
                net.device,
                "trusts PCP: without a VLAN all RDMA is in priority 0",
                f"Trust DSCP at the switch, and here: mlnx_qos -i {net.device} --trust dscp, which is lost at reboot;"
                " the traffic class of RDMA (NCCL_IB_TC) has to carry the DSCP of the lossless priority",
            )


def _ecn_folder(device: str, role: str) -> str:
    name = {"notification_point": "roce_np", "reaction_point": "roce_rp"}[role]
    return f"/sys/class/net/{device}/ecn/{name}/enable"


def _congestion_control(facts: HostFacts) -> Iterator[Finding]:
    for _, net in _ports(facts):
        wanted = net.pfc or ()
        states = [(role, by.get(priority)) for role, by in sorted(net.ecn.items()) for priority in wanted]
        off = sorted({role for role, is_on in states if is_on is False})
        if not wanted:
            yield unknown(net.device, "the priority of RDMA is not known without PFC")
        elif len(net.ecn) < 2 or any(is_on is None for _, is_on in states):
            yield unknown(net.device, "no files of congestion control: they need the vendor's driver, or root")
        elif off:
            names = " and ".join(name.replace("_", " ") for name in off)
            yield fail(
                net.device,
                f"congestion control is off as {names} for {_priorities(wanted)}",
                f"Write 1 to the file of the priority in {' and '.join(_ecn_folder(net.device, one) for one in off)},"
                " which is lost at reboot; where the firmware has it off, set ROCE_CC_PRIO_MASK there, which needs a"
                " reset of the adapter",
            )
        else:
            yield ok(net.device, f"congestion control is on for {_priorities(wanted)}")


def _notifications(facts: HostFacts) -> Iterator[Finding]:
    """Judge the priority of congestion notification packets: in that of RDMA a pause delays what should end it."""
    for _, net in _ports(facts):
        priority = net.cnp_dscp >> 3 if net.cnp_dscp is not None and net.trust == "dscp" else None
        priority = net.cnp_priority if net.trust == "pcp" else priority
        if priority is None or net.pfc is None:
            yield unknown(
                net.device,
                "no files of congestion control, which need the vendor's driver, or the trust is not reported",
            )
        elif priority in net.pfc:
            yield warn(
                net.device,
                f"{_cnp(net)}: congestion notification packets are in priority {priority}, which PFC pauses",
                f"Write another DSCP (48 is usual) and priority (6) to /sys/class/net/{net.device}/ecn/roce_np/cnp_dscp"
                " and cnp_802p_prio, and give them a strict queue at the switch; it is lost at reboot",
            )
        else:
            yield ok(net.device, f"{_cnp(net)}: congestion notification packets are in priority {priority}")


def _cnp(net: NetworkPortFacts) -> str:
    return f"CNP priority {net.cnp_priority}" if net.trust == "pcp" else f"CNP DSCP {net.cnp_dscp}"


def rdma_mtu(mtu: int) -> int | None:
    """Return the RDMA MTU that Linux derives from the MTU of a network device; None below the smallest one."""
    return next((size for size in RDMA_MTUS if size <= mtu - HEADERS), None)


def _mtu(facts: HostFacts) -> Iterator[Finding]:
    for _, net in _ports(facts, with_software=True):
        if net.mtu is None:
            yield unknown(net.device, "the MTU cannot be read")
        elif (size := rdma_mtu(net.mtu)) == RDMA_MTUS[0]:
            yield ok(net.device, f"MTU {net.mtu}: RDMA uses {size} bytes")
        else:
            yield warn(
                net.device,
                f"MTU {net.mtu}: RDMA uses {size or 'no'} bytes; 4096 need an MTU of {RDMA_MTUS[0] + HEADERS}",
                f"Set an MTU of {RDMA_MTUS[0] + HEADERS} or more, first on all switches (some count the Ethernet header"
                " too), then on all hosts; traffic pauses, and a smaller one on a switch makes jobs hang",
            )


def picked_gid(gids: Sequence[Gid]) -> Gid | None:
    """Return the entry that NCCL picks if NCCL_IB_GID_INDEX is not set: IPv4 and RoCE v2; None of an empty table.

    As `ncclIbGetGidIndex` of NCCL 2.21 and newer does.
    """
    best: Gid | None = None
    for gid in sorted(gids, key=lambda one: one.index):
        is_newer = best is not None and gid.kind == V2 and gid.kind != best.kind
        if best is None or (_is_ipv4(gid) and (is_newer or not _is_ipv4(best))):
            best = gid
    return best


def _is_ipv4(gid: Gid) -> bool:
    return gid.address.startswith(_MAPPED)


def _gid(facts: HostFacts) -> Iterator[Finding]:
    for one in facts.rdma_ports:
        if one.link_layer != ETHERNET or one.driver in NO_ROCE:
            continue
        if one.state is None:
            yield unknown(one.name, "sysfs does not show the state of the port")
        elif not one.is_active:
            yield not_applicable(one.name, "the port is not active")
        elif one.gids is None:
            yield unknown(one.name, "the GID table cannot be read, as in another network namespace")
        elif (best := picked_gid(one.gids)) is None:
            yield fail(one.name, "the GID table is empty", "Set the interface up and give it an IPv4 address")
        elif best.kind != V2 or best.address.startswith(_LINK_LOCAL):
            kind = "link-local " if best.address.startswith(_LINK_LOCAL) else ""
            yield fail(
                one.name,
                f"NCCL picks GID {best.index}, {kind}{best.kind.removeprefix('IB/')}, which works within one Ethernet"
                " network only",
                "Give the interface an IPv4 address, and unset NCCL_IB_GID_INDEX; jobs use it when they start",
            )
        else:
            yield ok(one.name, f"NCCL picks GID {best.index}, {best.kind}, IPv{4 if _is_ipv4(best) else 6}")


def _switch_port(facts: HostFacts) -> Iterator[Finding]:
    """Compare a port with what the switch announces by LLDP; a frame has at least the header beside the MTU."""
    for _, net in _ports(facts):
        peer = net.switch_port
        if peer is None or (peer.pfc is None and peer.max_frame is None):
            yield unknown(
                net.device,
                "no settings of the switch are known: let it announce DCBX by LLDP, and systemd-networkd receive LLDP",
            )
        elif peer.max_frame is not None and net.mtu is not None and peer.max_frame < net.mtu:
            yield fail(
                net.device,
                f"MTU {net.mtu}; frames of {peer.name} have {peer.max_frame} bytes at most: larger ones are lost",
                "Raise the MTU of the switch port, or lower that of the host; the port may go down and up again",
            )
        elif peer.pfc is not None and net.pfc is not None and tuple(peer.pfc) != tuple(net.pfc):
            yield fail(
                net.device,
                f"PFC is on for {_priorities(net.pfc)}, at {peer.name} for {_priorities(peer.pfc)}",
                "Change the end that differs from the settings of this site, so that both have the same priorities;"
                " drain the host first, as the change takes the port down and up again",
            )
        else:
            yield ok(net.device, f"agrees with {peer.name}")


class _Setting(NamedTuple):
    """A setting that all RoCE ports of a host should have alike, and how it is shown; None if it is unknown."""

    name: str
    show: Callable[[NetworkPortFacts], str | None]


_SETTINGS = (
    _Setting("PFC", lambda net: None if net.pfc is None else _priorities(net.pfc)),
    _Setting("trust", lambda net: net.trust or None),
    _Setting("MTU", lambda net: None if net.mtu is None else str(net.mtu)),
    _Setting("global pause", lambda net: None if net.pause is None else "on" if any(net.pause) else "off"),
    _Setting("congestion control", lambda net: _ecn(net) if net.ecn else None),
    _Setting("CNP DSCP", lambda net: None if net.cnp_dscp is None else str(net.cnp_dscp)),
    _Setting("CNP priority", lambda net: None if net.cnp_priority is None else str(net.cnp_priority)),
)


def _alike(facts: HostFacts) -> Iterator[Finding]:
    ports = [net for _, net in _ports(facts)]
    if len(ports) < 3:
        yield from (not_applicable(net.device, "there are fewer than three RoCE ports") for net in ports)
        return
    usual = {one.name: _majority([one.show(net) for net in ports]) for one in _SETTINGS}
    for net in ports:
        odd = [
            f"{one.name}: {value}; {usual[one.name]} at most of the other ports"
            for one in _SETTINGS
            if (value := one.show(net)) is not None and usual[one.name] not in {None, value}
        ]
        if odd:
            yield warn(
                net.device,
                ". ".join(odd),
                "Configure all RoCE ports alike; drain the host first, as a change of PFC, of pause or of the MTU takes"
                " the port down and up again",
            )
        else:
            yield ok(net.device, "configured as the other RoCE ports")


def _majority(values: Sequence[str | None]) -> str | None:
    """Return the value that more than half have; None if there is none."""
    value, number = Counter(values).most_common(1)[0]
    return value if 2 * number > len(values) else None


def _ecn(net: NetworkPortFacts) -> str:
    return ", ".join(
        f"{role.replace('_', ' ')} "
        + (f"on for {_priorities(on)}" if (on := [p for p, is_on in sorted(by.items()) if is_on]) else "off")
        for role, by in sorted(net.ecn.items())
    )


def _priorities(priorities: Sequence[int]) -> str:
    if not priorities:
        return "no priority"
    return ("priorities " if len(priorities) > 1 else "priority ") + ", ".join(map(str, priorities))


CHECKS = (
    Check(
        "roce_flow_control",
        "PFC is on for one priority, and global pause is off",
        ("rdma_ports", "network_ports"),
        of_known_layers(_flow_control),
    ),
    Check("roce_trust", "Ports trust DSCP", ("rdma_ports", "network_ports"), of_known_layers(_trust)),
    Check(
        "roce_congestion_control",
        "ECN is on for the lossless priority in both roles",
        ("rdma_ports", "network_ports"),
        of_known_layers(_congestion_control),
    ),
    Check(
        "roce_notifications",
        "Congestion notification packets are in a priority without PFC",
        ("rdma_ports", "network_ports"),
        of_known_layers(_notifications),
    ),
    Check(
        "roce_mtu", "The MTU allows RDMA packets of 4096 bytes", ("rdma_ports", "network_ports"), of_known_layers(_mtu)
    ),
    Check("roce_gid", "NCCL picks a GID that is routed", ("rdma_ports",), of_known_layers(_gid)),
    Check(
        "roce_switch_port",
        "PFC and MTU agree with the port of the switch",
        ("rdma_ports", "network_ports"),
        of_known_layers(_switch_port),
    ),
    Check(
        "roce_ports_alike",
        "All RoCE ports are configured alike",
        ("rdma_ports", "network_ports"),
        of_known_layers(_alike),
    ),
)
