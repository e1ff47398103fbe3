"""The PCI functions of the simulated host, as the files that sysfs has of each: NICs, GPUs, and the bridges above."""

from exporter.simulator.ports import Nic

FULL_LINK, SLOW_LINK, MANAGEMENT_LINK = ("32.0 GT/s PCIe", "16"), ("16.0 GT/s PCIe", "8"), ("16.0 GT/s PCIe", "8")
"""Speed and lanes."""

AER_SIZE = 256
"""Bytes of the file that counts correctable errors."""

_BRIDGE = {"class": "0x060400", "vendor": "0x1000", "device": "0xc030", "uevent": "DRIVER=pcieport"}
_GPU = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "uevent": "DRIVER=nvidia"}

_CORRECTABLE = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF")
_UNCORRECTABLE = ("Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF", "MalfTLP")
"""Of the latter the first; the files of a real host go on."""


def identity(nic: Nic) -> tuple[str, str, str]:
    """Give the driver of a NIC, and the PCI numbers of its vendor and its model."""
    return ("mlx5_core", "0x15b3", "0x1021") if nic.device else ("ice", "0x8086", "0x159b")


def nic_facts(nic: Nic) -> dict[str, str]:
    """Give the files of a NIC's function that never change."""
    driver, vendor, model = identity(nic)
    return {
        "uevent": f"DRIVER={driver}\nPCI_SLOT_NAME={nic.pci}",
        "class": "0x020000",
        "vendor": vendor,
        "device": model,
        "numa_node": str(nic.seat.numa_node),
        "aer_dev_nonfatal": _counted(_UNCORRECTABLE, "TOTAL_ERR_NONFATAL", 0),
        "aer_dev_fatal": _counted(_UNCORRECTABLE, "TOTAL_ERR_FATAL", 0),
        **_link("max", _best(nic)),
    }


def nic_link(nic: Nic, *, slow: bool) -> dict[str, str]:
    """Give the files about the link that a NIC has now."""
    return _link("current", SLOW_LINK if slow else _best(nic))


def nic_errors(nic: Nic) -> str:
    """Give the file of correctable errors: of a bad link, packets that came wrong and were sent again."""
    return _counted(_CORRECTABLE, "TOTAL_ERR_COR", nic.port.counters["pci_errors"])


def bridge_facts(nic: Nic) -> dict[str, str]:
    """Give the files of a bridge above a NIC, or beside it above its GPU."""
    return _BRIDGE | _link("max", _best(nic))


def gpu_facts(nic: Nic) -> dict[str, str]:
    """Give the files of the GPU beside a NIC."""
    return _GPU | {"numa_node": str(nic.seat.numa_node)} | _link("current", FULL_LINK) | _link("max", FULL_LINK)


def _best(nic: Nic) -> tuple[str, str]:
    return FULL_LINK if nic.device else MANAGEMENT_LINK


def _link(word: str, link: tuple[str, str]) -> dict[str, str]:
    speed, lanes = link
    return {f"{word}_link_speed": speed, f"{word}_link_width": lanes}


def _counted(names: tuple[str, ...], total: str, count: int) -> str:
    """Write counts of errors; all there are are of the second kind."""
    counts = dict.fromkeys(names, 0) | {names[1]: count, total: count}
    return "\n".join(f"{name} {count}" for name, count in counts.items())
