"""Who a process of a training job is: the name of its job, its rank in it, and its numbers in and out of containers.

What the kernel tells is believed before what a process says of itself. Its environment can be read by its own user
and by who holds CAP_SYS_PTRACE alone; for others what only stands there is not known.
"""

import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from exporter.linux.cgroup import MAX_TEXT, Owner, owner_of

UNKNOWN = "unknown"
"""Name of the job where nobody tells it."""

MAX_NAME = 128
"""Characters of a job's name."""

MAX_ENVIRONMENT = 256 << 10
"""Bytes of /proc/PID/environ that are looked at."""

MAX_PROCESSES = 65_536
"""Processes of this host that are looked at."""

MAX_STATUS = 8192
"""Bytes of /proc/PID/status that are looked at."""

JOBS = ("FABRIC_TIMING_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "JOBSET_NAME")
"""Variables of the environment that name a job, the best first; torchrun calls any job `none` that was not named."""

RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
"""Variables that tell the rank in the job: of torchrun, Slurm, Open MPI and PMIx; the innermost launcher first."""

VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""Variables that name the GPUs that a process may use."""

KEPT = frozenset({*JOBS, *RANKS, *VISIBLE, "POD_NAME", "HOSTNAME"})
"""All that is kept of an environment: the rest may hold secrets."""

_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]{5}"
"""How Kubernetes ends the names of pods; it leaves out what could make words."""

_PODS = (
    re.compile(r"(.+)-(?:worker|master|chief|ps)-[0-9]{1,6}"),  # PyTorchJob, workers of an MPIJob
    re.compile(rf"(.+)-launcher(?:-{_RANDOM})?"),  # MPIJob
    re.compile(rf"(.+)-[0-9]{{1,6}}-[0-9]{{1,6}}-{_RANDOM}"),  # JobSet: its name and that of the replicated job
    re.compile(rf"(.+)-[0-9]{{1,6}}-{_RANDOM}"),  # an indexed Job
)
"""Names of pods, with the part that all pods of a job share."""

_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,7}", re.ASCII)


def job_of(environment: Mapping[str, str], owner: Owner, folder: str = "", pod: str = "") -> str:
    """Give what a job is called, in at most MAX_NAME characters.

    Args:
        environment: What is known of the environment of one of its processes.
        owner: Whose that is by its control group.
        folder: Name by the folder that its files lie in, which whoever set it up chose; empty where that says nothing.
        pod: Name of the host as the process sees it, which in a pod is the name of the pod.
    """
    said = (environment.get(name, "") for name in JOBS)
    candidates = (folder, owner.job, next((one for one in said if one and one != "none"), ""))
    found = next(filter(None, candidates), "")
    if not found and owner.pod:
        found = _job_of_pod(environment.get("POD_NAME", "") or pod) or owner.pod
    return (found or UNKNOWN)[:MAX_NAME]


def _job_of_pod(name: str) -> str:
    """Give the part of a pod's name that all pods of its job share; empty where the name is of no known make."""
    return next((found[1] for pattern in _PODS if (found := pattern.fullmatch(name))), "")


def only_gpu(environment: Mapping[str, str]) -> str:
    """Give the UUID of the only GPU that a process may use; empty where it may use several, or they are but numbered.

    What number a GPU has depends on its place, its speed and what else may be used.
    """
    told = (environment.get(name, "") for name in VISIBLE)
    return next((one for one in told if _UUID.fullmatch(one)), "")


def world_rank(environment: Mapping[str, str]) -> int | None:
    """Give the rank in the job; None where nothing tells it."""
    told = (environment[name] for name in RANKS if name in environment)
    return next((int(one) for one in told if _NUMBER.fullmatch(one)), None)


class Known(NamedTuple):
    """What the kernel tells of a process.

    Attributes:
        pid: Its number as it sees it itself; 0 where not told.
        owner: Whose it is.
        environment: What is kept of its environment; empty where that may not be read.
    """

    pid: int = 0
    owner: Owner = Owner()
    environment: Mapping[str, str] = {}  # never changed


def look_up(procfs: Path, host_pid: int) -> Known:
    """Ask the kernel about a process; what cannot be read is not known. Blocks."""
    folder = procfs / str(host_pid)
    pid, owner, environment = 0, Owner(), {}
    with suppress(OSError):
        pid = _inner_pid(_read(folder / "status", MAX_STATUS))
    with suppress(OSError):
        owner = owner_of(_read(folder / "cgroup", MAX_TEXT).decode("utf-8", "replace"))
    with suppress(OSError):
        environment = parse_environment(_read(folder / "environ", MAX_ENVIRONMENT))
    return Known(pid, owner, environment)


def find_processes(procfs: Path, wanted: Collection[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Find processes by the number that they see themselves, and by their user; blocks.

    A number inside a container may be that of other processes too. What is not clear is left out.

    Args:
        procfs: Root of procfs.
        wanted: Number and user of each.

    Returns:
        Their numbers on this host, as far as this process sees them.
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
    """Read /proc/PID/environ; only KEPT is kept, and of it only what is short and printable."""
    found = {}
    for one in data.split(b"\0"):
        name, _, value = one.partition(b"=")
        word = name.decode("ascii", "replace")
        text = value.decode("ascii", "replace")
        if word in KEPT and len(text) <= MAX_NAME and text.isascii() and text.isprintable():
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
    """Read the number of a process in the innermost namespace that it is in; 0 where it is not told."""
    numbers = _field(status, b"NSpid:")
    return int(numbers[-1]) if numbers and numbers[-1].isdigit() and len(numbers[-1]) <= len("4194304") else 0


def _uid(status: bytes) -> int:
    """Read the user that a process acts for (the second of four); -1 where it is not told."""
    numbers = _field(status, b"Uid:")
    return int(numbers[1]) if len(numbers) > 1 and numbers[1].isdigit() else -1
