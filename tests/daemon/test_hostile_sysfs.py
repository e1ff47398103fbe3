"""The exporter as a process on trees of sysfs that no kernel makes: each device that is sound is read."""

import os
import shutil

import pytest

from exporter.linux.infiniband import MAX_DEVICES, limit_devices
from tests.daemon.test_interruptions import host, running, until  # noqa: F401  # a fixture

BYTES = "fabric_rdma_receive_bytes_total"
FAILURES = "fabric_source_failures_total"
FILES = ("counters/port_rcv_data", "hw_counters/out_of_buffer", "state", "rate")
SOUND = {f"mlx5_{number}" for number in (0, 3, 4, 5, 6, 7)}


def of_port(host, device):  # noqa: F811  # the fixture's value
    return host.sysfs / "class/infiniband" / device / "ports/1"


def with_pipes(host):  # noqa: F811
    for name in FILES:
        (of_port(host, "mlx5_1") / name).unlink()
        os.mkfifo(of_port(host, "mlx5_1") / name)
    return {("mlx5_1", "espipe")}


def with_endless_files(host):  # noqa: F811
    for name in FILES:
        with (of_port(host, "mlx5_1") / name).open("wb") as file:
            file.write(b"9" * 100_000)
            file.truncate(1 << 40)
    return {("mlx5_1", "malformed")}


def with_links_to_themselves(host):  # noqa: F811
    folder = host.sysfs / "class/infiniband"
    (folder / "loop").symlink_to("loop")
    (folder / "self").symlink_to(".")
    (host.sysfs / "class/net/loop").symlink_to("loop")
    for broken, target in [(of_port(host, "mlx5_1") / "counters", "counters"), (folder / "mlx5_2/ports", "../..")]:
        shutil.rmtree(broken)
        broken.symlink_to(target)
    return {("loop", "eloop"), ("self", "enoent")}


def with_many_devices(host):  # noqa: F811
    for number in range(20_000):
        (host.sysfs / f"class/infiniband/rogue_{number}").symlink_to("nowhere")
    return {("", "too_many")}


@pytest.mark.parametrize("spoil", [with_pipes, with_endless_files, with_links_to_themselves, with_many_devices])
async def test_what_is_no_file_of_sysfs_affects_only_its_own_device(tmp_path, host, spoil):  # noqa: F811
    failures = spoil(host)
    async with running(tmp_path, host, sources={"rdma": {"interval": "2s"}}) as (process, scrape):

        def is_read(page):
            devices = {dict(labels)["device"] for _, labels in page.all(BYTES)}
            seen = {
                (of.get("device", ""), of["reason"])
                for of in (dict(labels) for _, labels in page.all(FAILURES, source="rdma"))
            }
            return devices >= SOUND and seen >= failures

        page = await until(scrape, is_read)
        assert page.value("process_resident_memory_bytes") < 200 * 2**20
        assert "Traceback" not in process.log


def test_of_too_many_devices_those_known_are_kept():
    names = sorted(f"dev{number:05}" for number in range(3 * MAX_DEVICES))
    known = {names[-1], names[-2]}
    kept = limit_devices(names, known)
    assert len(kept) == MAX_DEVICES
    assert known < {*kept}
    assert kept == sorted(kept)
    assert limit_devices(names[:MAX_DEVICES], ()) == names[:MAX_DEVICES]
