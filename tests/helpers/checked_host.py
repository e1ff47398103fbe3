"""Trees of sysfs and procfs, and recordings of NICs, of a host whose configuration is checked; each a test may break.

A host has four RoCE adapters below two PCI switches, and two GPUs; files are as Linux 6.8 prints them.
"""

import json
from pathlib import Path

from tests.linux.lldp.test_frames import networkd_file
from tests.linux.lldp.test_peer_settings import LEAF_FRAME

ADAPTERS = {"mlx5_0": "0000:17:00.0", "mlx5_1": "0000:18:00.0", "mlx5_2": "0000:97:00.0", "mlx5_3": "0000:98:00.0"}
GPUS = {"0000:19:00.0": "0000:15:01.0", "0000:99:00.0": "0000:95:01.0"}
BRIDGES = {
    "0000:17:00.0": "0000:15:01.0",
    "0000:18:00.0": "0000:15:01.0",
    "0000:97:00.0": "0000:95:01.0",
    "0000:98:00.0": "0000:95:01.0",
    **GPUS,
}


DEVICE_CONTROL = 5 << 12 | 1 << 5 | 1 << 4
"""Of PCI Express: read requests of 4096 bytes, packets of 256, relaxed ordering."""

SOURCE_VALIDATION = 1 << 0
"""Of ACS: no redirect."""


def config_space(control: int, acs: int) -> bytes:
    """Return a configuration space as the specification has it: power management, PCI Express, AER, ACS."""
    space = bytearray(4096)
    space[0x06] = 1 << 4  # has capabilities
    space[0x34] = 0x40
    space[0x40:0x42] = (0x01, 0x60)
    space[0x60:0x62] = (0x10, 0x00)
    space[0x68:0x6A] = control.to_bytes(2, "little")
    space[0x100:0x104] = (0x150 << 20 | 1 << 16 | 0x0001).to_bytes(4, "little")
    space[0x150:0x154] = (1 << 16 | 0x000D).to_bytes(4, "little")
    space[0x156:0x158] = acs.to_bytes(2, "little")
    return bytes(space)


