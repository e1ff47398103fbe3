"""Lookup of processes on this host: PIDs, job, rank, GPU and nearest RDMA ports, once per process and off the loop."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from exporter.core.source import Host
from exporter.sources.common.job_files import UNKNOWN
from exporter.sources.nccl.gpu_affinity import nearest_devices, pci_address_of, port_names
from exporter.sources.nccl.identity import (
    ProcessIdentity,
    find_processes,
    job_of,
    only_gpu,
    read_identity,
    world_rank,
)
from exporter.sources.nccl.readers.feed import ProcessFacts

MAX_PORTS_LENGTH = 1024
"""Characters of the list of ports."""

MAX_DEVICES = 8
"""RDMA devices near a GPU whose ports are listed."""


def look_up_processes(host: Host, processes: Sequence[ProcessFacts]) -> list[ProcessFacts]:
    """Return the facts, completed with what this host knows; blocks.

    Args:
        host: Host with the roots of procfs and sysfs.
        processes: Facts as feeds reported them.
    """
    hidden = {(one.pid, one.uid) for one in processes if one.pid and not one.host_pid and one.uid is not None}
    found = find_processes(host.procfs, hidden) if hidden else {}
    return [_look_up(host, one, found.get((one.pid, -1 if one.uid is None else one.uid), 0)) for one in processes]


def _look_up(host: Host, facts: ProcessFacts, found: int) -> ProcessFacts:
    host_pid = facts.host_pid or found
    known = read_identity(host.procfs, host_pid) if host_pid else ProcessIdentity()
    if not facts.host_pid and facts.folder.isdecimal() and known.owner.job not in {"", facts.folder}:
        host_pid, known = 0, ProcessIdentity()  # a process of another job that has the same PID by chance
    job = facts.job
    if facts.folder or job == UNKNOWN:
        job = job_of(known.environment, known.owner, facts.folder, facts.host)
    gpu = pci_address_of(facts.gpu or only_gpu(known.environment), host.procfs)
    near = nearest_devices(host.sysfs, gpu)
    return replace(
        facts,
        job=job,
        host_pid=host_pid,
        pid=known.pid or facts.pid,
        world_rank=world_rank(known.environment) if facts.world_rank is None else facts.world_rank,
        gpu=gpu,
        nic=",".join(near),
        ports=_join_ports(port_names(host.sysfs, device) for device in near[:MAX_DEVICES]),
        pod=facts.pod or known.environment.get("POD_NAME", "") or known.owner.pod,
    )


def _join_ports(ports: Iterable[str]) -> str:
    """Join ports with commas, up to MAX_PORTS_LENGTH characters."""
    joined = ""
    for one in ports:
        longer = f"{joined},{one}" if joined else one
        if len(longer) <= MAX_PORTS_LENGTH:
            joined = longer
    return joined
