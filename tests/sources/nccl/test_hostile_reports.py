"""What one process of a job reports takes no timings of other processes with it on the way to a collector."""

import json
import socket
from pathlib import Path

import pytest

from exporter.core.definition import Context
from exporter.core.source import Host
from exporter.daemon.relay import batches
from exporter.nccl.batch_codec import decode, encode
from exporter.sources.nccl.metrics import STREAMS
from exporter.sources.nccl.options import NcclOptions
from exporter.sources.nccl.source import DEFINITION
from tests.sources.nccl.test_timing_socket import encoded

NOWHERE = Path("/nonexistent")
USUAL = [1, "AllReduce", 41, 1 << 20, 350, 49_000_000, "gpu"]
ENTRY = {
    "collective_seq_id": 1,
    "record_id": 0,
    "pg_id": 0,
    "process_group": ["0", "default_pg"],
    "profiling_name": "nccl:all_reduce",
    "state": "completed",
    "duration_ms": 0.4,
    "input_sizes": [[1024]],
    "input_dtypes": ["Float"],
    "is_p2p": False,
}
GROUPS = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}


def inspector_line(**changes):
    collective = {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 1024, "coll_exec_time_us": 400}
    header = {"id": "0x1", "rank": 1, "n_ranks": 8, "nnodes": 1}
    return json.dumps({"header": header, "metadata": {"pid": 2}, "coll_perf": {**collective, **changes}}).encode()


def dump(**changes):
    return json.dumps({"version": "2.5", "pg_config": GROUPS, "entries": [{**ENTRY, **changes}]}).encode()


DATAGRAMS = {
    "the highest number": encoded(pid=1, ops=[[1, "AllReduce", (1 << 63) - 1, 8, 5, 1, "gpu"]]),
    "the most bytes of each of eight ranks": encoded(pid=1, ops=[[1, "AllGather", 1, 1 << 50, 5, 1, "gpu"]]),
    "a long name of its GPU": encoded(pid=1, gpu={"uuid": "x" * 128}),
    "the highest counts": encoded(pid=1, counts=[[1, "AllReduce", (1 << 63) - 1, (1 << 63) - 1]]),
    "a day": encoded(pid=1, ops=[[1, "AllReduce", 1, 8, 86_400_000_000, 1, "gpu", 86_400_000_000]]),
}
LINES = {
    "the highest number": inspector_line(coll_sn=(1 << 63) - 1),
    "the most bytes of each of eight ranks": inspector_line(coll="ReduceScatter", coll_msg_size_bytes=1 << 50),
    "a fraction of a microsecond": inspector_line(coll_exec_time_us=0.01),
}
DUMPS = {
    "the highest number": dump(collective_seq_id=(1 << 63) - 1),
    "more than a day": dump(duration_ms=1e9),
    "more bytes than there are": dump(input_sizes=[[1 << 40, 1 << 40]]),
}


async def published(tmp_path, datagrams=(), files=()):
    """Return job and times of what a host publishes, after datagrams and files."""
    folders = {name: tmp_path / name for name in ("run", "inspector", "recorder")}
    for folder in folders.values():
        (folder / "123").mkdir(parents=True)
    path = str(folders["run"] / "timing.sock")
    options = NcclOptions(inspector=(str(folders["inspector"]),), socket=path, recorder=(str(folders["recorder"]),))
    (source,) = DEFINITION.build(options, Context(Host("gpu-001", NOWHERE, NOWHERE)))
    try:
        await source.applies()
        await source.read()
        for name, data in files:
            (folders[name] / "123" / ("rank_0.json" if name == "recorder" else "gpu-001.log")).write_bytes(data + b"\n")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(path)
            for data in datagrams:
                sender.send(data)
        found = []
        for _ in range(3):  # a dump is read when it is complete
            tables = {table.schema: table for table in (await source.read()).tables}
            found += [
                (batch.job, one.microseconds)
                for made in batches(tables[STREAMS], "gpu-001")
                for batch in map(decode, encode(made))
                for _, operations in batch.streams
                for one in operations
            ]
        return found
    finally:
        await source.close()


@pytest.mark.parametrize("name", DATAGRAMS)
async def test_a_datagram_at_the_limits_takes_no_other_with_it(name, tmp_path):
    usual = encoded(pid=2, rank=4, ops=[USUAL])
    assert ("123", 350.0) in await published(tmp_path, [DATAGRAMS[name], usual])


@pytest.mark.parametrize(
    ("feed", "data"),
    [*(("inspector", data) for data in LINES.values()), *(("recorder", data) for data in DUMPS.values())],
    ids=[*(f"inspector: {name}" for name in LINES), *(f"recorder: {name}" for name in DUMPS)],
)
async def test_a_file_at_the_limits_takes_no_datagram_with_it(feed, data, tmp_path):
    usual = encoded(pid=2, rank=4, ops=[USUAL])
    assert ("123", 350.0) in await published(tmp_path, [usual], [(feed, data)])
