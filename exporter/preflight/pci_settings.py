"""Settings in the configuration space of PCI: redirects between GPUs and adapters, and sizes of requests."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from exporter.preflight.facts import HostFacts, PciFacts, PciRequests
from exporter.preflight.gpudirect import shared_bridges
from exporter.preflight.links import active_speeds, function_name
from exporter.preflight.results import Check, Finding, not_applicable, ok, unknown, warn

NEEDS = "the configuration space of PCI cannot be read beyond its first 64 bytes: run as root (CAP_SYS_ADMIN)"

MANY_READS = 4096
"""Bytes of the read requests that NVIDIA's network operator sets for its adapters."""

FAST = 200e9
"""Bits per second of an adapter from which smaller read requests may limit it."""

NVIDIA = "15b3:"

MIN_ALIKE = 3
"""Adapters of one model below which there is no usual value."""


def adapters_of(facts: HostFacts) -> Sequence[PciFacts]:
    """Return the physical functions of RDMA devices."""
    devices = {one.device for one in facts.rdma_ports}
    return [one for one in facts.functions if devices & set(one.devices) and not one.is_virtual]


def _redirects(facts: HostFacts) -> Iterator[Finding]:
    """Judge the bridges between each GPU and its nearest adapters, below the first bridge that they share."""
    is_unread = False
    for gpu in facts.gpus:
        shared = {one.address: shared_bridges(gpu.path, one.path) for one in adapters_of(facts)}
        most = max(shared.values(), default=0)
        if facts.kernel.is_guest:
            yield not_applicable(gpu.address, "the PCI switches of a virtual machine are those of its host")
        elif most < 2:  # the host bridge alone
            yield not_applicable(gpu.address, "shares no PCI bridge with an adapter")
        else:
            near = [one for one in adapters_of(facts) if shared[one.address] == most]
            found = [_judge_redirects(facts, gpu, one, most) for one in near]
            is_unread = is_unread or None in found
            yield from (one for one in found if one is not None)
    if is_unread:
        yield unknown(facts.host, NEEDS)


def _judge_redirects(facts: HostFacts, gpu: PciFacts, adapter: PciFacts, shared: int) -> Finding | None:
    """Return the result; None if a bridge cannot be read."""
    between = {name: one.redirects.get(name) for one in (gpu, adapter) for name in one.path[shared:]}
    name = f"{gpu.address} (GPU) to {function_name(adapter)}"
    redirecting = {bridge: redirects for bridge, redirects in between.items() if redirects}
    if None in between.values():
        return None
    if not redirecting:
        return ok(name, "no bridge between them redirects")
    shown = ", ".join(f"{bridge} ({'+'.join(redirects)})" for bridge, redirects in sorted(redirecting.items()))
    if facts.kernel.is_guest is None:
        return unknown(name, f"ACS redirects at {shown}, as some Arm platforms need: compare with their manual")
    return warn(
        name,
        f"ACS redirects traffic between them up to the root port: {shown}",
        "Not on a host that passes devices to virtual machines, as ACS isolates these. Else drain the host, and turn"
        f" ACS off in the firmware setup, or by pci=disable_acs_redir={';'.join(sorted(redirecting))} on the command"
        " line of Linux; both need a reboot",
    )


def _requests(facts: HostFacts) -> Iterator[Finding]:
    """Compare adapters of one model, and those of NVIDIA that are fast with what its operator sets."""
    models: dict[str, list[PciRequests]] = defaultdict(list)
    adapters = adapters_of(facts)
    for one in adapters:
        if one.requests is not None:
            models[one.model].append(one.requests)
    for one in adapters:
        if facts.kernel.is_guest:
            yield not_applicable(one.address, "set by the host of the virtual machine")
        elif one.requests is not None:
            yield _judge_requests(one, one.requests, models[one.model], sum(active_speeds(facts, one)))
    if not facts.kernel.is_guest and any(one.requests is None for one in adapters):
        yield unknown(facts.host, NEEDS)


def _judge_requests(one: PciFacts, has: PciRequests, alike: Sequence[PciRequests], speed: float) -> Finding:
    name, shown = function_name(one), _shown(has)
    usual, number = Counter(alike).most_common(1)[0]
    remedy = (
        f"setpci -s {one.address} CAP_EXP+8.w=5000:7000 sets 4096 until the next boot, so a unit has to at each boot;"
        " drain the host first"
    )
    if has != usual and len(alike) >= MIN_ALIKE and 2 * number > len(alike):
        return warn(name, f"{shown}; {number} of {len(alike)} of its model have {_shown(usual)}", remedy)
    if one.model.startswith(NVIDIA) and speed >= FAST and has.max_read_request < MANY_READS:
        return warn(name, f"{shown}; {MANY_READS} bytes are usual at {speed / 1e9:g} Gb/s", remedy)
    return ok(name, shown)


def _shown(one: PciRequests) -> str:
    return (
        f"MaxReadReq {one.max_read_request}, MaxPayload {one.max_payload}, relaxed ordering"
        f" {'on' if one.relaxed_ordering else 'off'}"
    )


CHECKS = (
    Check(
        "pci_acs",
        "No PCI bridge between a GPU and its adapter redirects their traffic",
        ("gpus", "functions", "rdma_ports", "kernel"),
        _redirects,
    ),
    Check(
        "pcie_requests",
        "Read requests of adapters are large enough, and alike",
        ("functions", "rdma_ports", "network_ports", "kernel"),
        _requests,
    ),
)
