"""What this host tells of processes that were not heard before: asked once for each, off the loop."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from exporter.core.source import Host
from exporter.sources.nccl.gpu_affinity import address_of, names_of, nics_near
from exporter.sources.nccl.identity import (
    UNKNOWN,
    Known,
    find_processes,
    job_of,
    look_up,
    only_gpu,
    world_rank,
)
from exporter.sources.nccl.readers.feed import Facts

MAX_PORTS = 1024
"""Characters of the list of ports."""

MAX_NEAR = 8
"""RDMA devices near to one GPU whose ports are told."""


def enquire(host: Host, newcomers: Sequence[Facts]) -> list[Facts]:
    """Give facts with what this host adds to them; blocks.

    Args:
        host: Where to ask.
        newcomers: What feeds tell of processes.
    """
    hidden = {(one.pid, one.uid) for one in newcomers if one.pid and not one.host_pid and one.uid is not None}
    seen = find_processes(host.procfs, hidden) if hidden else {}
    return [_enquire(host, one, seen.get((one.pid, -1 if one.uid is None else one.uid), 0)) for one in newcomers]


def _enquire(host: Host, facts: Facts, found: int) -> Facts:
    host_pid = facts.host_pid or found
    known = look_up(host.procfs, host_pid) if host_pid else Known()
    if not facts.host_pid and facts.folder.isdecimal() and known.owner.job not in {"", facts.folder}:
        host_pid, known = 0, Known()  # a process of another job that has the same number by chance
    job = facts.job
    if facts.folder or job == UNKNOWN:
        job = job_of(known.environment, known.owner, facts.folder, facts.host)
    gpu = address_of(facts.gpu or only_gpu(known.environment), host.procfs)
    near = nics_near(host.sysfs, gpu)
    return replace(
        facts,
        job=job,
        host_pid=host_pid,
        pid=known.pid or facts.pid,
        world_rank=world_rank(known.environment) if facts.world_rank is None else facts.world_rank,
        gpu=gpu,
        nic=",".join(near),
        ports=_listed(names_of(host.sysfs, device) for device in near[:MAX_NEAR]),
        pod=facts.pod or known.environment.get("POD_NAME", "") or known.owner.pod,
    )


def _listed(ports: Iterable[str]) -> str:
    """List ports, as many as there is room for."""
    found = ""
    for one in ports:
        longer = f"{found},{one}" if found else one
        if len(longer) <= MAX_PORTS:
            found = longer
    return found
