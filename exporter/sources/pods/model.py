"""What the modules of this source pass between each other: a network namespace, and the pod that owns it."""

from typing import NamedTuple


class NamespaceRef(NamedTuple):
    """One network namespace. Device and inode of its nsfs file identify it; several paths may lead to it.

    `path` is a file that leads to it, such as `/run/netns/cni-…` or `/proc/1234/ns/net`, below the host's root.
    """

    path: str
    device: int
    inode: int


class PodOwner(NamedTuple):
    """The pod that a namespace belongs to. A part that is not known is empty."""

    pod_namespace: str
    pod_name: str
    pod_uid: str = ""
    container: str = ""
