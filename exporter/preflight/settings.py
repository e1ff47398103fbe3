"""Settings of a host that should be those of other hosts of its class, or of the other hosts of a job."""

import math
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from exporter.preflight.expectations import driver_version
from exporter.preflight.facts import HostFacts, NetworkPortFacts
from exporter.preflight.nccl_settings import ALIKE, EQUAL

MAX_VALUE = 200
"""Characters of a value; a longer one ends with a digest of it all, so that different ones differ."""

SHARED_VARIABLES = EQUAL | ALIKE
"""Variables of NCCL that do not name devices or files of one host."""


class Setting(NamedTuple):
    """A setting and one of its values on a host; `of` is the class of hosts, or the job, that should have one value."""

    of: str
    name: str
    value: str


def settings_of(facts: HostFacts) -> list[Setting]:
    """Return the settings of a host, sorted; what cannot be read is absent.

    A setting whose devices differ has several values.
    """
    own = host_class(facts)
    found = {Setting(own, name, _short(value)) for name, value in _of_host(facts) if value}
    found |= {Setting(job, name, _short(value)) for job, name, value in _of_jobs(facts) if value}
    return sorted(found)


def host_class(facts: HostFacts) -> str:
    """Return the class of hosts that are compared: boards (else drivers) of RDMA devices, and whether there are GPUs.

    Numbers of devices are no part of it, as they are compared.
    """
    boards = sorted({one.board or one.driver or one.link_layer for one in facts.rdma_ports})
    return ", ".join([*boards, *(["GPUs"] if facts.gpus else [])]) or "no RDMA"


def _of_host(facts: HostFacts) -> Iterator[tuple[str, str]]:
    kernel = facts.kernel
    yield "kernel", kernel.release
    yield "NVIDIA driver", driver_version(kernel.nvidia)
    yield "NUMA balancing", "" if kernel.numa_balancing is None else str(kernel.numa_balancing)
    for governor in kernel.governors or ():
        yield "CPU governor", governor
    for one in facts.functions:
        yield "IOMMU", one.iommu or ""
    if "gpus" not in facts.unread:
        yield "GPUs", str(len(facts.gpus))
    if "rdma_ports" not in facts.unread:
        yield "RDMA ports", str(len(facts.rdma_ports))
    for port in facts.rdma_ports:
        yield f"firmware of {port.board}" if port.board else "firmware", port.firmware
    for device in facts.network_ports_of(facts.rdma_ports):
        yield from _of_device(device)


def _of_device(one: NetworkPortFacts) -> Iterator[tuple[str, str]]:
    yield "MTU", "" if one.mtu is None else str(one.mtu)
    yield "PFC", "" if one.pfc is None else _listed(one.pfc)
    yield "trust", one.trust
    if one.pause is not None:
        receive, transmit = one.pause
        yield "pause", " ".join([*(["receive"] if receive else []), *(["transmit"] if transmit else [])]) or "off"
    yield (
        "ECN",
        ", ".join(
            f"{role.replace('_', ' ')} {_listed(number for number, is_on in priorities.items() if is_on)}"
            for role, priorities in sorted(one.ecn.items())
        ),
    )


def _listed(priorities: Iterable[int]) -> str:
    return ",".join(map(str, sorted(priorities))) or "off"


def _of_jobs(facts: HostFacts) -> Iterator[tuple[str, str, str]]:
    for one in facts.processes.found if facts.processes else ():
        if not one.job:
            continue
        job = f"job {one.job}"
        if one.nccl is not None:
            given = {name: value for name, value in one.nccl.items() if name in SHARED_VARIABLES}
            yield (
                job,
                "variables of NCCL",
                " ".join(f"{name}={value}" for name, value in sorted(given.items())) or "none",
            )
        if one.memlock is not None:
            is_unlimited = one.may_lock or math.isinf(one.memlock)
            yield job, "locked memory", "unlimited" if is_unlimited else f"{one.memlock:.0f} bytes"


def _short(value: str) -> str:
    if len(value) <= MAX_VALUE:
        return value
    digest = sha256(value.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{value[: MAX_VALUE - len(digest) - 2]}… {digest}"
