"""An InfiniBand fabric beside the simulated one: ibsim, its subnet manager, and an exporter that sweeps it.

All three run with ibsim's library in place of libibumad's devices. There is no traffic on it, and no fault.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Self

from exporter.simulator.monitoring.programs import Program

LEAVES, HOSTS, SPINES = 2, 4, 2
"""Leaves, hosts at each of them, and spines, with a cable from each leaf."""

PORTS = 36
"""Ports of a switch; of them are to hosts those from 1 on, then those to spines."""

FULL = "w=8 s=4"
"""Width and speed of a link, as much as a port of ibsim can have: 12X QDR."""

LIBRARIES = (
    "/usr/lib/*/umad2sim/libumad2sim.so",
    "/usr/lib/umad2sim/libumad2sim.so",
    "/usr/lib64/umad2sim/libumad2sim.so",
)

OTHERS = ("bursts", "lldp", "nccl", "nccl_facts", "nic", "pci", "rdma")
"""Sources that would read this machine."""


class SubnetTools(NamedTuple):
    """Paths of the programs."""

    simulator: str
    manager: str
    library: str

    @classmethod
    def find(cls, path: str) -> Self | None:
        """Look for the programs in a search path; None where one is missing.

        Args:
            path: Folders, as in PATH.
        """
        root = Path("/")
        library = next((str(one) for text in LIBRARIES for one in root.glob(text[1:])), None)
        simulator, manager = shutil.which("ibsim", path=path), shutil.which("opensm", path=path)
        return cls(simulator, manager, library) if simulator and manager and library else None


def net() -> str:
    """Return the fabric, in the form of ibsim's net files."""
    links: dict[str, list[tuple[int, str, int]]] = {}
    for leaf in range(1, LEAVES + 1):
        name = f"ib-leaf-{leaf:02}"
        for place in range(1, HOSTS + 1):
            _link(links, (name, place), (_host((leaf - 1) * HOSTS + place), 1))
        for spine in range(1, SPINES + 1):
            _link(links, (name, HOSTS + spine), (f"ib-spine-{spine:02}", leaf))
    blocks = []
    for name, ports in sorted(links.items()):
        header = f'Hca 1 "{name}"' if " " in name else f'Switch {PORTS} "{name}"'
        blocks.append("\n".join([header, *(f'[{port}] "{peer}"[{far}] {FULL}' for port, peer, far in sorted(ports))]))
    return "\n\n".join(blocks) + "\n"


def _link(links: dict[str, list[tuple[int, str, int]]], one: tuple[str, int], other: tuple[str, int]) -> None:
    links.setdefault(one[0], []).append((one[1], *other))
    links.setdefault(other[0], []).append((other[1], *one))


def _host(number: int) -> str:
    """Return the Node Description of an adapter, as the driver sets it."""
    return f"ib-{number:03} mlx5_0"


def subnet(tools: SubnetTools, folder: Path) -> list[Program]:
    """Return the simulator and the subnet manager, in the order in which they start.

    Args:
        tools: Paths of the programs.
        folder: New folder for their files.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir()
    path = folder / "net"
    path.write_text(net(), encoding="ascii")
    sizes = ("-N", "64", "-S", "16", "-P", "1024", "-L", "1024")
    # It prompts before its sockets are open, and processes the command only after.
    simulator = Program(
        "ibsim",
        (tools.simulator, "-s", *sizes, str(path)),
        0,
        r"sim>[\s\S]*sim>",
        folder / "ibsim.log",
        environment=tuple(_own(tools, folder).items())[:1],
        console="Verbose 0\n",
    )
    manager = Program(
        "opensm",
        (tools.manager, "-d2", "-f", str(folder / "opensm.log")),  # flushes its log
        0,
        "SUBNET UP",
        folder / "opensm.log",
        environment=(*_own(tools, folder).items(), ("OSM_TMP_DIR", str(folder)), ("OSM_CACHE_DIR", str(folder))),
        folder=folder,
    )
    return [simulator, manager]


def exporter(tools: SubnetTools, folder: Path, address: str, interval: str) -> Program:
    """Return the exporter that sweeps the subnet, from its second host.

    Args:
        tools: Paths of the programs.
        folder: That of `subnet`.
        address: Address to listen on.
        interval: Time between sweeps.
    """
    sources: dict[str, object] = {name: {"enabled": False} for name in OTHERS}
    sources["ibfabric"] = {"enabled": True, "interval": interval}
    config = folder / "exporter.yaml"
    config.write_text(json.dumps({"host": "infiniband", "sources": sources}, indent=1), encoding="utf-8")
    own = _own(tools, folder, host=_host(2))
    own["PYTHONPATH"] = os.pathsep.join(_present([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]))
    words = ("-m", "exporter", "run", "--config.file", str(config), "--web.listen-address", address)
    return Program(
        "infiniband",
        (sys.executable, *words),
        int(address.rpartition(":")[2]),
        "/-/healthy",
        folder / "exporter.log",
        environment=tuple(own.items()),
        folder=folder,
    )


def _own(tools: SubnetTools, folder: Path, host: str = "") -> dict[str, str]:
    """Return the environment of a program in the fabric, whose socket is named for the folder."""
    name = f"fabric-{blake2b(str(folder.resolve()).encode(), digest_size=8).hexdigest()}"
    return {"IBSIM_SOCKNAME": name, "LD_PRELOAD": tools.library, "SIM_HOST": host or _host(1)}


def _present(texts: Iterable[str]) -> list[str]:
    return [one for one in texts if one]
