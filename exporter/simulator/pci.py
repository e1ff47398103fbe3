"""The PCI functions of the simulated host, as files of sysfs: NICs, GPUs, and the bridges above them."""

from types import MappingProxyType

from exporter.simulator.ports import Nic

FULL_LINK, SLOW_LINK, MANAGEMENT_LINK = ("32.0 GT/s PCIe", "16"), ("16.0 GT/s PCIe", "8"), ("16.0 GT/s PCIe", "8")
"""Speed and lanes."""

AER_SIZE = 256
"""Size in bytes of the file of correctable errors."""

_BRIDGE = MappingProxyType({"class": "0x060400", "vendor": "0x1000", "device": "0xc030", "uevent": "DRIVER=pcieport"})
_GPU = MappingProxyType({"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "uevent": "DRIVER=nvidia"})

_CORRECTABLE = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF")
_UNCORRECTABLE = ("Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF", "MalfTLP")
"""Names of AER counters; of the uncorrectable ones only the first."""


def identity(nic: Nic) -> tuple[str, str, str]:
    """Return the driver of a NIC, its PCI vendor ID and its device ID."""
    return ("mlx5_core", "0x15b3", "0x1021") if nic.device else ("ice", "0x8086", "0x159b")


def nic_facts(nic: Nic) -> dict[str, str]:
    """Return the constant files of a NIC's function."""
    driver, vendor, model = identity(nic)
    return {
        "uevent": f"DRIVER={driver}\nPCI_SLOT_NAME={nic.pci}",
        "class": "0x020000",
        "vendor": vendor,
        "device": model,
        "numa_node": str(nic.slot.numa_node),
        "aer_dev_nonfatal": _aer_file(_UNCORRECTABLE, "TOTAL_ERR_NONFATAL", 0),
        "aer_dev_fatal": _aer_file(_UNCORRECTABLE, "TOTAL_ERR_FATAL", 0),
        **_link("max", _best_link(nic)),
    }


def nic_link(nic: Nic, *, slow: bool) -> dict[str, str]:
    """Return the files of the current link of a NIC."""
    return _link("current", SLOW_LINK if slow else _best_link(nic))


def nic_errors(nic: Nic) -> str:
    """Return the file of correctable errors; those of a bad link are packets that were corrupted and sent again."""
    return _aer_file(_CORRECTABLE, "TOTAL_ERR_COR", nic.port.counters["pci_errors"])


def bridge_facts(nic: Nic) -> dict[str, str]:
    """Return the files of a bridge above a NIC or its GPU."""
    return _BRIDGE | _link("max", _best_link(nic))


def gpu_facts(nic: Nic) -> dict[str, str]:
    """Return the files of the GPU of a NIC."""
    return _GPU | {"numa_node": str(nic.slot.numa_node)} | _link("current", FULL_LINK) | _link("max", FULL_LINK)


def _best_link(nic: Nic) -> tuple[str, str]:
    return FULL_LINK if nic.device else MANAGEMENT_LINK


def _link(prefix: str, link: tuple[str, str]) -> dict[str, str]:
    speed, lanes = link
    return {f"{prefix}_link_speed": speed, f"{prefix}_link_width": lanes}


def _aer_file(names: tuple[str, ...], total: str, count: int) -> str:
    """Return an AER file; all errors are of the second kind."""
    counts = dict.fromkeys(names, 0) | {names[1]: count, total: count}
    return "\n".join(f"{name} {count}" for name, count in counts.items())
