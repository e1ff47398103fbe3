"""Links: PCIe and network links against what both ends support, and firmware of equal boards."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from exporter.preflight.facts import HostFacts, PciFacts, PciLink, RdmaPortFacts
from exporter.preflight.results import Check, Finding, fail, not_applicable, ok, unknown, warn

ENCODING = 128 / 130
"""Bits of data per bit on the wire, PCIe 3.0 to 5.0."""

OLD_ENCODING = 8 / 10
"""The same of PCIe 1.x and 2.x."""

OLD_SPEED = 5e9
"""Transfers per second of PCIe 2.0."""

RESEAT = (
    "Drain the host, reseat the card, check the riser, and the slot in the firmware setup (bifurcation, forced"
    " generation); the host must be off"
)


def usable_bandwidth(link: PciLink) -> float | None:
    """Return the bits per second that a link carries in each direction before packet headers; None if unknown."""
    if link.speed is None or link.lanes is None:
        return None
    return link.speed * link.lanes * (OLD_ENCODING if link.speed <= OLD_SPEED else ENCODING)


def _pcie_link(facts: HostFacts) -> Iterator[Finding]:
    for one in facts.functions:
        yield _judge_pcie_link(one, with_speed=True)
    for one in facts.gpus:  # the speed of an idle GPU falls, and rises again under load
        yield _judge_pcie_link(one, with_speed=False)


def _judge_pcie_link(one: PciFacts, *, with_speed: bool) -> Finding:
    name, link = function_name(one), one.link
    if one.is_virtual:
        return not_applicable(name, "a virtual function has the link of its physical function")
    if not one.is_active:
        return unknown(name, "the function is suspended: its link is read while it is in use")
    if link.lanes is None or link.max_lanes is None or (with_speed and (link.speed is None or link.max_speed is None)):
        return unknown(name, "sysfs does not show the link, as in a virtual machine: check it on its host")
    lanes = min(link.max_lanes, link.bridge_lanes or link.max_lanes)
    speed = min(link.max_speed or 0.0, link.bridge_speed or link.max_speed or 0.0)
    is_slow = with_speed and link.speed is not None and link.speed < speed
    now = f"x{link.lanes}" if not with_speed else f"{_transfers(link.speed)} x{link.lanes}"
    best = f"x{lanes}" if not with_speed else f"{_transfers(speed)} x{lanes}"
    if link.lanes < lanes or is_slow:
        return fail(name, f"PCIe link {now}; card and slot support {best}", RESEAT)
    return ok(name, f"PCIe link {now}, as card and slot support")


def _pcie_bandwidth(facts: HostFacts) -> Iterator[Finding]:
    for one in facts.functions:
        name = function_name(one)
        speeds = active_speeds(facts, one)
        usable = usable_bandwidth(one.link)
        if one.is_virtual or not speeds:
            yield not_applicable(name, "no physical port of it is up")
        elif usable is None or not one.is_active:
            yield unknown(name, "sysfs does not show the PCIe link, as in a virtual machine: check it on its host")
        elif usable < sum(speeds):
            yield warn(
                name,
                f"PCIe carries {_bits(usable)}, its ports that are up {_bits(sum(speeds))}",
                "Move the card to a slot of more lanes or a higher generation, or plan with the lower figure: cards of"
                " two ports are often oversubscribed on purpose",
            )
        else:
            yield ok(name, f"PCIe carries {_bits(usable)}, its ports that are up {_bits(sum(speeds))}")


def active_speeds(facts: HostFacts, function: PciFacts) -> Sequence[float]:
    """Return the speeds of the active ports of a function: of its RDMA ports, else of its network devices."""
    rdma = [
        one.rate for one in facts.rdma_ports if one.pci == function.address and one.is_active and one.rate is not None
    ]
    return rdma or [
        one.speed
        for one in facts.network_ports
        if one.device in function.devices and one.carrier and one.speed is not None
    ]


def _port_speed(facts: HostFacts) -> Iterator[Finding]:
    for one in facts.network_ports:
        if not one.carrier:
            yield unknown(one.device, "the link is down: its speed is known once it is up")
        elif one.speed is None or one.max_speed is None:
            yield unknown(one.device, "the driver does not report the speed, or the link modes that it supports")
        elif one.speed < one.max_speed:
            yield warn(
                one.device,
                f"{_bits(one.speed)}; the adapter supports {_bits(one.max_speed)}",
                "Compare with the port of the switch, and with the same rail of other hosts: cable, module, or a speed"
                " configured at either end. A change of speed takes the link down and up again",
            )
        else:
            yield ok(one.device, f"{_bits(one.speed)}, the most that the adapter supports")


def _siblings(facts: HostFacts) -> Iterator[Finding]:
    """Compare the rate of each active RDMA port with that of the others of its kind."""
    groups: dict[str, list[RdmaPortFacts]] = defaultdict(list)
    for one in facts.rdma_ports:
        if one.state is None or (one.is_active and one.rate is None):
            yield unknown(one.name, "sysfs does not show the state of the port, or its rate")
        elif one.is_active:
            groups[one.link_layer].append(one)
    for ports in groups.values():
        usual, number = Counter(one.rate for one in ports).most_common(1)[0]
        for one in ports:
            if len(ports) < 3 or 2 * number <= len(ports) or usual is None or one.rate is None:
                yield not_applicable(one.name, "there are fewer than three ports of its kind, or no usual rate")
            elif one.rate < usual:
                yield fail(
                    one.name,
                    f"{_bits(one.rate)}; {number} of {len(ports)} ports have {_bits(usual)}",
                    "Replace cable or module, or unify the configured speed; the link goes down and up again, so drain"
                    " the host first",
                )
            else:
                yield ok(one.name, _bits(one.rate))


def _firmware(facts: HostFacts) -> Iterator[Finding]:
    boards: dict[str, list[RdmaPortFacts]] = defaultdict(list)
    for one in facts.rdma_ports:
        if one.board and one.firmware:
            boards[one.board].append(one)
        elif one.board or one.firmware:
            yield unknown(one.name, "the driver does not show its board, or its firmware: see the vendor's tool")
    for board, ports in sorted(boards.items()):
        versions = Counter(one.firmware for one in ports)
        usual = versions.most_common(1)[0][0]
        for one in ports:
            if one.firmware == usual:
                yield ok(one.name, f"firmware {one.firmware} of board {board}")
            else:
                yield warn(
                    one.name,
                    f"firmware {one.firmware}; {versions[usual]} of {len(ports)} ports of board {board} have {usual}",
                    "Bring all to one tested version; that needs a reset of the adapter, so drain the host first",
                )


def function_name(one: PciFacts) -> str:
    """Return the address of a function, and its devices."""
    return f"{one.address} ({','.join(one.devices)})" if one.devices else one.address


def _transfers(speed: float | None) -> str:
    return "unknown" if speed is None else f"{speed / 1e9:g} GT/s"


def _bits(rate: float) -> str:
    return f"{rate / 1e9:.4g} Gb/s"


CHECKS = (
    Check(
        "pcie_link",
        "PCIe links run at the speed and width that card and slot support",
        ("functions", "gpus"),
        _pcie_link,
    ),
    Check(
        "pcie_bandwidth",
        "PCIe links carry what the ports behind them do",
        ("functions", "rdma_ports", "network_ports"),
        _pcie_bandwidth,
    ),
    Check("port_speed", "Network links run at the highest speed of the adapter", ("network_ports",), _port_speed),
    Check("port_rate_siblings", "RDMA ports have the rate of the others of their kind", ("rdma_ports",), _siblings),
    Check("firmware", "Adapters of one board type have one firmware version", ("rdma_ports",), _firmware),
)