class CheckedHost:
    """Writes a host that passes all checks that its files allow."""

    def __init__(self, folder: Path) -> None:
        self.sysfs, self.procfs, self.recordings = folder / "sys", folder / "proc", folder / "recordings"
        self.nccl_conf, self.lldp, self.dev = folder / "nccl.conf", folder / "lldp", folder / "dev"
        for made in (self.sysfs, self.procfs, self.recordings, self.lldp, self.dev / "infiniband"):
            made.mkdir(parents=True)
        for place, (device, address) in enumerate(ADAPTERS.items()):
            self._function(address, "0x15b3", "0x020000")
            self._adapter(device, address, place)
            self.node(f"class/infiniband_verbs/uverbs{place}", ibdev=device)
        self.node("class/misc/rdma_cm")
        for address in GPUS:
            self._function(address, "0x10de", "0x030200")
        self.write_sys("devices/system/node/has_cpu", "0-1")
        self.write_sys("devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance")
        self.write_sys("module/nvidia_peermem/version", "550.90")
        self.write_proc("sys/kernel/osrelease", "6.8.0-45-generic")
        self.write_proc("sys/kernel/numa_balancing", "0")
        self.write_proc("cpuinfo", "flags : fpu vme")
        self.write_proc("modules", "nvidia_peermem 16384 0 - Live 0x0")
        self.process(1)
        self.process(4242, NCCL_DEBUG="WARN", RANK="0", WORLD_SIZE="8", SLURM_JOB_ID="77")

    @property
    def arguments(self) -> list[str]:
        """The flags by which a command reads this host."""
        flags = {
            "sysfs": self.sysfs,
            "procfs": self.procfs,
            "nic-replay": self.recordings,
            "nccl-conf": self.nccl_conf,
            "lldp": self.lldp,
            "dev": self.dev,
        }
        return [part for name, path in flags.items() for part in (f"--path.{name}", str(path))]

    def write_sys(self, path: str, text: str) -> None:
        """Write a file of sysfs."""
        _write(self.sysfs / path, text)

    def write_proc(self, path: str, text: str) -> None:
        """Write a file of procfs."""
        _write(self.procfs / path, text)

    def function(self, address: str) -> str:
        """Return the folder of a PCI function below the root of sysfs."""
        bridge = BRIDGES[address]
        return f"devices/pci{bridge[:7]}/{bridge}/{address}"

    def node(self, entry: str, **attributes: str) -> None:
        """Write a character device of sysfs and its node, which is /dev/null."""
        for name, text in {"dev": "1:3", **attributes}.items():
            self.write_sys(f"{entry}/{name}", text)
        (self.dev / "infiniband" / Path(entry).name).symlink_to("/dev/null")

    def config(self, folder: str, *, control: int = DEVICE_CONTROL, acs: int = 0, size: int = 4096) -> None:
        """Write the configuration space of a PCI function: its device control and ACS control; root sees all 4096."""
        (self.sysfs / folder / "config").write_bytes(config_space(control, acs)[:size])

    def port(self, device: str, **files: str) -> None:
        """Change files of the port of an RDMA device; `__` is a slash."""
        for name, text in files.items():
            self.write_sys(
                f"{self.function(ADAPTERS[device])}/infiniband/{device}/ports/1/{name.replace('__', '/')}", text
            )

    def record(self, netdev: str, **answers: object) -> None:
        """Change answers of a network device."""
        file = self.recordings / f"{netdev}.json"
        before = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(before | answers))

    def process(self, pid: int, *, memlock: str = "unlimited", capabilities: int = 0, **environment: str) -> None:
        """Write a process."""
        self.write_proc(f"{pid}/environ", "".join(f"{name}={value}\0" for name, value in environment.items()))
        self.write_proc(f"{pid}/comm", "python")
        limit = f"Max locked memory         {memlock:<20} {memlock:<20} bytes"
        self.write_proc(
            f"{pid}/limits", f"Limit                     Soft Limit           Hard Limit           Units\n{limit}"
        )
        self.write_proc(f"{pid}/status", f"Name:\tpython\nCapEff:\t{capabilities:016x}")

    def _function(self, address: str, vendor: str, kind: str) -> None:
        folder = self.function(address)
        node = "0" if BRIDGES[address].startswith("0000:15") else "1"
        for name, text in {
            "vendor": vendor,
            "class": kind,
            "numa_node": node,
            "local_cpulist": "0-31" if node == "0" else "32-63",
            "current_link_speed": "32.0 GT/s PCIe",
            "max_link_speed": "32.0 GT/s PCIe",
            "current_link_width": "16",
            "max_link_width": "16",
            "device": "0x1021" if vendor == "0x15b3" else "0x2330",
            "uevent": "DRIVER=mlx5_core",
            "msi_irqs/57": "msix",
        }.items():
            self.write_sys(f"{folder}/{name}", text)
        self.write_proc("irq/57/effective_affinity_list", "3,40")
        bridge = f"devices/pci{BRIDGES[address][:7]}/{BRIDGES[address]}"
        self.write_sys(f"{bridge}/max_link_speed", "32.0 GT/s PCIe")
        self.write_sys(f"{bridge}/max_link_width", "16")
        self.config(bridge, acs=SOURCE_VALIDATION)
        self.config(folder)
        group = self.sysfs / "kernel/iommu_groups/7"
        _write(group / "type", "identity")
        (self.sysfs / folder / "iommu_group").symlink_to(group)
        listed = self.sysfs / "bus/pci/devices" / address
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.symlink_to(self.sysfs / folder)

    def _adapter(self, device: str, address: str, place: int) -> None:
        netdev, folder = f"rail{place}", self.function(address)
        for name, text in {
            "fw_ver": "28.39.1002",
            "board_id": "MT_0000000838",
            "node_type": "1: CA",
            "ports/1/state": "4: ACTIVE",
            "ports/1/phys_state": "5: LinkUp",
            "ports/1/link_layer": "Ethernet",
            "ports/1/rate": "400 Gb/sec (4X NDR)",
            "ports/1/lid": "0x0",
            "ports/1/sm_lid": "0x0",
            "ports/1/pkeys/0": "0xffff",
        }.items():
            self.write_sys(f"{folder}/infiniband/{device}/{name}", text)
        mapped = f"0000:0000:0000:0000:0000:ffff:0a00:{place:02x}05"
        self.gids(
            device, [("fe80::1", "IB/RoCE v1"), ("fe80::1", "RoCE v2"), (mapped, "IB/RoCE v1"), (mapped, "RoCE v2")]
        )
        self.write_sys(f"{folder}/net/{netdev}/mtu", "9000")
        for kind, name in (("infiniband", device), ("net", netdev)):
            link = self.sysfs / "class" / kind / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(self.sysfs / folder / kind / name)
            (self.sysfs / folder / kind / name / "device").symlink_to(self.sysfs / folder)
        for role in ("roce_np", "roce_rp"):
            self.write_sys(f"{folder}/net/{netdev}/ecn/{role}/enable/3", "1")
        self.write_sys(f"{folder}/net/{netdev}/ecn/roce_np/cnp_dscp", "48")
        self.write_sys(f"{folder}/net/{netdev}/ecn/roce_np/cnp_802p_prio", "6")
        self.record(
            netdev,
            link={"ifindex": 2 + place, "carrier": True, "mtu": 9000, "parent_dev_name": address},
            link_modes={"speed_bits_per_second": 400 * 10**9, "max_speed_bits_per_second": 400 * 10**9},
            pause={"receive": False, "transmit": False},
            dcb={"pfc": [3], "dscp_rules": True},
        )
        (self.lldp / str(2 + place)).write_bytes(networkd_file(LEAF_FRAME))
        for setting, value in (("rp_filter", "2"), ("arp_ignore", "1"), ("arp_announce", "2")):
            self.write_proc(f"sys/net/ipv4/conf/all/{setting}", "0")
            self.write_proc(f"sys/net/ipv4/conf/{netdev}/{setting}", value)
        routes = self.procfs / "net/route"
        head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        before = routes.read_text() if routes.exists() else head
        self.write_proc("net/route", f"{before}{netdev}\t0000000A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n")

    def gids(self, device: str, entries: list[tuple[str, str]]) -> None:
        """Write the GID table of a device: addresses and types by index."""
        for index, (address, kind) in enumerate(entries):
            self.port(device, **{f"gids__{index}": address, f"gid_attrs__types__{index}": kind})


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text.rstrip(chr(10))}\n")
