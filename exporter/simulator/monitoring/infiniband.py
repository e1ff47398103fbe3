"""An InfiniBand fabric beside the simulated one: ibsim, its subnet manager, and an exporter that sweeps it.

All three run with ibsim's library in place of libibumad's devices. There is no traffic on it, and no fault.
"""

import json
import os
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Self

from exporter.config.units import at_least
from exporter.simulator.monitoring.programs import Program

LEAVES, HOSTS, SPINES = 2, 4, 2
"""Leaves, hosts at each of them, and spines, with a cable from each leaf."""

PORTS = 36
"""Ports of a switch; of them are to hosts those from 1 on, then those to spines."""

FULL = "w=8 s=4"
"""Width and speed of a link, as much as a port of ibsim can have: 12X QDR."""

LIBRARIES = (
    "usr/lib/*/umad2sim/libumad2sim.so",
    "usr/lib/umad2sim/libumad2sim.so",
    "usr/lib64/umad2sim/libumad2sim.so",
)

OTHERS = ("bursts", "hostcheck", "lldp", "nccl", "nccl_facts", "nic", "pci", "rdma")
"""Sources that would read this machine."""

LEAST_INTERVAL = 3.0
"""Seconds: the least interval of the source `ibfabric`, as unresponsive nodes take that long."""


class SubnetTools(NamedTuple):
    """Paths of the programs."""

    simulator: str
    manager: str
    library: str

    @classmethod
    def of(cls, simulator: str, manager: str) -> Self | None:
        """Return the programs with ibsim's library; None where one is missing, whose path is empty."""
        library = next((str(one) for text in LIBRARIES for one in Path("/").glob(text)), None)
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
        environment=(("IBSIM_SOCKNAME", _socket(folder)),),
        console="Verbose 0\n",
    )
    manager = Program(
        "opensm",
        (tools.manager, "-d2", "-f", str(folder / "opensm.log")),  # flushes its log
        0,
        "SUBNET UP",
        folder / "opensm.log",
        environment=(*_at_host(tools, folder, 1), ("OSM_TMP_DIR", str(folder)), ("OSM_CACHE_DIR", str(folder))),
        folder=folder,
    )
    return [simulator, manager]


def exporter_config(folder: Path, interval: str) -> Path:
    """Write the configuration of the exporter that sweeps the subnet, and return its path.

    Args:
        folder: That of `subnet`.
        interval: Time between sweeps, as a duration; a shorter one than the source can have becomes the least.

    Raises:
        OSError: The file cannot be written.
    """
    sources: dict[str, object] = {name: {"enabled": False} for name in OTHERS}
    sources["ibfabric"] = {"enabled": True, "interval": at_least(interval, LEAST_INTERVAL)}
    path = folder / "exporter.yaml"
    path.write_text(json.dumps({"host": "infiniband", "sources": sources}, indent=1), encoding="utf-8")
    return path


def in_subnet(exporter: Program, tools: SubnetTools, folder: Path) -> Program:
    """Return an exporter as a program at the second host: the library writes files where it runs."""
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = (*_at_host(tools, folder, 2), ("PYTHONPATH", os.pathsep.join(paths)))
    return replace(exporter, environment=environment, folder=folder)


def _at_host(tools: SubnetTools, folder: Path, number: int) -> tuple[tuple[str, str], ...]:
    """Return the environment of a program at a host of the fabric."""
    return ("IBSIM_SOCKNAME", _socket(folder)), ("LD_PRELOAD", tools.library), ("SIM_HOST", _host(number))


def _socket(folder: Path) -> str:
    """Return the name of the simulator's socket, which is not in the file system: another one for each folder."""
    return f"fabric-{blake2b(str(folder.resolve()).encode(), digest_size=8).hexdigest()}"
