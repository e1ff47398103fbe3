"""Which pod owns a network namespace or a device, by all that is known: each kind of evidence is optional.

The result of libcni is preferred, as it names pod and namespace together; control groups give a pod's UID, the names of
log folders the name of that UID; kubelet gives the pod and container of a device. Where two of them disagree the owner
is unknown: a wrong name is worse than none.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.sources.pods.cni_results import Attachment, CniResult
from exporter.sources.pods.container_cgroups import NamespaceId
from exporter.sources.pods.model import PodOwner
from exporter.sources.pods.pod_resources import Grant


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was read; never changed.

    Attributes:
        results: Results of libcni by namespace.
        uids: UIDs of the pods whose processes are in a namespace.
        pods: Pods by UID, of log folders.
        grants: Grants of devices by their IDs, without shares.
        host: The namespace of the host, which no pod owns.
    """

    results: Mapping[NamespaceId, tuple[CniResult, ...]] = field(default_factory=lambda: MappingProxyType({}))
    uids: Mapping[NamespaceId, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    pods: Mapping[str, PodOwner] = field(default_factory=lambda: MappingProxyType({}))
    grants: Mapping[str, tuple[Grant, ...]] = field(default_factory=lambda: MappingProxyType({}))
    host: NamespaceId | None = None


META_PLUGINS = frozenset({"multus", "multus-shim"})
"""Plugins that call another one for the same interface, of which there is a result too: that one is preferred."""


def attachments(evidence: Evidence, namespace: NamespaceId) -> tuple[Attachment, ...]:
    """Return the interfaces of a namespace that libcni has results of, each once."""
    found: dict[str, Attachment] = {}
    for result in evidence.results.get(namespace, ()):
        for one in result.attachments:
            known = found.get(one.interface)
            if known is None or known.plugin in META_PLUGINS:
                found[one.interface] = one
    return tuple(found.values())


def owner(evidence: Evidence, namespace: NamespaceId, devices: Collection[str] = ()) -> PodOwner | None:
    """Return the pod of a namespace; None if it is unknown, or evidence disagrees.

    Args:
        evidence: What was read.
        namespace: The namespace.
        devices: PCI addresses of devices in it, if known; those that results of libcni name are known already.
    """
    if namespace == evidence.host:
        return None
    known = {*devices, *(one.device for one in attachments(evidence, namespace) if one.device)}
    named, uids = _named(evidence, namespace), evidence.uids.get(namespace, frozenset())
    if len(named) > 1 or len(uids) > 1:
        return None
    uid = next(iter(uids), "")
    if not named:
        pod = evidence.pods.get(uid, PodOwner("", "", uid)) if uid else _holder(evidence, known)
    else:
        (pod,) = named
        if uid and pod.pod_uid not in {"", uid}:
            return None
        pod = pod._replace(pod_uid=pod.pod_uid or uid or _uid(evidence, pod))
    return None if pod is None else pod._replace(container=_container(evidence, pod, known))


def pods_in(evidence: Evidence, namespace: NamespaceId) -> tuple[PodOwner, ...]:
    """Return the pods that have processes in a namespace, in the order of their names: in that of the host many."""
    uids = evidence.uids.get(namespace, frozenset())
    return tuple(sorted(evidence.pods.get(uid, PodOwner("", "", uid)) for uid in uids))


def holders(evidence: Evidence) -> dict[str, PodOwner]:
    """Return the container that was given each device, by the ID of the device; one that several pods have is left out.

    The result of a plugin that was given the device is preferred. Of several pods by kubelet those that have ended are
    left out, as far as it is known which pods have a namespace.
    """
    named: dict[str, set[PodOwner | None]] = {}
    for namespace in evidence.results:
        pod = owner(evidence, namespace)
        for one in attachments(evidence, namespace):
            if one.device:
                named.setdefault(one.device, set()).add(pod)
    found = {}
    for device in named.keys() | evidence.grants.keys():
        pods = named.get(device) or {_holder(evidence, {device})}
        pod = next(iter(pods)) if len(pods) == 1 else None
        if pod is not None:
            found[device] = pod._replace(container=_container(evidence, pod, {device}))
    return found


def contradictions(evidence: Evidence) -> Iterable[str]:
    """Yield a text about each namespace that has two pods, by results of libcni or by its processes."""
    for namespace in (evidence.results.keys() | evidence.uids.keys()) - {evidence.host}:
        named, uids = _named(evidence, namespace), evidence.uids.get(namespace, frozenset())
        result_uids = {pod.pod_uid for pod in named if pod.pod_uid}
        if len(named) > 1 or len(uids | (result_uids if uids else frozenset())) > 1:
            pods = sorted({f"{pod.pod_namespace}/{pod.pod_name}" for pod in named} | {f"UID {uid}" for uid in uids})
            yield f"namespace {namespace[1]}: {', '.join(pods)}"


def _named(evidence: Evidence, namespace: NamespaceId) -> set[PodOwner]:
    """Return the pods of a namespace by results of libcni; one without a UID is the one of that name that has it."""
    pods = {result.pod for result in evidence.results.get(namespace, ()) if result.pod is not None}
    with_uid = {pod[:2] for pod in pods if pod.pod_uid}
    return {pod for pod in pods if pod.pod_uid or pod[:2] not in with_uid}


def _holder(evidence: Evidence, devices: Collection[str]) -> PodOwner | None:
    """Return the one pod that was given all of some devices that have a grant."""
    candidates: set[tuple[str, str]] | None = None
    for device in devices:
        if grants := evidence.grants.get(device):
            pods = {one.owner[:2] for one in grants}
            candidates = pods if candidates is None else candidates & pods
    if candidates and len(candidates) > 1:
        candidates &= {pod[:2] for results in evidence.results.values() for pod in _pods(results)}
    if not candidates or len(candidates) > 1:
        return None
    pod = PodOwner(*next(iter(candidates)))
    return pod._replace(pod_uid=_uid(evidence, pod))


def _pods(results: Iterable[CniResult]) -> Iterable[PodOwner]:
    return (one.pod for one in results if one.pod is not None)


def _uid(evidence: Evidence, pod: PodOwner) -> str:
    """Return the UID of the only pod that had this name; empty if there were several, as after a restart of it."""
    found = [uid for uid, one in evidence.pods.items() if one[:2] == pod[:2]]
    return found[0] if len(found) == 1 else ""


def _container(evidence: Evidence, pod: PodOwner, devices: Iterable[str]) -> str:
    """Return the one container of a pod that was given these devices; empty if several were, or none."""
    grants = (one for device in devices for one in evidence.grants.get(device, ()))
    found = {one.owner.container for one in grants if one.owner[:2] == pod[:2]}
    return found.pop() if len(found) == 1 else ""
