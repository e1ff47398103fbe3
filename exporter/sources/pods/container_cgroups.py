"""Pods of network namespaces by the control groups of the processes in them: a UID, without any file of the runtime.

All processes are read each time, some 20 µs for each: the number of a namespace that ended is soon that of another.
`/proc/PID/ns/net` of another user's process needs CAP_SYS_PTRACE; `/proc/PID/cgroup` is readable by all.
"""

import os
from contextlib import suppress
from pathlib import Path

from exporter.core.source import Failure
from exporter.linux.cgroup import MAX_TEXT, owner_of
from exporter.sources.common.failures import failure_of

MAX_PROCESSES = 65_536
"""Processes that are read."""

NamespaceId = tuple[int, int]
"""Device and inode of a namespace's file."""


def pods_of_namespaces(procfs: Path, failures: list[Failure]) -> dict[NamespaceId, frozenset[str]]:
    """Return the UIDs of the pods whose processes are in each namespace. Blocks.

    A process of no pod does not count: an administrator may enter a pod's namespace. Processes of two pods in one
    namespace are returned both, and so the namespace belongs to neither. In that of the host many are.

    Args:
        procfs: Root of procfs.
        failures: What cannot be read is appended.
    """
    found: dict[NamespaceId, set[str]] = {}
    known: dict[bytes, str] = {}
    hidden = 0
    try:
        pids = _processes(procfs, failures)
    except OSError as error:
        failures.append(failure_of("processes", error, procfs))
        return {}
    for pid in pids:
        try:
            namespace = namespace_id(f"{procfs}/{pid}/ns/net")
        except PermissionError:
            hidden += 1
            continue
        except OSError:
            continue  # it has ended
        group = _control_group(procfs, pid)
        if group not in known:
            known[group] = _pod(group)
        found.setdefault(namespace, set()).add(known[group])
    if hidden:
        detail = f"{procfs}: the namespaces of {hidden} processes are not readable; that needs CAP_SYS_PTRACE"
        failures.append(Failure("processes", "eacces", detail))
    return {namespace: frozenset(pods - {""}) for namespace, pods in found.items()}


def pod_of_process(procfs: Path, pid: str) -> str:
    """Return the UID of a process's pod by its control group; empty if it has none, or has ended. Blocks."""
    return _pod(_control_group(procfs, pid))


def _pod(group: bytes) -> str:
    return owner_of(group.decode("utf-8", "replace")).pod


def _control_group(procfs: Path, pid: str) -> bytes:
    """Return /proc/PID/cgroup; empty if the process has ended."""
    with suppress(OSError), open(f"{procfs}/{pid}/cgroup", "rb", buffering=0) as file:  # noqa: PTH123  # thousands
        return file.read(MAX_TEXT)
    return b""


def namespace_id(path: str | Path) -> NamespaceId:
    """Return what identifies the namespace that a path leads to. Blocks.

    Raises:
        OSError: There is none, or it may not be read.
    """
    status = os.stat(path)  # noqa: PTH116  # thousands of them
    return status.st_dev, status.st_ino


def host_namespace(procfs: Path) -> NamespaceId | None:
    """Return the namespace of the host: that of its first process, else of this one; None if not known. Blocks."""
    for pid in ("1", "self"):
        with suppress(OSError):
            return namespace_id(procfs / pid / "ns" / "net")
    return None


def _processes(procfs: Path, failures: list[Failure]) -> list[str]:
    found: list[str] = []
    with os.scandir(procfs) as entries:
        for entry in entries:
            if len(found) >= MAX_PROCESSES:
                detail = f"{procfs}: more than {MAX_PROCESSES} processes; others are not read"
                failures.append(Failure("processes", "too_many_processes", detail))
                break
            if entry.name.isdecimal():
                found.append(entry.name)
    return found
