"""The Slurm job, pod or container that a process belongs to, by the path of its control group.

Only the outer part of the path is trusted. Below it are groups that the job may have created and named itself: a
process that may create groups in a user's session or a container could use the name of another job there.
"""

import re
from typing import NamedTuple

MAX_TEXT = 64 << 10
"""Characters of /proc/PID/cgroup that are parsed."""

_PARENTS = r"(?:/\.\.)*"
"""The path of a process outside the reader's cgroup namespace begins with `/..`."""

_UID = r"[0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12}"
_ID = r"[0-9a-f]{64}"
_STEP = r"(?:/step_(?P<step>[A-Za-z0-9]{1,16}))?"

_SLURM = tuple(
    re.compile(_PARENTS + pattern + r"/job_(?P<job>[0-9]{1,10})" + _STEP + r"(?:/|$)")
    for pattern in (
        r"(?:/system\.slice)?/(?:[\w.-]{1,64}_)?slurmstepd\.scope",  # cgroup v2
        r"/slurm(?:_[\w.-]{1,64})?/uid_[0-9]+",  # cgroup v1
    )
)
_POD = tuple(
    re.compile(_PARENTS + pattern)
    for pattern in (
        # The driver systemd; from inside a pod, other pods are shown without the slices above.
        rf"(?:/(?:kubelet|kubepods)[\w-]*\.slice)*/(?:kubelet-)?kubepods[\w-]*-pod(?P<pod>{_UID})\.slice(?:/|$)",
        # containerd with cgroup v1: the slice and the container are one path component.
        rf"/system\.slice/[\w.-]+\.service/kubepods[\w-]*-pod(?P<pod>{_UID})\.slice:",
        # The driver cgroupfs.
        rf"(?:/kubelet)?/kubepods(?:/besteffort|/burstable|/guaranteed)?/pod(?P<pod>{_UID})(?:/|$)",
    )
)
_CONTAINER = re.compile(rf"(?:^|[/:-])(?P<container>{_ID})(?:\.scope)?(?:/|$)")
_USER_SESSION = re.compile(_PARENTS + r"/user\.slice(?:/|$)")
"""A user's session: the user may name everything below it."""


class Owner(NamedTuple):
    """What a process belongs to; what is unknown is empty.

    Attributes:
        job: Number of the Slurm job.
        step: Step of the job.
        pod: UID of the pod, with hyphens unless it is a static pod.
        container: ID of the container, 64 hexadecimal digits.
    """

    job: str = ""
    step: str = ""
    pod: str = ""
    container: str = ""


def owner_of(text: str) -> Owner:
    """Parse /proc/PID/cgroup; of several hierarchies the first with an owner is used."""
    for line in text[:MAX_TEXT].splitlines():
        path = line.split(":", 2)[-1]
        if path.startswith("/") and not _USER_SESSION.match(path):
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
            return Owner(pod=_pod_uid(found["pod"]), container=_container(path[found.end() - 1 :]))
    return Owner(container=_container(path))


def _container(path: str) -> str:
    found = _CONTAINER.search(path)
    return found["container"] if found else ""


def _pod_uid(uid: str) -> str:
    """Return a pod's UID as Kubernetes writes it; the cgroup driver systemd replaces its hyphens by underscores."""
    return uid.replace("_", "-")
