"""Expectations: what the section `expect` of the configuration gives for this host, against what it has."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from exporter.preflight.facts import HostFacts, RdmaPortFacts
from exporter.preflight.results import Check, Finding, fail, not_applicable, ok, unknown

NOT_GIVEN = "the configuration expects nothing: give it under `expect`, or by --expect"


def _ports(facts: HostFacts) -> Sequence[RdmaPortFacts]:
    """Return the RDMA ports of which something is expected."""
    return [one for one in facts.rdma_ports if one.device not in facts.excluded]


def _rdma_ports(facts: HostFacts) -> Iterator[Finding]:
    number, speed = facts.expected.rdma_ports, facts.expected.rdma_speed
    if number is None:
        yield not_applicable(facts.host, NOT_GIVEN)
        return
    ports = _ports(facts)
    ready = [one for one in ports if one.is_active and (speed is None or one.rate is None or one.rate >= 8 * speed)]
    missing = ", ".join(f"{one.name} ({_reason(one)})" for one in ports if one not in ready)
    if len(ready) >= number:
        yield ok(facts.host, f"{len(ready)} RDMA ports are ready, {number} are expected")
        return
    yield fail(
        facts.host,
        f"{len(ready)} RDMA ports are ready, {number} are expected"
        + (f"; not ready: {missing}" if missing else f"; the kernel has {len(ports)}"),
        "Drain the host. Of a port that is down or slow, check cable, module and the port of the switch; of one that"
        " the kernel does not have, look in the kernel log for an adapter that left the PCI bus, and for its driver",
    )


def _reason(port: RdmaPortFacts) -> str:
    return f"{port.rate / 1e9:.4g} Gb/s" if port.is_active and port.rate is not None else "link down"


def _gpus(facts: HostFacts) -> Iterator[Finding]:
    number = facts.expected.gpus
    if number is None:
        yield not_applicable(facts.host, NOT_GIVEN)
    elif len(facts.gpus) >= number:
        yield ok(facts.host, f"{len(facts.gpus)} GPUs on the PCI bus, {number} are expected")
    else:
        yield fail(
            facts.host,
            f"{len(facts.gpus)} GPUs on the PCI bus, {number} are expected",
            "Save the kernel log, which has the GPUs that have fallen off the bus, and power-cycle the host, which ends"
            " its jobs; a GPU that is missing after it needs repair",
        )


def _speeds(facts: HostFacts) -> Iterator[Finding]:
    of_rdma, of_network = facts.expected.rdma_speed, facts.expected.nic_speed
    if of_rdma is not None:
        for port in _ports(facts):
            yield _judge_speed(port.name, port.rate if port.is_active else None, 8 * of_rdma)
    if of_network is not None:
        for device in facts.network_ports_of(_ports(facts)):
            yield _judge_speed(device.device, device.speed if device.carrier else None, 8 * of_network)
    if of_rdma is None and of_network is None:
        yield not_applicable(facts.host, NOT_GIVEN)


def _judge_speed(name: str, rate: float | None, expected: float) -> Finding:
    if rate is None:
        return unknown(name, "the link is down: its speed is known once it is up")
    if rate >= expected:
        return ok(name, f"{rate / 1e9:.4g} Gb/s, {expected / 1e9:.4g} Gb/s are expected")
    return fail(
        name,
        f"{rate / 1e9:.4g} Gb/s; {expected / 1e9:.4g} Gb/s are expected",
        "Compare cable, module and configured speed at both ends with a port that is right. A change of speed takes the"
        " link down and up again",
    )


def _settings(facts: HostFacts) -> Iterator[Finding]:
    expected = facts.expected
    if expected.mtu is None and expected.pfc is None and expected.trust is None:
        yield not_applicable(facts.host, NOT_GIVEN)
        return
    for one in facts.network_ports_of(_ports(facts)):
        pfc = None if one.pfc is None else tuple(sorted(one.pfc))
        wanted = None if expected.pfc is None else tuple(sorted(set(expected.pfc)))
        yield _judge_settings(
            one.device,
            [
                ("MTU", _text(one.mtu), _text(expected.mtu)),
                ("PFC", _priorities(pfc), _priorities(wanted)),
                ("trust", one.trust or None, expected.trust),
            ],
        )


def _judge_settings(name: str, settings: Sequence[tuple[str, str | None, str | None]]) -> Finding:
    """Return the result for a device; `settings` are names, values and expected values, None for none."""
    given = [(what, value, wanted) for what, value, wanted in settings if wanted is not None]
    wrong = [f"{what} {value}, expected {wanted}" for what, value, wanted in given if value not in {None, wanted}]
    unread = [what for what, value, _ in given if value is None]
    if wrong:
        return fail(
            name,
            "; ".join(wrong),
            "If all devices differ, compare the expectation first. Apply the settings of this site to the device and to"
            " the port of its switch; drain the host first, as a change of PFC or MTU takes the port down and up again",
        )
    if unread:
        return unknown(name, f"the driver does not report {' and '.join(unread)}")
    return ok(name, ", ".join(f"{what} {value}" for what, value, _ in given) + ", as expected")


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _priorities(numbers: Sequence[int] | None) -> str | None:
    return None if numbers is None else ",".join(map(str, numbers)) or "off"


def _versions(facts: HostFacts) -> Iterator[Finding]:
    expected = facts.expected
    if expected.kernel is None and expected.nvidia_driver is None and expected.firmware is None:
        yield not_applicable(facts.host, NOT_GIVEN)
    if expected.kernel is not None:
        yield _judge_version("kernel", "release", facts.kernel.release, expected.kernel)
    if expected.nvidia_driver is not None:
        yield _judge_version("NVIDIA driver", "version", driver_version(facts.kernel.nvidia), expected.nvidia_driver)
    for one in _ports(facts):
        patterns = (text for board, text in (expected.firmware or {}).items() if fnmatchcase(one.board, board))
        pattern = next(patterns, None)
        if pattern is not None:
            yield _judge_version(one.name, f"firmware of board {one.board}:", one.firmware, pattern)


def driver_version(text: str) -> str:
    """Return the version in the text of /proc/driver/nvidia/version: the first word that begins with a digit."""
    return next((word for word in text.split() if word[0].isdigit()), "")


def _judge_version(name: str, what: str, version: str, pattern: str) -> Finding:
    if not version:
        return unknown(name, f"{what} cannot be read, {pattern} is expected: see whether the driver is loaded")
    if fnmatchcase(version, pattern):
        return ok(name, f"{what} {version}, as expected")
    return fail(
        name,
        f"{what} {version}; {pattern} is expected",
        "Drain the host, and bring it to the version that this site has tested. A kernel or a driver needs a restart of"
        " the host; a firmware a reset of the adapter, which an interrupted write may disable",
    )


CHECKS = (
    Check("expected_rdma_ports", "As many RDMA ports are ready as are expected", ("rdma_ports",), _rdma_ports),
    Check("expected_gpus", "As many GPUs are on the PCI bus as are expected", ("gpus",), _gpus),
    Check("expected_speed", "Ports have the speed that is expected", ("rdma_ports", "network_ports"), _speeds),
    Check(
        "expected_settings",
        "MTU, PFC and trust of ports are those that are expected",
        ("rdma_ports", "network_ports"),
        _settings,
    ),
    Check(
        "expected_versions",
        "Kernel, driver and firmware are those that are expected",
        ("rdma_ports", "kernel"),
        _versions,
    ),
)
