"""The command `demo` as a process, and that it never blocks the event loop that it shares with the exporter."""

import asyncio
import errno
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from fnmatch import fnmatchcase

import pytest
from blockbuster import blockbuster_ctx

from exporter import cli
from exporter.commands import demo
from exporter.daemon.loading import load_config
from exporter.simulator.cluster import Cluster
from exporter.simulator.faults import FAULTS

URL = re.compile(r"open +(http://\S+)/ \(page\)")


@pytest.fixture(autouse=True)
def _logging_as_before():
    """Take back what the command line does to logging in this process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@contextmanager
def started(tmp_path, *flags):
    """Run the command with its temporary files in a directory of their own; yield the process and its first output."""
    with subprocess.Popen(
        [sys.executable, "-m", "exporter", "demo", "--web.listen-address", "127.0.0.1:0", *flags],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        try:
            output = ""
            while "Ctrl-C" not in output:
                line = process.stderr.readline()
                assert line, output
                output += line
            yield process, output
        finally:
            process.kill()


def fetch(url):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_serves_and_stops_and_leaves_nothing(tmp_path, number):
    with started(tmp_path) as (process, output):
        assert "faults    none; try --demo.fault degraded-link | link-down" in output
        assert "\033" not in output
        (folder,) = tmp_path.iterdir()
        assert f"files     {folder} " in output
        url = URL.search(output)[1]
        assert "fabric-exporter" in fetch(url)
        assert "fabric_exporter_build_info" in fetch(f"{url}/metrics")
        process.send_signal(number)
        assert process.wait(timeout=5) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_named_directory_is_not_removed(tmp_path):
    kept = tmp_path / 'ke"p[t]: #'  # characters that mean something to YAML or a shell pattern
    with started(tmp_path, "--demo.directory", str(kept), "--demo.fault", "link-down") as (process, output):
        assert f"fault     link-down: {FAULTS['link-down']}" in output
        process.terminate()
        assert process.wait(timeout=5) == 0
    assert (kept / "leaf-02.password").stat().st_mode & 0o077 == 0
    config = load_config(kept / "fabric-exporter.yaml")
    assert config.host == "gpu-001"
    assert fnmatchcase(str(kept / "nccl"), config.sources["nccl"].inspector[0])


def test_a_folder_with_something_in_it_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").write_text("precious")
    assert cli.main(["demo", "--demo.directory", str(tmp_path)]) == 1
    assert f"--demo.directory: {tmp_path} is not empty; name a new directory" in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]


def test_an_address_in_use_is_reported_and_leaves_no_files(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert cli.main(["demo", "--web.listen-address", address]) == 1
    assert address in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_ends_the_demo_with_an_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def full(_self, _steps):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Cluster, "_write", full)
    assert cli.main(["demo", "--web.listen-address", "127.0.0.1:0"]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_fault_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo", "--demo.fault", "fire"])
    assert stopped.value.code == 2
    text = capsys.readouterr().err
    assert all(name in text for name in ("'fire'", *FAULTS))


def test_help_names_every_fault(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo", "--help"])
    assert stopped.value.code == 0
    text = "".join(capsys.readouterr().out.split())  # lines may be broken, also at a hyphen
    assert all("".join(word.split()) in text for one in FAULTS.items() for word in one)


async def test_it_never_blocks_the_loop(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with blockbuster_ctx() as watch:
        # Once, before anything is served: the configuration, and procfs files of this process.
        for call in ("io.BufferedReader.read", "os.stat", "os.scandir"):
            watch.functions[call].can_block_in("exporter/daemon/daemon.py", {"__init__"})
        watch.functions["io.TextIOWrapper.read"].can_block_in("exporter/daemon/runtime.py", {"warn_of_own_namespace"})
        # procfs files of this process are in memory; a fast rendering runs on the event loop.
        for call in ("io.BufferedReader.read", "os.listdir"):
            watch.functions[call].can_block_in("prometheus_client/process_collector.py", {"collect"})
        running = asyncio.create_task(demo.serve(listen_addresses=["127.0.0.1:0"], faults=list(FAULTS)))
        output = ""
        while "Ctrl-C" not in output:
            assert not running.done(), running.result()
            await asyncio.sleep(0.05)
            output += capsys.readouterr().err
        url = URL.search(output)[1]
        for _ in range(3):  # a second and more of moves and reads
            await asyncio.sleep(0.5)
            if running.done():
                await running  # raises what blocked
            assert "fabric_rdma_" in await asyncio.to_thread(fetch, f"{url}/metrics")
        signal.raise_signal(signal.SIGTERM)
        await running
