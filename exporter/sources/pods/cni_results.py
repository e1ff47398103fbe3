"""Results that libcni keeps of every attachment of a pod to a network: pod, namespace, interface and device together.

libcni writes one file for each container and interface, `/var/lib/cni/results/NETWORK-CONTAINER-INTERFACE`, of the kind
cniCacheV1 (libcni/api.go); Multus lets it write those of further networks to `/var/lib/cni/multus/results`. Only root
can read them: folder 0700, files 0600. A file remains when a node restarts before its pod was removed, so a result
counts only while its namespace exists.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from exporter.core.source import Failure
from exporter.linux.untrusted_files import file_version, newest_regular_files, read_untrusted
from exporter.sources.common.failures import failure_of
from exporter.sources.pods.folder_entries import visit_entries
from exporter.sources.pods.model import PodOwner
from exporter.sources.pods.pod_names import MAX_SUBDOMAIN, plain_word, pod_owner

MAX_FILE_SIZE = 256 << 10
"""Bytes of a result; one has a few kilobytes, most of them the configuration of the network."""

MAX_FILES = 4096
"""Results of a folder that are read; of more, the newest."""

MAX_ENTRIES = 20_000
"""Entries of a folder that are listed."""

MAX_INTERFACES = 64
"""Interfaces of one result."""

MAX_INTERFACE_NAME = 15
"""Characters of the name of an interface: IFNAMSIZ without its end."""

MAX_DEVICE = 64
"""Characters of the ID of a device: a PCI address, or the name of an auxiliary device (`mlx5_core.sf.4`)."""

KIND = "cniCacheV1"

_OCTETS = frozenset({6, 8, 20})
"""Octets of hardware addresses: Ethernet, and InfiniBand in its short and its full form."""


class Attachment(NamedTuple):
    """One interface in a namespace. What the result does not give is empty.

    Attributes:
        interface: Its name in the namespace.
        network: Name of the network that it is attached to.
        plugin: Type of the plugin that made it: the first of a chain.
        device: The device that the plugin was given: a PCI address, or the name of an auxiliary device.
        mac: Its hardware address, as `aa:bb:…`.
    """

    interface: str
    network: str
    plugin: str
    device: str
    mac: str


class CniResult(NamedTuple):
    """One result.

    Attributes:
        pod: The pod; None where the runtime is not that of Kubernetes, and so gave no pod.
        container: ID of the pod's sandbox container.
        sandbox: Path of the namespace on the host; empty if the result has none.
        attachments: The interfaces in that namespace.
    """

    pod: PodOwner | None
    container: str
    sandbox: str
    attachments: tuple[Attachment, ...]


class _Interface(msgspec.Struct, frozen=True):
    name: str = ""
    mac: str = ""
    sandbox: str = ""
    pci: str = msgspec.field(name="pciID", default="")


class _Result(msgspec.Struct, frozen=True):
    interfaces: tuple[_Interface, ...] | None = None


class _Capabilities(msgspec.Struct, frozen=True):
    """What the runtime gave to plugins that ask for it; each key has a form of its own."""

    device: object = msgspec.field(name="deviceID", default="")


class _Cached(msgspec.Struct, frozen=True):
    """The file. The configuration is in base64, as Go writes bytes."""

    kind: str = ""
    container: str = msgspec.field(name="containerId", default="")
    config: bytes | None = None
    interface: str = msgspec.field(name="ifName", default="")
    network: str = msgspec.field(name="networkName", default="")
    netns: str = ""
    arguments: tuple[tuple[str, str], ...] | None = msgspec.field(name="cniArgs", default=None)
    capabilities: _Capabilities | None = msgspec.field(name="capabilityArgs", default=None)
    result: _Result | None = None


class _Plugin(msgspec.Struct, frozen=True):
    """The configuration of one plugin; Multus adds the device, for host-device as `pciBusID` too."""

    type: str = ""
    device: str = msgspec.field(name="deviceID", default="")
    address: str = msgspec.field(name="pciBusID", default="")


class _Network(_Plugin, frozen=True):
    """The configuration of a network: a chain of plugins, or the one plugin itself."""

    plugins: tuple[_Plugin, ...] | None = None


def parse_result(data: bytes) -> CniResult | None:
    """Parse one file; None if it is of another kind, as libcni older than 0.8 writes it, which names no pod.

    Raises:
        ValueError: It is malformed, or too large.
    """
    if len(data) > MAX_FILE_SIZE:
        raise ValueError(f"more than {MAX_FILE_SIZE} bytes")
    try:
        cached = msgspec.json.decode(data, type=_Cached)
    except RecursionError:
        raise ValueError("JSON is nested too deep") from None
    if cached.kind != KIND:
        return None
    found = cached.result.interfaces or () if cached.result else ()
    if len(found) > MAX_INTERFACES:
        raise ValueError(f"more than {MAX_INTERFACES} interfaces")
    inside = [one for one in found if one.sandbox]
    sandbox = cached.netns or next((one.sandbox for one in inside), "")
    plugin, device = _plugin_and_device(cached.config or b"")
    if not device and cached.capabilities and isinstance(cached.capabilities.device, str):
        device = plain_word(cached.capabilities.device, MAX_DEVICE)
    attachments = tuple(
        Attachment(
            plain_word(one.name, MAX_INTERFACE_NAME),
            plain_word(cached.network, MAX_SUBDOMAIN),
            plugin,
            plain_word(one.pci, MAX_DEVICE) or (device if one.name == cached.interface else ""),
            _hardware_address(one.mac),
        )
        for one in inside
        if plain_word(one.name, MAX_INTERFACE_NAME)
    )
    return CniResult(_pod(dict(cached.arguments or ())), plain_word(cached.container, 128), sandbox, attachments)


def _pod(arguments: dict[str, str]) -> PodOwner | None:
    namespace, name = arguments.get("K8S_POD_NAMESPACE", ""), arguments.get("K8S_POD_NAME", "")
    if not namespace and not name:
        return None
    return pod_owner(namespace, name, arguments.get("K8S_POD_UID", ""))


def _plugin_and_device(config: bytes) -> tuple[str, str]:
    """Return type and device of the first plugin of a network; empty where its configuration does not give them."""
    try:
        network = msgspec.json.decode(config, type=_Network)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    first = network.plugins[0] if network.plugins else network
    return plain_word(first.type, MAX_DEVICE), plain_word(first.device or first.address, MAX_DEVICE)


def _hardware_address(text: str) -> str:
    octets = text.lower().split(":")
    is_address = len(octets) in _OCTETS and all(len(one) == 2 and one.isalnum() and one.isascii() for one in octets)
    return ":".join(octets) if is_address else ""


class CniResultFolders:
    """Reads the results of some folders; a file that has not changed is not read again."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._kept: dict[str, tuple[tuple[int, ...], CniResult | Failure | None]] = {}

    def read(self, failures: list[Failure]) -> list[CniResult]:
        """Read the results; what cannot be read is appended to `failures`. A missing folder is no failure. Blocks."""
        found: dict[str, os.stat_result] = {}
        for folder in self._folders:
            found.update(_listed(folder, failures))
        self._kept = {path: self._kept_or_read(path, status) for path, status in found.items()}
        outcomes = [outcome for _, outcome in self._kept.values()]
        failures += [one for one in outcomes if isinstance(one, Failure)]
        return [one for one in outcomes if isinstance(one, CniResult)]

    def _kept_or_read(self, path: str, status: os.stat_result) -> tuple[tuple[int, ...], CniResult | Failure | None]:
        version = file_version(status)
        kept = self._kept.get(path)
        return kept if kept is not None and kept[0] == version else (version, _read(path))


def _listed(folder: Path, failures: list[Failure]) -> dict[str, os.stat_result]:
    """Return lstat of the files of a folder by path, of too many the newest."""
    found: dict[str, os.stat_result] = {}

    def visit(entry: "os.DirEntry[str]") -> None:
        with suppress(FileNotFoundError):  # the pod was removed meanwhile
            found[entry.path] = entry.stat(follow_symlinks=False)

    visit_entries(folder, MAX_ENTRIES, failures, visit)
    selected, excluded = newest_regular_files(found, MAX_FILES)
    if excluded:
        detail = f"{folder}: more than {MAX_FILES} results; the newest are read"
        failures.append(Failure(str(folder), "too_many_files", detail))
    return {path: found[path] for path in selected}


def _read(path: str) -> CniResult | Failure | None:
    try:
        data, _ = read_untrusted(path, MAX_FILE_SIZE)
        return parse_result(data)
    except FileNotFoundError:
        return None  # the pod was removed meanwhile
    except (OSError, ValueError) as error:
        return failure_of(str(Path(path).parent), error, path)
