"""Identity of a process of a training job: its job, its rank, and its PIDs inside and outside containers.

What the kernel reports takes precedence over what a process reports about itself. The environment of a process is
readable by its own user and with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH only; otherwise its
variables are unknown.
"""

import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from exporter.linux.cgroup import MAX_TEXT, Owner, owner_of
from exporter.sources.common.job_files import MAX_NAME, UNKNOWN

MAX_ENVIRONMENT = 256 << 10
"""Bytes of /proc/PID/environ that are read."""

MAX_PROCESSES = 65_536
"""Processes of this host that are read."""

MAX_STATUS = 8192
"""Bytes of /proc/PID/status that are read."""

JOBS = ("FABRIC_TIMING_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "JOBSET_NAME")
"""Variables with the job name, in order of preference; torchrun names a job `none` by default."""

RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
"""Variables with the rank in the job: of torchrun, Slurm, Open MPI and PMIx; the innermost launcher first."""

VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""Variables with the GPUs that a process may use."""

READ_VARIABLES = frozenset({*JOBS, *RANKS, *VISIBLE, "POD_NAME", "HOSTNAME"})
"""The only variables that are read: others may contain secrets."""

_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]{5}"
"""Random suffix of pod names in Kubernetes, which has no vowels."""

_PODS = (
    re.compile(r"(.{1,253})-(?:worker|master|chief|ps)-[0-9]{1,6}"),  # PyTorchJob, workers of an MPIJob
    re.compile(rf"(.{{1,253}})-launcher(?:-{_RANDOM})?"),  # MPIJob
    re.compile(
        rf"(.{{1,253}})-[0-9]{{1,6}}-[0-9]{{1,6}}(?:-{_RANDOM})?"
    ),  # JobSet: its name and that of the replicated job
    re.compile(rf"(.{{1,253}})-[0-9]{{1,6}}(?:-{_RANDOM})?"),  # an indexed Job
)
"""Patterns of pod names, with the part that all pods of a job share. The host name of a pod of an indexed Job is its
name without the random suffix."""

_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,7}", re.ASCII)


def job_of(environment: Mapping[str, str], owner: Owner, folder: str = "", pod: str = "") -> str:
    """Return the job name, in at most MAX_NAME characters.

    Args:
        environment: Known environment of one of its processes.
        owner: Owner of that process by its control group.
        folder: Job name from the folder of its files, which takes precedence; empty if there is none.
        pod: Host name as the process sees it, which in a pod is the name of the pod, or of an indexed Job its name
            without the random suffix.
    """
    named = (environment.get(name, "") for name in JOBS)
    candidates = (folder, owner.job, next((one for one in named if one and one != "none"), ""))
    found = next(filter(None, candidates), "")
    if not found and owner.pod:
        found = _job_of_pod(environment.get("POD_NAME", "") or pod) or owner.pod
    return (found or UNKNOWN)[:MAX_NAME]


def _job_of_pod(name: str) -> str:
    """Return the part of a pod name that all pods of its job share; empty where no pattern matches."""
    return next((found[1] for pattern in _PODS if (found := pattern.fullmatch(name))), "")


def only_gpu(environment: Mapping[str, str]) -> str:
    """Return the UUID of the only GPU that a process may use; empty for several, and for GPUs given by index.

    The index of a GPU depends on its PCI address, its speed and the other GPUs visible.
    """
    devices = (environment.get(name, "") for name in VISIBLE)
    return next((one for one in devices if _UUID.fullmatch(one)), "")


def world_rank(environment: Mapping[str, str]) -> int | None:
    """Return the rank in the job; None if unknown."""
    ranks = (environment[name] for name in RANKS if name in environment)
    return next((int(one) for one in ranks if _NUMBER.fullmatch(one)), None)


class ProcessIdentity(NamedTuple):
    """What the kernel reports about a process.

    Attributes:
        pid: Process ID in its innermost PID namespace; 0 if unknown.
        owner: Owner by its control group.
        environment: READ_VARIABLES of its environment; empty where it is not readable.
    """

    pid: int = 0
    owner: Owner = Owner()
    environment: Mapping[str, str] = MappingProxyType({})  # never changed


def read_identity(procfs: Path, host_pid: int) -> ProcessIdentity:
    """Read the identity of a process from procfs; what cannot be read is unknown. Blocks."""
    folder = procfs / str(host_pid)
    pid, owner, environment = 0, Owner(), {}
    with suppress(OSError):
        pid = _inner_pid(_read(folder / "status", MAX_STATUS))
    with suppress(OSError):
        owner = owner_of(_read(folder / "cgroup", MAX_TEXT).decode("utf-8", "replace"))
    with suppress(OSError):
        environment = parse_environment(_read(folder / "environ", MAX_ENVIRONMENT))
    return ProcessIdentity(pid, owner, environment)


def find_processes(procfs: Path, wanted: Collection[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Find processes by their PID in the innermost namespace, and by user; blocks.

    PIDs are not unique across namespaces. Ambiguous processes are omitted.

    Args:
        procfs: Root of procfs.
        wanted: PID and user ID of each.

    Returns:
        PIDs on this host, as far as they are visible.
    """
    found: dict[tuple[int, int], list[int]] = {}
    with suppress(OSError), os.scandir(procfs) as entries:
        for place, entry in enumerate(entries):
            if place >= MAX_PROCESSES:
                break
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):
                status = _read(procfs / entry.name / "status", MAX_STATUS)
                key = (_inner_pid(status), _uid(status))
                if key in wanted:
                    found.setdefault(key, []).append(int(entry.name))
    return {key: numbers[0] for key, numbers in found.items() if len(numbers) == 1}


def parse_environment(data: bytes) -> dict[str, str]:
    """Parse /proc/PID/environ; return READ_VARIABLES with short and printable values."""
    found = {}
    for one in data.split(b"\0"):
        name, _, value = one.partition(b"=")
        word = name.decode("ascii", "replace")
        text = value.decode("ascii", "replace")
        if word in READ_VARIABLES and len(text) <= MAX_NAME and text.isascii() and text.isprintable():
            found[word] = text
    return found


def _read(path: Path, size: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        parts = []
        while size > 0 and (part := file.read(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _field(status: bytes, name: bytes) -> list[bytes]:
    for line in status.splitlines():
        if line.startswith(name):
            return line[len(name) :].split()
    return []


def _inner_pid(status: bytes) -> int:
    """Return the PID in the innermost namespace (the last of NSpid); 0 where absent."""
    numbers = _field(status, b"NSpid:")
    return int(numbers[-1]) if numbers and numbers[-1].isdigit() and len(numbers[-1]) <= len("4194304") else 0


def _uid(status: bytes) -> int:
    """Return the effective user ID (the second of Uid); -1 where absent."""
    numbers = _field(status, b"Uid:")
    return int(numbers[1]) if len(numbers) > 1 and numbers[1].isdigit() else -1
