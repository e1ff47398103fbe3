"""All facts of this host, read one kind after the other, so that one that fails or hangs affects no other."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from exporter.config.schema import Expected
from exporter.core.source import Failure, Host
from exporter.linux.nic_reader import NicReader
from exporter.linux.rdma_reader import RdmaReader
from exporter.linux.untrusted_files import read_untrusted
from exporter.preflight.facts import DeviceNodes, HostFacts, NetworkPortFacts, RdmaPortFacts
from exporter.sources.hostcheck.readers.device_nodes import read_device_nodes
from exporter.sources.hostcheck.readers.job_processes import read_job_processes
from exporter.sources.hostcheck.readers.kernel import read_kernel
from exporter.sources.hostcheck.readers.network_ports import read_network_ports
from exporter.sources.hostcheck.readers.pci_functions import Roots, read_functions, read_gpus
from exporter.sources.hostcheck.readers.rdma_ports import read_rdma_ports
from exporter.sources.lldp.options import LldpOptions
from exporter.sources.rdma.options import RdmaOptions

NCCL_CONF = Path("/etc/nccl.conf")
LLDP = Path(LldpOptions().folder)

MAX_CONF = 1 << 16
"""Bytes of nccl.conf that are read."""


class Configured(NamedTuple):
    """What the configuration expects of the host, and which RDMA devices it selects; None for all."""

    expected: Expected = Expected()
    rdma: RdmaOptions | None = None

    def excludes(self, device: str) -> bool:
        """Return whether the configuration excludes an RDMA device."""
        return self.rdma is not None and not self.rdma.matches(device)


NOTHING = Configured()
"""Nothing is expected, and all devices are selected."""


def readings(
    host: Host,
    nic: Callable[[], NicReader],
    rdma: Callable[[], RdmaReader],
    failures: list[Failure],
    nccl_conf: Path = NCCL_CONF,
    lldp: Path = LLDP,
) -> Mapping[str, Callable[[], Any]]:
    """Return the calls that read the facts, by field of HostFacts; each blocks, and may raise OSError.

    Args:
        host: This host.
        nic: Opens the reader of network devices.
        rdma: Opens the reader of RDMA devices.
        failures: Where calls report objects that failed.
        nccl_conf: NCCL's configuration file of this host.
        lldp: Folder in which systemd-networkd stores received frames.
    """
    roots = Roots(host.sysfs, host.procfs)
    return {
        "functions": partial(read_functions, roots),
        "gpus": partial(read_gpus, roots),
        "rdma_ports": partial(_with_rdma, host, rdma, failures),
        "network_ports": partial(_with_nic, host, nic, failures, lldp),
        "device_nodes": partial(_read_nodes, host),
        "kernel": partial(read_kernel, host.sysfs, host.procfs),
        "processes": partial(read_job_processes, host.procfs),
        "nccl_conf": partial(_read_lines, nccl_conf),
    }


def host_facts(host: Host, answers: Mapping[str, Any], configured: Configured = NOTHING) -> HostFacts:
    """Return the facts of a host, from the results of `readings`; what failed is unknown."""
    read = {name: one for name, one in answers.items() if not isinstance(one, Exception)}
    devices = {one.device for one in read.get("rdma_ports", ())}
    return HostFacts(
        host=host.name,
        unread=frozenset(answers.keys() - read.keys()),
        expected=configured.expected,
        excluded=frozenset(name for name in devices if configured.excludes(name)),
        **read,
    )


def _read_nodes(host: Host) -> DeviceNodes:
    try:
        return read_device_nodes(host.sysfs, host.dev)
    except FileNotFoundError:  # no RDMA
        return DeviceNodes()


def _with_rdma(host: Host, rdma: Callable[[], RdmaReader], failures: list[Failure]) -> Sequence[RdmaPortFacts]:
    reader = rdma()
    try:
        return read_rdma_ports(host.sysfs, reader, failures)
    finally:
        reader.close()


def _with_nic(
    host: Host, nic: Callable[[], NicReader], failures: list[Failure], lldp: Path
) -> Sequence[NetworkPortFacts]:
    reader = nic()
    try:
        return read_network_ports(host, reader, failures, lldp)
    finally:
        reader.close()


def _read_lines(file: Path) -> list[str]:
    """Read the lines; none if there is no such file."""
    try:
        data, _ = read_untrusted(os.path.realpath(file), MAX_CONF)  # in a container it is a link
    except FileNotFoundError:
        return []
    return data.decode("utf-8", "replace").replace("\r", "").splitlines()
