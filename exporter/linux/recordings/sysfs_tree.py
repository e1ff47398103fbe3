"""Copies from sysfs what the sources read of this host's ports: RDMA devices, network devices, and their PCI functions.

The copy has the layout of sysfs, with relative links, so that it can be moved.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from exporter.linux.pci import ADDRESS

MAX_FILE_SIZE = 64 * 1024
"""Bytes of a file that are copied; attributes have at most a page."""

CLASSES = MappingProxyType(
    {
        "net": ("address", "dev_port", "phys_port_name", "speed"),
        "infiniband": (
            "node_guid",
            "node_type",
            "hca_type",
            "board_id",
            "fw_ver",
            "hw_counters/*",
            "ports/*/state",
            "ports/*/phys_state",
            "ports/*/rate",
            "ports/*/link_layer",
            "ports/*/counters/*",
            "ports/*/hw_counters/*",
            "ports/*/gid_attrs/ndevs/0",
        ),
    }
)
"""Patterns of the files of a device, by its class."""

CHARACTER_DEVICES = MappingProxyType(
    {"infiniband_verbs": ("uverbs*",), "infiniband_mad": ("umad*", "issm*"), "misc": ("rdma_cm",)}
)
"""Names of the character devices of RDMA, by class."""

CHARACTER_DEVICE_FILES = ("dev", "ibdev", "port")

BUS_DEVICE_FILES = (
    "uevent",
    "class",
    "vendor",
    "device",
    "subsystem_vendor",
    "subsystem_device",
    "numa_node",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
    "aer_dev_correctable",
    "aer_dev_nonfatal",
    "aer_dev_fatal",
    "power/runtime_status",
    "net/*/dev_port",
    "net/*/phys_port_name",
)
"""Files of the device of a bus that a port belongs to, and of the PCI functions above it."""

GPU_FILES = ("class", "vendor")
_GPU_CLASSES = (b"0x03", b"0x12")  # display controllers, processing accelerators

_NO_VALUE = frozenset({errno.ENOENT, errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP})
"""Errors of an attribute that was removed, or has no value, such as the speed of a link that is down."""

Change = Callable[[Path, bytes], bytes]
"""Returns the content that is written for a file, given its path below the root of sysfs."""


class SysfsCopy:
    """Copies devices from one root of sysfs to another.

    Attributes:
        files: Number of the files copied so far.
        problems: Files that exist, have a value, and could not be read.
    """

    def __init__(self, sysfs: Path, folder: Path, change: Change) -> None:
        """Copy nothing yet; `folder` is the root of the copy."""
        self.files = 0
        self.problems: list[str] = []
        self._sysfs = Path(os.path.realpath(sysfs))
        self._folder = folder
        self._change = change

    def devices(self, class_name: str) -> list[str]:
        """Return the names of the devices of a class, without software devices; none if there is no such class."""
        with suppress(FileNotFoundError):
            found = sorted((self._sysfs / "class" / class_name).iterdir())
            return [one.name for one in found if class_name != "net" or (one / "device").exists()]
        return []

    def copy_device(self, class_name: str, name: str) -> None:
        """Copy a device of a class, the device of a bus that it belongs to, and the PCI functions above that.

        Raises:
            OSError: The copy cannot be written.
        """
        device = self._sysfs / "class" / class_name / name
        self._copy_link(device)
        real = self._copy_files(device, CLASSES[class_name])
        self._copy_link(real / "device")
        of_bus = self._copy_files(real / "device", BUS_DEVICE_FILES)
        for function in self._functions_above(of_bus):
            self._copy_files(function, BUS_DEVICE_FILES)

    def copy_character_devices(self) -> None:
        """Copy the character devices of RDMA; the folder of a class without any shows that the others are known.

        Raises:
            OSError: The copy cannot be written.
        """
        (self._folder / "class" / "misc").mkdir(parents=True, exist_ok=True)
        for class_name, patterns in CHARACTER_DEVICES.items():
            for pattern in patterns:
                for device in sorted((self._sysfs / "class" / class_name).glob(pattern)):
                    self._copy_link(device)
                    self._copy_files(device, CHARACTER_DEVICE_FILES)

    def copy_gpus(self) -> None:
        """Copy class and vendor of the PCI functions that may be GPUs.

        Raises:
            OSError: The copy cannot be written.
        """
        for function in self._functions_of_bus():
            if (self._read(function / "class") or b"").startswith(_GPU_CLASSES):
                self._copy_link(function)
                self._copy_files(function, GPU_FILES)

    def _functions_of_bus(self) -> list[Path]:
        """List the PCI functions; none without a PCI bus."""
        folder = self._sysfs / "bus" / "pci" / "devices"
        try:
            return sorted(folder.iterdir())
        except OSError as error:
            if error.errno != errno.ENOENT:
                self.problems.append(f"{folder}: {error.strerror}")
            return []

    def _functions_above(self, device: Path) -> Iterator[Path]:
        """Yield the PCI functions that a device of a bus is or is below, without those of other roots."""
        inside = [device, *device.parents]
        yield from (one for one in inside if ADDRESS.fullmatch(one.name) and one.is_relative_to(self._sysfs))

    def _copy_files(self, folder: Path, patterns: tuple[str, ...]) -> Path:
        """Copy the files of a folder that match; return its real path."""
        real = Path(os.path.realpath(folder))
        if real.is_relative_to(self._sysfs):
            for pattern in patterns:
                for path in real.glob(pattern):
                    self._copy_file(path)
            physical = real / "physfn"
            if physical.exists():
                self._copy_link(physical)
                self._copy_files(physical, GPU_FILES)
        return real

    def _copy_file(self, path: Path) -> None:
        place = path.relative_to(self._sysfs)
        target = self._folder / place
        if target.exists() or not path.is_file():
            return
        content = self._read(path)
        if content is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self._change(place, content))
            self.files += 1

    def _read(self, path: Path) -> bytes | None:
        """Return the content of a file of sysfs; None without a value, or if it cannot be read, which is a problem."""
        try:
            with path.open("rb") as file:
                return file.read(MAX_FILE_SIZE)
        except OSError as error:
            if error.errno not in _NO_VALUE:
                self.problems.append(f"{path}: {error.strerror}")
            return None

    def _copy_link(self, path: Path) -> None:
        """Copy a link within sysfs; what it leads to is created as a folder."""
        real = Path(os.path.realpath(path))
        if not path.is_symlink() or not real.is_relative_to(self._sysfs):
            return
        link = self._folder / path.relative_to(self._sysfs)
        target = self._folder / real.relative_to(self._sysfs)
        target.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(target, link.parent))
