"""Processes of jobs: those whose environment has variables of NCCL, or the rank and the size of a job.

The environment of a process is readable by its own user and with CAP_SYS_PTRACE and
CAP_DAC_READ_SEARCH only. Of it, variables of NCCL are
kept, without those that are paths.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from pathlib import Path

from exporter.linux.cached_file import read_text
from exporter.linux.cgroup import MAX_TEXT, Owner, owner_of
from exporter.linux.untrusted_files import read_untrusted
from exporter.preflight.facts import JobProcess, JobProcesses
from exporter.sources.common.job_files import UNKNOWN
from exporter.sources.nccl.identity import MAX_ENVIRONMENT, MAX_PROCESSES, job_of, parse_environment

MAX_JOB_PROCESSES = 64
"""Processes of jobs that are read: more than a host has GPUs."""

MAX_VARIABLES = 256
MAX_VALUE = 256
"""Variables of NCCL of one process, and characters of each, that are kept."""

IPC_LOCK = 14
"""Bit of CAP_IPC_LOCK, which locks memory without a limit."""

ALSO = frozenset({"CUDA_LAUNCH_BLOCKING"})

_NCCL = re.compile(rb"NCCL_[A-Z0-9_]{1,60}")
_RANKS = (b"RANK", b"WORLD_SIZE")
_PATHS = ("_FILE", "_PATH", "_DIR", "_ADDR")

FIRST = "1"
"""The process that each PID namespace has; not listed where processes of other users are hidden."""

HIDDEN = "processes of other users are hidden (hidepid of /proc, ProtectProc of systemd): run as the user of the jobs"

UNREADABLE = "environments of processes cannot be read: run as root, or as the user of the jobs"


def read_job_processes(procfs: Path) -> JobProcesses:
    """Read the processes of jobs, and why there may be others; blocks.

    Without the right to read them, an empty list would be a claim that there are none.

    Raises:
        OSError: They cannot be listed.
    """
    found: list[JobProcess] = []
    denied = False
    more = 0
    names = [name for name in os.listdir(procfs) if name.isdecimal()]  # noqa: PTH208  # names alone
    for name in sorted(names, key=int)[:MAX_PROCESSES]:
        try:
            data, _ = read_untrusted(str(procfs / name / "environ"), MAX_ENVIRONMENT)
        except PermissionError:
            denied = True
            continue
        except OSError:
            continue
        variables = dict(part.partition(b"=")[::2] for part in data.split(b"\0") if b"=" in part)
        if not _is_of_job(variables):
            continue
        if len(found) < MAX_JOB_PROCESSES:
            found.append(_read_process(procfs / name, data, variables))
        else:
            more += 1
    unread = []
    if denied:
        unread.append(UNREADABLE)
    if FIRST not in names:
        unread.append(HIDDEN)
    if len(names) > MAX_PROCESSES:
        unread.append(f"{MAX_PROCESSES} of {len(names)} processes are read")
    if more:
        unread.append(f"{MAX_JOB_PROCESSES} of {MAX_JOB_PROCESSES + more} processes of jobs are read")
    return JobProcesses(found=found, unread="; ".join(unread))


def _is_of_job(variables: Mapping[bytes, bytes]) -> bool:
    return all(name in variables for name in _RANKS) or any(map(_NCCL.fullmatch, variables))


def _read_process(folder: Path, data: bytes, variables: Mapping[bytes, bytes]) -> JobProcess:
    owner = Owner()
    with suppress(OSError):
        owner = owner_of(read_untrusted(str(folder / "cgroup"), MAX_TEXT)[0].decode("utf-8", "replace"))
    job = job_of(parse_environment(data), owner)
    return JobProcess(
        pid=int(folder.name),
        command=read_text(folder / "comm")[:16],
        job="" if job == UNKNOWN else job,
        memlock=_memlock(read_text(folder / "limits")),
        may_lock=_may_lock(read_text(folder / "status")),
        nccl=_nccl(variables),
    )


def _nccl(variables: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the variables of NCCL, except paths, which may be private."""
    words = {
        name.decode("ascii", "replace"): value.decode("ascii", "replace")[:MAX_VALUE]
        for name, value in variables.items()
    }
    kept = {
        name: value
        for name, value in sorted(words.items())
        if (name.startswith("NCCL_") or name in ALSO) and not name.endswith(_PATHS) and value.isprintable()
    }
    return dict(list(kept.items())[:MAX_VARIABLES])


def _memlock(limits: str) -> float | None:
    """Parse the soft limit of `Max locked memory` in /proc/PID/limits, in bytes."""
    for line in limits.splitlines():
        if line.startswith("Max locked memory"):
            soft = line[len("Max locked memory") :].split()[:1]
            if soft == ["unlimited"]:
                return inf
            return float(soft[0]) if soft and soft[0].isdecimal() else None
    return None


def _may_lock(status: str) -> bool | None:
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            with suppress(ValueError):
                return bool(int(value.strip(), 16) >> IPC_LOCK & 1)
    return None
