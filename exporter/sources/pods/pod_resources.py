"""Replies of kubelet's pod-resources API: which devices each container of this node was given.

The messages are those of kubernetes/kubelet, pkg/apis/podresources/v1/api.proto. A reply has neither UIDs of pods nor
names of interfaces. It may have a pod that has ended, whose device another pod has by now.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from exporter.sources.pods.model import PodOwner
from exporter.sources.pods.pod_names import plain_word, pod_owner
from exporter.sources.pods.protobuf_fields import FieldReader

MAX_FIELDS = 1_000_000
"""Fields of a reply that are decoded: a node of 500 pods has some ten thousand."""

MAX_GRANTS = 65_536
"""Devices of all containers."""

MAX_RESOURCE = 317
"""Characters of the name of a resource: a DNS subdomain, a slash, and a name."""

MAX_DEVICE = 128
"""Characters of the ID of a device; each device plugin has its own form."""


class Grant(NamedTuple):
    """One device of one container.

    Attributes:
        owner: The container.
        resource: Name of the resource, or of the driver of a dynamic one.
        device: ID that the device plugin gave it. SR-IOV: the PCI address, or the name of an auxiliary device.
    """

    owner: PodOwner
    resource: str
    device: str

    @property
    def is_share(self) -> bool:
        """Whether the ID is a bare number, as of k8s-rdma-shared-dev-plugin: a share of a pool, and no device."""
        return self.device.isdecimal()


def parse_list(reply: bytes) -> tuple[Grant, ...]:
    """Parse a ListPodResourcesResponse.

    Raises:
        ValueError: It is malformed, or has too much.
    """
    reader = FieldReader(MAX_FIELDS)
    grants: list[Grant] = []
    for pod in _messages(reader, memoryview(reply), 1):
        for grant in _pod(reader, pod):
            if len(grants) >= MAX_GRANTS:
                raise ValueError(f"more than {MAX_GRANTS} devices")
            grants.append(grant)
    return tuple(grants)


def _pod(reader: FieldReader, message: memoryview) -> Iterator[Grant]:
    """Yield the grants of a PodResources: name 1, namespace 2, containers 3."""
    name = namespace = ""
    containers: list[memoryview] = []
    for number, value in reader.fields(message):
        if number == 1:
            name = _text(value)
        elif number == 2:
            namespace = _text(value)
        elif number == 3:
            containers.append(_message(value))
    for container in containers:
        yield from _container(reader, container, namespace, name)


def _container(reader: FieldReader, message: memoryview, namespace: str, pod: str) -> Iterator[Grant]:
    """Yield the grants of a ContainerResources: name 1, devices 2, dynamic_resources 5."""
    name = ""
    devices: list[tuple[str, str]] = []
    for number, value in reader.fields(message):
        if number == 1:
            name = _text(value)
        elif number == 2:
            devices += _devices(reader, _message(value))
        elif number == 5:
            devices += _dynamic_devices(reader, _message(value))
    if devices:
        owner = pod_owner(namespace, pod, container=name)
        yield from (Grant(owner, resource, device) for resource, device in devices if resource and device)


def _devices(reader: FieldReader, message: memoryview) -> Iterator[tuple[str, str]]:
    """Yield resource and ID of a ContainerDevices: resource_name 1, device_ids 2."""
    resource, ids = "", []
    for number, value in reader.fields(message):
        if number == 1:
            resource = _text(value)
        elif number == 2:
            ids.append(_text(value))
    yield from ((plain_word(resource, MAX_RESOURCE), plain_word(one, MAX_DEVICE)) for one in ids)


def _dynamic_devices(reader: FieldReader, message: memoryview) -> Iterator[tuple[str, str]]:
    """Yield driver and device of a DynamicResource: claim_resources 4, each with driver_name 2 and device_name 4."""
    for claim in _messages(reader, message, 4):
        texts = {number: _text(value) for number, value in reader.fields(claim) if number in {2, 4}}
        yield plain_word(texts.get(2, ""), MAX_RESOURCE), plain_word(texts.get(4, ""), MAX_DEVICE)


def _messages(reader: FieldReader, message: memoryview, wanted: int) -> Iterator[memoryview]:
    return (_message(value) for number, value in reader.fields(message) if number == wanted)


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a message or a text should be")  # noqa: TRY004  # malformed input
    return value


def _text(value: int | memoryview) -> str:
    return str(_message(value), "utf-8")


def grants_by_device(grants: Iterable[Grant]) -> Mapping[str, tuple[Grant, ...]]:
    """Return the grants of each device; shares are of none."""
    found: dict[str, list[Grant]] = {}
    for one in grants:
        if not one.is_share:
            found.setdefault(one.device, []).append(one)
    return {device: tuple(holders) for device, holders in found.items()}


def shares(grants: Iterable[Grant]) -> Mapping[tuple[str, PodOwner], int]:
    """Return the number of shares that each container has of each pool, by the resource of the pool.

    All devices of the pool are in each of these containers. What a container sends through which is not known.
    """
    return Counter((one.resource, one.owner) for one in grants if one.is_share)
