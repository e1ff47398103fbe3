"""Whose a process is, by where its control group is: a job of Slurm, a pod, a container.

Only the outer part of a path is believed. Below it are groups that the job itself may have made and named: whoever may
make groups in a user's session or in a container could write another job's name there.
"""

import re
from typing import NamedTuple

MAX_TEXT = 64 << 10
"""Characters of /proc/PID/cgroup that are looked at."""

_HERE = r"(?:/\.\.)*"
"""Of a process outside of the reader's own cgroup namespace, the path begins with steps up."""

_UID = r"[0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12}"
_ID = r"[0-9a-f]{64}"
_STEP = r"(?:/step_(?P<step>[A-Za-z0-9]{1,16}))?"

_SLURM = tuple(
    re.compile(_HERE + pattern + r"/job_(?P<job>[0-9]{1,10})" + _STEP + r"(?:/|$)")
    for pattern in (
        r"(?:/system\.slice)?/(?:[\w.-]{1,64}_)?slurmstepd\.scope",  # cgroup v2
        r"/slurm(?:_[\w.-]{1,64})?/uid_[0-9]+",  # cgroup v1
    )
)
_POD = tuple(
    re.compile(_HERE + pattern)
    for pattern in (
        # The driver systemd; from within a pod, others are seen without the slices above.
        rf"(?:/(?:kubelet|kubepods)[\w-]*\.slice)*/(?:kubelet-)?kubepods[\w-]*-pod(?P<pod>{_UID})\.slice(?:/|$)",
        # containerd with cgroup v1: the slice and the container are one step.
        rf"/system\.slice/[\w.-]+\.service/kubepods[\w-]*-pod(?P<pod>{_UID})\.slice:",
        # The driver cgroupfs.
        rf"(?:/kubelet)?/kubepods(?:/besteffort|/burstable|/guaranteed)?/pod(?P<pod>{_UID})(?:/|$)",
    )
)
_CONTAINER = re.compile(rf"(?:^|[/:-])(?P<container>{_ID})(?:\.scope)?(?:/|$)")
_FOREIGN = re.compile(_HERE + r"/user\.slice(?:/|$)")
"""A user's session: all below it the user may name."""


class Owner(NamedTuple):
    """Whose a process is; what is not told is empty.

    Attributes:
        job: Number of the job of Slurm.
        step: Its step.
        pod: UID of the pod, with hyphens unless it is that of a static pod.
        container: ID of the container, of 64 hexadecimal digits.
    """

    job: str = ""
    step: str = ""
    pod: str = ""
    container: str = ""


def owner_of(text: str) -> Owner:
    """Read /proc/PID/cgroup; of several hierarchies the first that tells anything counts."""
    for line in text[:MAX_TEXT].splitlines():
        path = line.split(":", 2)[-1]
        if path.startswith("/") and not _FOREIGN.match(path):
            found = _owner(path)
            if found != Owner():
                return found
    return Owner()


def _owner(path: str) -> Owner:
    for pattern in _SLURM:
        if found := pattern.match(path):
            return Owner(job=found["job"], step=found["step"] or "", container=_container(path[found.end() :]))
    for pattern in _POD:
        if found := pattern.match(path):
            return Owner(pod=_hyphened(found["pod"]), container=_container(path[found.end() - 1 :]))
    return Owner(container=_container(path))


def _container(path: str) -> str:
    found = _CONTAINER.search(path)
    return found["container"] if found else ""


def _hyphened(uid: str) -> str:
    """Write the UID of a pod as Kubernetes does; the driver systemd has underscores in it, static pods nothing."""
    return uid.replace("_", "-")
