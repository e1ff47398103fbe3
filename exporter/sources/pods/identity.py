"""PodIdentities: who owns a network namespace or a device, kept up to date from all places of this host that know it.

Every place is optional. One that is missing is no failure; one that may not be read is a failure, and the others
remain.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls
from exporter.core.source import Failure
from exporter.linux.pci import ADDRESS, is_network_function
from exporter.sources.common.failures import failure_of
from exporter.sources.pods import ownership, pod_resources
from exporter.sources.pods.cni_results import Attachment, CniResult, CniResultFolders
from exporter.sources.pods.container_cgroups import (
    NamespaceId,
    host_namespace,
    namespace_id,
    pod_of_process,
    pods_of_namespaces,
)
from exporter.sources.pods.model import NamespaceRef, PodOwner
from exporter.sources.pods.ownership import Evidence
from exporter.sources.pods.pod_log_folders import read_log_folders
from exporter.sources.pods.pod_resources import Grant
from exporter.sources.pods.pod_resources_client import PodResourcesClient

CALL_INTERVAL = 10.0
"""Seconds between two calls of kubelet at least: it limits the rate of all its callers together."""

CALL_WAIT = 0.5
"""Seconds that a refresh waits for kubelet; a reply that comes later is used by the next refresh."""

MAX_REPLY_AGE = 60.0
"""Seconds after which a reply is no longer used."""

READ_DEADLINE = 5.0
"""Seconds for reading files and processes, after which the read counts as hanging."""


class IdentityPlaces(NamedTuple):
    """What is read; None for what is not.

    Attributes:
        cni: Folders of results of libcni.
        logs: Folder of the logs of pods.
        kubelet: Socket of kubelet's pod-resources API.
        processes: Whether namespaces of all processes are read, which needs CAP_SYS_PTRACE.
        procfs: Root of procfs.
        sysfs: Root of sysfs.
        root: The host's root: paths of namespaces in results of libcni are below it.
    """

    cni: Sequence[Path] = ()
    logs: Path | None = None
    kubelet: Path | None = None
    processes: bool = False
    procfs: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    root: Path = Path("/")


class PodIdentities:
    """Owners of namespaces and devices, as of the last refresh."""

    def __init__(self, places: IdentityPlaces) -> None:
        """Read nothing yet."""
        self._places = places
        self._calls = BlockingCalls("pods", READ_DEADLINE)
        self._cni = CniResultFolders(places.cni)
        self._client = PodResourcesClient(places.kubelet) if places.kubelet else None
        self._call: asyncio.Task[None] | None = None
        self._called = self._replied = -float("inf")
        self._kubelet_failure: tuple[Failure, ...] = ()
        self._grants: tuple[Grant, ...] = ()
        self._evidence = Evidence()
        self._holders: Mapping[str, PodOwner] = {}

    async def refresh(self) -> Sequence[Failure]:
        """Read all places again, kubelet at most each CALL_INTERVAL; return what could not be read."""
        if self._client is not None:
            call = self._call = self._call or asyncio.ensure_future(self._refresh_grants(self._client))
            await asyncio.wait([call], timeout=CALL_WAIT)
            if call.done():
                self._call = None
                call.result()
        key = "owners of namespaces"
        outcome = (await self._calls.run([(key, self._read)]))[key]
        if isinstance(outcome, Exception):
            return [failure_of("", outcome, key), *self._kubelet_failure]
        self._evidence, self._holders, failures = outcome
        texts = list(ownership.contradictions(self._evidence))
        if texts:
            failures.append(Failure("", "ambiguous", f"unknown owner, as two pods were found: {'; '.join(texts[:4])}"))
        return [*failures, *self._kubelet_failure]

    def owner(self, namespace: NamespaceRef, devices: Sequence[str] = ()) -> PodOwner | None:
        """Return the pod of a namespace; None if it is unknown. Parts that are not known are empty.

        Args:
            namespace: The namespace.
            devices: PCI addresses of network devices that were seen in it.
        """
        return ownership.owner(self._evidence, _id(namespace), devices)

    def attachments(self, namespace: NamespaceRef) -> tuple[Attachment, ...]:
        """Return the interfaces of a namespace as the plugins of CNI made them."""
        return ownership.attachments(self._evidence, _id(namespace))

    def pods_in(self, namespace: NamespaceRef) -> tuple[PodOwner, ...]:
        """Return the pods that have processes in a namespace; those of the host's network are in its namespace."""
        return ownership.pods_in(self._evidence, _id(namespace))

    def holders(self) -> Mapping[str, PodOwner]:
        """Return the container that has each network device, by PCI address; one that several have is left out."""
        return self._holders

    def shares(self) -> Mapping[tuple[str, PodOwner], int]:
        """Return the number of shares of each pool of devices that a container has: none of them owns a device."""
        return pod_resources.shares(self._grants)

    async def close(self) -> None:
        """Close the connection to kubelet, and end the thread."""
        if self._call is not None:
            self._call.cancel()
        self._calls.close()
        if self._client is not None:
            await self._client.close()

    async def _refresh_grants(self, client: PodResourcesClient) -> None:
        """Call kubelet, unless it was called lately; a reply remains in use while further calls fail, for a minute."""
        now = monotonic()
        if now - self._called < CALL_INTERVAL:
            return
        self._called, outcome = now, await client.list_pods()
        if isinstance(outcome, bytes):
            key = "reply of kubelet"
            parsed = (await self._calls.run([(key, partial(pod_resources.parse_list, outcome))]))[key]
            if isinstance(parsed, Exception):
                outcome = failure_of("kubelet", parsed, key)
            else:
                self._grants, self._replied, self._kubelet_failure = parsed, monotonic(), ()
                return
        self._kubelet_failure = (outcome,) if isinstance(outcome, Failure) else ()
        if monotonic() - self._replied > MAX_REPLY_AGE:
            self._grants = ()

    def _read(self) -> tuple[Evidence, Mapping[str, PodOwner], list[Failure]]:
        """Read files and processes; return the holders of network devices too. Blocks."""
        places = self._places
        failures: list[Failure] = []
        results: dict[NamespaceId, list[CniResult]] = {}
        for one in self._cni.read(failures):
            namespace = self._namespace_of(one)
            if namespace is not None:
                results.setdefault(namespace, []).append(one)
        evidence = Evidence(
            {namespace: tuple(found) for namespace, found in results.items()},
            pods_of_namespaces(places.procfs, failures) if places.processes else {},
            read_log_folders(places.logs, failures) if places.logs else {},
            pod_resources.grants_by_device(self._grants),
            host_namespace(places.procfs),
        )
        holders = ownership.holders(evidence)
        return evidence, {one: holders[one] for one in holders if self._is_network_device(one)}, failures

    def _is_network_device(self, device: str) -> bool:
        """Return whether the function of a PCI address is a network device, whatever driver it has. Blocks."""
        return ADDRESS.fullmatch(device) is not None and is_network_function(
            self._places.sysfs / "bus" / "pci" / "devices" / device
        )

    def _namespace_of(self, result: CniResult) -> NamespaceId | None:
        """Return the namespace of a result; None if it no longer exists, or may be another one by now. Blocks.

        `/proc/PID/ns/net` may be that of a later process with the same PID: it counts if that process is of the pod.
        """
        parts = result.sandbox.split("/")
        if len(parts) < 2 or parts[0] or ".." in parts:
            return None
        path = self._places.root.joinpath(*parts[1:])
        if parts[1] == "proc":
            pid = parts[2] if len(parts) > 2 else ""
            uid = result.pod.pod_uid if result.pod else ""
            if not pid.isdecimal() or not uid or pod_of_process(self._places.procfs, pid) != uid:
                return None
            path = self._places.procfs.joinpath(*parts[2:])
        try:
            return namespace_id(path)
        except (OSError, ValueError):  # ValueError: no path may contain it
            return None


def _id(namespace: NamespaceRef) -> NamespaceId:
    return namespace.device, namespace.inode
