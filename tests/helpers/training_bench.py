"""Helpers of the tests of feeds: a source with feeds in a folder, procfs files, Inspector lines, and datagrams."""

import asyncio
import json
import os
import socket
from contextlib import asynccontextmanager
from pathlib import Path

from exporter.core.definition import Context
from exporter.core.source import Host
from exporter.sources.nccl.metrics import COLLECTIVES, RANKS, STREAMS
from exporter.sources.nccl.options import NcclOptions
from exporter.sources.nccl.source import DEFINITION

RANK_FACTS = ("host", "pid", "ranks", "nodes", "gpu", "nic", "host_pid", "job_pod")


class Bench:
    """A source with a folder per feed, and its last reading."""

    def __init__(self, folder, *feeds, procfs=None, sysfs=None, **options):
        self.folder = folder
        places = {name: (str(folder / name),) for name in ("inspector", "recorder", "comma", "xpu_timer")}
        self.host = Host("gpu-001", sysfs or folder / "sys", procfs or folder / "proc")
        chosen = {name: place for name, place in places.items() if name in feeds}
        chosen["inspector"] = places["inspector"]
        self.socket = folder / "run" / "timing.sock"
        chosen["socket"] = str(self.socket) if "socket" in feeds else False
        for name in (*feeds, "inspector"):
            (folder / {"socket": "run"}.get(name, name)).mkdir(exist_ok=True)
        (self.source,) = DEFINITION.build(NcclOptions(**chosen, **options), Context(self.host))

    async def read(self):
        self.reading = await self.source.read()
        self.tables = {table.schema: table for table in self.reading.tables}
        return self.tables

    def cells(self, schema, ending):
        table = self.tables.get(schema)
        return {} if table is None else dict(zip(table.rows.keys, table.values(ending), strict=True))

    def counts(self, schema, ending):
        return {key[0]: count for key, count in self.cells(schema, ending).items() if count}

    def ranks(self):
        """Return the known facts of each rank."""
        return {
            key: {name: value for name, value in zip(RANK_FACTS, facts, strict=True) if value}
            for key, facts in self.cells(RANKS, "rank_info").items()
        }

    def collectives(self):
        return self.cells(COLLECTIVES, "collectives_total")

    def operations(self):
        return {key: samples.taken for key, samples in self.cells(STREAMS, "operations").items()}

    def failures(self):
        return {(one.device, one.reason) for one in self.reading.failures}


@asynccontextmanager
async def bench(folder, *feeds, **options):
    """Provide a bench whose source was read once, so that later content is new."""
    made = Bench(folder, *feeds, **options)
    try:
        assert await made.source.applies()
        await made.read()
        yield made
    finally:
        await made.source.close()


def line(rank=0, n_ranks=8, comm="0x1", sequence=0, us=100, kind="AllReduce", size=1024, **more):
    """Return a line of Inspector."""
    values = {
        "header": {"id": comm, "rank": rank, "n_ranks": n_ranks, "nnodes": 1},
        "metadata": {"pid": 1},
        "coll_perf": {"coll": kind, "coll_sn": sequence, "coll_msg_size_bytes": size, "coll_exec_time_us": us},
        **more,
    }
    return json.dumps(values).encode() + b"\n"


def append(path, *lines):
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(lines))


def datagram(number=0, **changes):
    """Return a datagram of the hook."""
    values = {
        "v": 1,
        "n": number,
        "pid": 17,
        "host": "gpu-001",
        "clock": [50_000_000, 1_790_000_000_000_000],
        "env": {"SLURM_JOB_ID": "123", "RANK": "3"},
        "gpu": {"uuid": "1d6f", "pci": "0000:c8:00.0"},
        "rank": 3,
        "world": 16,
        "groups": [["00ff00ff00ff00ff", "default_pg", 3, 16, 2], ["a0a0a0a0a0a0a0a0", "tp", 1, 8, 1]],
        "ops": [[1, "AllReduce", 41, 1048576, 350, 49_000_000, "gpu"]],
    }
    return json.dumps({**values, **changes}).encode()


async def send(path, *datagrams):
    """Send datagrams, and let the event loop receive them."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for one in datagrams:
            sender.sendto(one, str(path))
            for _ in range(3):
                await asyncio.sleep(0)  # the socket holds ten datagrams by default, then sending blocks


def process(procfs, host_pid, *, inner=None, uid=None, cgroup="", environment=None):
    """Create the procfs files of a process."""
    folder = Path(procfs) / str(host_pid)
    folder.mkdir(parents=True)
    numbers = f"{host_pid}" if inner is None else f"{host_pid}\t{inner}"
    user = os.getuid() if uid is None else uid
    (folder / "status").write_text(f"Name:\tpython\nUid:\t{user}\t{user}\t{user}\t{user}\nNSpid:\t{numbers}\n")
    (folder / "cgroup").write_text(f"0::{cgroup or '/'}\n")
    if environment is not None:
        (folder / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in environment.items()))
    return folder
