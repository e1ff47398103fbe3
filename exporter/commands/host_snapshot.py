"""Records the ports of this host for a bug report: what the sources read of the kernel, in a folder that `run` replays.

Network devices are `<device>.json`, RDMA devices `rdma/<device>.json`, and `sys` is a copy of their files of sysfs.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from exporter.config.errors import UserError, system_errors_as_user_errors
from exporter.linux.infiniband import parse_guid
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import NicReader
from exporter.linux.rdma_reader import RdmaReader
from exporter.linux.recordings.module_memory import replace_private
from exporter.linux.recordings.recorder import record_nics, record_rdma, write_recording
from exporter.linux.recordings.sysfs_tree import CLASSES, SysfsCopy
from exporter.snmp.pseudonyms import Pseudonyms
from exporter.sources.common.host_ports import is_hardware, is_infiniband_port

_Change: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns what is written of the recording of a device."""


class HostReaders(NamedTuple):
    """The sources of a recording: the functions open the readers, for RDMA only on a host with RDMA devices."""

    sysfs: Path
    open_nic: Callable[[], NicReader]
    open_rdma: Callable[[], RdmaReader]


class RecordedCounts(NamedTuple):
    """Numbers of recorded devices and files, and what could not be read."""

    nics: int
    rdma_devices: int
    files: int
    problems: list[str]


def snapshot_host(
    readers: HostReaders, folder: Path, *, raw: bool, modules: bool, progress: Callable[[str], None]
) -> RecordedCounts:
    """Record the ports of a host; blocks.

    Args:
        readers: What is recorded.
        folder: Folder of the recording, new or empty.
        raw: Whether MAC addresses, GUIDs and serial numbers are kept.
        modules: Whether the memory of optical modules is recorded too.
        progress: Is called with the name of each device.

    Raises:
        UserError: The folder is not empty, the devices cannot be listed, or there is none.
        OSError: A file cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists already and is not an empty directory; name another one, or remove it")
    anonymiser = None if raw else _HostAnonymiser(Pseudonyms())
    change_nic = anonymiser.nic if anonymiser else _keep
    nics = _record_nics(readers, folder, change_nic, modules=modules, progress=progress)
    copy = SysfsCopy(readers.sysfs, folder / "sys", anonymiser.file if anonymiser else _keep_file)
    with system_errors_as_user_errors(f"devices in {readers.sysfs}", "run the command as a user that can read them"):
        devices = {name: copy.devices(name) for name in CLASSES}
    rdma_devices = devices["infiniband"]
    if not nics and not rdma_devices:
        raise UserError(
            "this network namespace has no ports that are hardware; run the command on the host, or in a container in"
            " the network of the host"
        )
    problems: list[str] = []
    if rdma_devices:
        problems += _record_rdma(readers, folder, anonymiser.rdma if anonymiser else _keep, progress)
    for name, found in devices.items():
        for device in found:
            progress(f"{device}: files of sysfs")
            copy.copy_device(name, device)
    if rdma_devices:
        copy.copy_character_devices()
    copy.copy_gpus()
    return RecordedCounts(nics, len(rdma_devices), copy.files, [*problems, *copy.problems])


def _record_nics(
    readers: HostReaders, folder: Path, change: _Change, *, modules: bool, progress: Callable[[str], None]
) -> int:
    """Record the network devices that the sources read by default; return their number."""
    netlink_errors = partial(
        system_errors_as_user_errors, "network devices of this host", "run the command where netlink is permitted"
    )
    with netlink_errors():
        reader = readers.open_nic()
    try:
        with netlink_errors():
            links = [link for link in reader.links() if _is_port(link)]
        for number, (device, recording) in enumerate(record_nics(reader, links, module=modules), 1):
            progress(f"{device}: network device {number} of {len(links)}")
            write_recording(folder, device, change(recording))
        return len(links)
    finally:
        reader.close()


def _record_rdma(readers: HostReaders, folder: Path, change: _Change, progress: Callable[[str], None]) -> list[str]:
    """Record the RDMA devices by netlink; return the problem if the kernel does not list them: the files remain."""
    reader = readers.open_rdma()
    try:
        recordings = list(record_rdma(reader))
    except OSError as error:
        return [f"RDMA netlink: {error.strerror}"]
    finally:
        reader.close()
    for device, recording in recordings:
        progress(f"{device}: RDMA device")
        write_recording(folder / "rdma", device, change(recording))
    return []


def _is_port(link: NetworkLink) -> bool:
    return is_hardware(link) or is_infiniband_port(link) or link.kind == "bond"


def _keep(recording: dict[str, Any]) -> dict[str, Any]:
    return recording


def _keep_file(_: Path, content: bytes) -> bytes:
    return content


class _HostAnonymiser:
    """Replaces MAC addresses, GUIDs and serial numbers; names of interfaces are kept."""

    def __init__(self, hidden: Pseudonyms) -> None:
        self._hidden = hidden

    def nic(self, recording: dict[str, Any]) -> dict[str, Any]:
        """Return the recording of a network device with other identities."""
        link, module = recording["link"], recording.get("module", {})
        found = {**recording, "link": {**link, "mac": self._mac(link["mac"])} if "mac" in link else link}
        return {**found, "module": replace_private(module, self._private)} if "lower" in module else found

    def rdma(self, recording: dict[str, Any]) -> dict[str, Any]:
        """Return the recording of an RDMA device with another GUID, the same as in its file of sysfs."""
        device = recording["device"]
        guid = device.get("node_guid")
        return {**recording, "device": {**device, "node_guid": self._guid(guid)}} if guid else recording

    def file(self, path: Path, content: bytes) -> bytes:
        """Return the content of a file of sysfs with other identities."""
        text = content.decode("ascii", "replace").strip()
        if path.name == "address" and text:
            return self._mac(text).encode() + b"\n"
        guid = parse_guid(content) if path.name == "node_guid" else None
        if guid:
            other = self._guid(guid)
            return ":".join(other[start : start + 4] for start in range(0, 16, 4)).encode() + b"\n"
        return content

    def _mac(self, text: str) -> str:
        """Replace the address of a link, of any length."""
        try:
            packed = bytes.fromhex(text.replace(":", ""))
        except ValueError:
            return self._hidden.name(text)
        return self._hidden.address(packed).hex(":")

    def _guid(self, digits: str) -> str:
        return self._hidden.digest("guid", bytes.fromhex(digits), 8).hex()

    def _private(self, content: bytes) -> bytes:
        """Replace a serial number or what a maker writes at will, by letters and digits."""
        return self._hidden.digest("serial", content, len(content)).hex()[: len(content)].upper().encode()
