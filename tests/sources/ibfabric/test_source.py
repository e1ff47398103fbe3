"""The ibfabric source: local ports and their errors, the lock of a subnet, stopping, and options."""

import asyncio
import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic

import msgspec
import pytest

from exporter.config.units import Duration
from exporter.core.definition import Context
from exporter.core.source import Host, SourceError
from exporter.linux.mad import umad
from exporter.linux.mad.umad import (
    LocalPort,
    UmadError,
    UmadPort,
    select_port,
)
from exporter.sources.ibfabric import source as ibfabric
from exporter.sources.ibfabric.failures import MAX_FAILURES
from exporter.sources.ibfabric.model import format_guid
from exporter.sources.ibfabric.options import IbFabricOptions, PortChoice
from exporter.sources.ibfabric.source import DEFINITION
from exporter.sources.ibfabric.subnet_lock import SubnetLock
from tests.daemon.test_daemon import serving
from tests.helpers.paths import ROOT


def local(device="mlx5_0", number=1, *, state=4, infiniband=True):
    return LocalPort(device, number, 1, 1, state, infiniband, 0xFE80 << 48, 0x1234)


# --- local ports


def test_the_first_active_port_is_selected():
    down, other, active = local("mlx5_0", state=1), local("mlx5_1", state=2), local("mlx5_2")
    assert select_port([down, other, active, local("mlx5_3")], "", None) == active
    assert select_port([down, other, active], "mlx5_1", None) == other
    assert select_port([down, local("mlx5_0", 2)], "mlx5_0", 2).number == 2


@pytest.mark.parametrize(
    ("ports", "device", "reason", "text"),
    [
        (
            [local(infiniband=False)],
            "",
            "roce",
            "any device, port any: the link layer is Ethernet; use an InfiniBand port, RoCE has",
        ),
        ([local(infiniband=False), local("mlx5_1")], "mlx5_0", "roce", "mlx5_0, port any: the link layer is Ethernet"),
        ([local("mlx5_1")], "mlx5_0", "absent", "no such umad port; available ports: mlx5_1:1"),
        ([], "", "absent", "available ports: none"),
    ],
)
def test_a_port_that_does_not_match_is_an_error_with_the_cause(ports, device, reason, text):
    with pytest.raises(UmadError, match=text) as caught:
        select_port(ports, device, None)
    assert caught.value.reason == reason


def test_an_infiniband_port_is_preferred_to_a_roce_port():
    assert select_port([local(infiniband=False), local("mlx5_1", state=1)], "", None).device == "mlx5_1"


async def test_a_host_with_roce_ports_only_is_an_error_and_nothing_is_sent(fabric, make_sweeper):
    fabric.layer = False
    with pytest.raises(SourceError, match="RoCE has no subnet") as caught:
        await make_sweeper().sweep()
    assert caught.value.reason == "roce"
    assert (fabric.wire, fabric.opened) == ([], 0)


def test_a_missing_library_is_an_error_that_names_its_packages(monkeypatch):
    monkeypatch.setattr(umad, "LIBRARY", "libibumad.so.of-nowhere")
    with pytest.raises(UmadError, match=r"libibumad.so.of-nowhere cannot be loaded.*install libibumad3") as caught:
        umad.local_ports()
    assert caught.value.reason == "library"


class Library:
    """Replaces libibumad, with given results."""

    def __init__(self, opened=7, agent=0, error=0):
        self.opened, self.agent, self.error, self.closed = opened, agent, error, []

    def umad_open_port(self, _device, _number):
        ctypes.set_errno(self.error)
        return self.opened

    def umad_register(self, *_arguments):
        return self.agent

    def umad_unregister(self, *_arguments):
        return 0

    def umad_close_port(self, fd):
        self.closed.append(fd)

    def umad_size(self):
        return 56

    def umad_send(self, *_arguments):
        return self.agent

    def umad_recv(self, *_arguments):
        ctypes.set_errno(self.error)
        return -errno.EIO


@pytest.mark.parametrize(
    ("result", "number", "reason", "text"),
    [
        (errno.EIO, errno.EACCES, "permission", r"mlx5_0:1: no permission to read and write its node in .* \(umadN\)"),
        (errno.EIO, errno.EPERM, "permission", "add the user to the node's group"),
        (errno.EIO, errno.ENOENT, "absent", "pass the device to the container"),
        (errno.EIO, errno.EBUSY, "open", "mlx5_0:1: cannot be opened: Device or resource busy"),
        (errno.EIO, 0, "open", "mlx5_0:1: cannot be opened: Input/output error"),
        (errno.ENODEV, 0, "absent", r"mlx5_0:1: no node in /dev/infiniband \(umadN\); load the module ib_umad"),
        (errno.EOPNOTSUPP, 0, "absent", "load the module ib_umad"),
        (errno.EACCES, errno.EINVAL, "permission", "no permission"),
    ],
)
def test_open_errors_have_the_cause_and_the_remedy(monkeypatch, result, number, reason, text):
    """The library returns EIO for all errors of opening the node, and leaves errno unchanged."""
    monkeypatch.setattr(umad, "_library", lambda: Library(-result, error=number))
    with pytest.raises(UmadError, match=text) as caught:
        UmadPort("mlx5_0", 1)
    assert caught.value.reason == reason


def test_a_signal_during_a_receive_is_no_error(monkeypatch):
    library = Library(error=errno.EINTR)
    monkeypatch.setattr(umad, "_library", lambda: library)
    port = UmadPort("mlx5_0", 1)
    assert port.receive(0.1) is None
    library.error = errno.ENODEV
    with pytest.raises(OSError, match="No such device") as caught:
        port.receive(0.1)
    assert caught.value.errno == errno.ENODEV
    port.close()
    port.close()
    assert library.closed == [7]


@pytest.mark.parametrize(("layer", "fits"), [(b"InfiniBand", True), (b"IB", True), (b"", True), (b"Ethernet", False)])
def test_local_port_has_the_fields_of_the_umad_structure(layer, fits):
    struct = umad._UmadPortStruct(ca_name=b"mlx5_0", portnum=2, base_lid=7, sm_lid=1, state=4, link_layer=layer)
    struct.gid_prefix[:] = bytes.fromhex("fe80000000000000")
    struct.port_guid[:] = bytes.fromhex("0002c90300a1b2c3")
    found = umad._to_local_port(struct)
    assert found == ("mlx5_0", 2, 7, 1, 4, fits, 0xFE80 << 48, 0x0002C90300A1B2C3)
    assert found.name == "mlx5_0:2"


def test_a_port_without_an_agent_is_closed_again(monkeypatch):
    library = Library(agent=-errno.EPERM)
    monkeypatch.setattr(umad, "_library", lambda: library)
    with pytest.raises(UmadError, match="no agent for management class 0x01: Operation not permitted") as caught:
        UmadPort("mlx5_0", 1)
    assert caught.value.reason == "agent"
    assert library.closed == [7]


async def test_a_port_that_cannot_be_opened_is_an_error_and_opened_at_the_next_read(fabric, make_sweeper):
    fabric.error = UmadError("permission", "mlx5_0:1: no right")
    sweeper = make_sweeper()
    with pytest.raises(SourceError, match="no right") as caught:
        await sweeper.sweep()
    assert caught.value.reason == "permission"
    fabric.error = None
    assert not (await sweeper.sweep()).failures


async def test_a_port_that_disappears_is_opened_again(fabric, make_sweeper):
    sweeper = make_sweeper()
    await sweeper.sweep()
    fabric.waits = lambda: (_ for _ in ()).throw(OSError(errno.ENODEV, "No such device", "mlx5_0:1"))
    with pytest.raises(SourceError, match="No such device") as caught:
        await sweeper.sweep()
    assert caught.value.reason == "port"
    assert (fabric.opened, fabric.closed) == (1, 1)
    fabric.waits = lambda: None
    assert len((await sweeper.sweep()).links()) == 6
    assert fabric.opened == 2


async def test_send_errors_are_failures_of_their_nodes(fabric, make_sweeper):
    sweeper = make_sweeper()
    await sweeper.sweep()
    fabric.failing = OSError(errno.ENOBUFS, "no")
    result = await sweeper.sweep()
    assert {reason for _, reason in result.reasons()} == {"send_failed"}
    assert len({device for device, _ in result.reasons()}) == 7
    fabric.failing = None
    assert not (await sweeper.sweep()).failures


async def test_failures_beyond_the_limit_are_summarised(fabric, make_sweeper):
    leaf = fabric.nodes[4]
    leaf.ports |= {number: type(leaf.ports[1])(leaf, number) for number in range(5, 255)}
    for number in range(5, 255):
        leaf.ports[number].state, leaf.ports[number].physical = 2, 5
    result = await make_sweeper(retries=0).sweep()
    assert len(result.failures) == MAX_FAILURES + 1
    assert result.failures[-1].reason == "more"
    assert result.failures[-1].detail == "50 more ports and nodes do not respond"


# --- the lock of a subnet

HOLDER = """
import sys
from pathlib import Path
from exporter.sources.ibfabric.subnet_lock import SubnetLock
folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
lock = SubnetLock("poller-1, process 4711", folder)
print(lock.acquire(sys.argv[1]), flush=True)
sys.stdin.read()
"""


class OtherProcess:
    """Another process that acquires the lock of a subnet."""

    def __init__(self, subnet, *folder, alone=False):
        code = HOLDER
        if alone:  # as on another host: without the socket
            code = code.replace(
                "lock = ",
                "import socket; socket.socket.bind = lambda *_: None\nsocket.socket.listen = lambda *_: None\nlock = ",
            )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, subnet, *map(str, folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.holder = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)  # the lock is released however the process ends
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


async def test_a_second_exporter_on_this_host_waits_exports_the_holder_and_takes_over(fabric, make_sweeper):
    subnet = f"{format_guid(fabric.prefix)}-{format_guid(fabric.nodes[0].guid + 1)}"
    sweeper = make_sweeper()
    with OtherProcess(subnet) as other:
        assert other.holder == ""
        for _ in range(2):
            result = await sweeper.sweep()
            assert result.sweep_value("info") == ("waiting", f"process {other.process.pid} of this host", subnet)
            assert not result.failures
            assert set(result.values) == {"fabric_ib_sweep_info", "fabric_ib_sweep_discoveries_total"}
        assert len(fabric.wire) <= 2  # only SMInfo was read
    result = await sweeper.sweep()
    assert result.sweep_value("info") == ("sweeping", "", subnet)
    assert len(result.links()) == 6
    with OtherProcess(subnet) as other:
        assert other.holder == f"process {os.getpid()} of this host"


async def test_a_second_exporter_on_another_host_is_detected_by_the_lock_file(fabric, make_sweeper, tmp_path):
    subnet = f"{format_guid(fabric.prefix)}-{format_guid(fabric.nodes[0].guid + 1)}"
    sweeper = make_sweeper(lock=str(tmp_path))
    with OtherProcess(subnet, tmp_path, alone=True) as other:
        assert other.holder == ""
        result = await sweeper.sweep()
        assert result.sweep_value("info") == ("waiting", "poller-1, process 4711", subnet)
    assert len((await sweeper.sweep()).links()) == 6
    with OtherProcess(subnet, tmp_path, alone=True) as other:
        assert other.holder == f"poller, process {os.getpid()}"


async def test_a_lock_folder_that_cannot_be_used_is_an_error(make_sweeper, tmp_path):
    with pytest.raises(SourceError, match="No such file") as caught:
        await make_sweeper(lock=str(tmp_path / "none")).sweep()
    assert caught.value.reason == "port"


def test_a_lock_is_exclusive_and_can_be_released(tmp_path):
    first, second = SubnetLock("first", tmp_path), SubnetLock("second", tmp_path)
    name = f"test-{os.getpid()}"
    try:
        assert first.acquire(name) == ""
        assert first.acquire(name) == ""
        assert second.acquire(name) == f"process {os.getpid()} of this host"
        assert second.acquire(f"{name}/other") == ""  # another subnet, with a slash in its name
        assert first.acquire(f"{name}/other")
        first.release()
        assert second.acquire(name) == ""
        assert first.acquire(f"{name}/other") == ""  # a lock holds one subnet at a time
    finally:
        first.release()
        second.release()


def test_a_symbolic_link_as_lock_file_is_not_followed(tmp_path):
    name = f"test-{os.getpid()}"
    (tmp_path / "victim").write_text("mine")
    (tmp_path / f"fabric-exporter-ib-{name}.lock").symlink_to(tmp_path / "victim")
    lock = SubnetLock("one", tmp_path)
    with pytest.raises(OSError, match="symbolic"):
        lock.acquire(name)
    assert (tmp_path / "victim").read_text() == "mine"
    other = SubnetLock("two", None)
    assert not other.acquire(name)  # the socket was released
    other.release()


# --- stopping and restarting


async def test_closing_the_source_stops_a_running_sweep(fabric, make_sweeper):
    """Each wait of the window takes 10 ms of real time, and the simulated clock does not advance."""
    for node in fabric.nodes[1:]:
        node.tamper = lambda _: None
    fabric.nodes[4].tamper = None
    fabric.clock.sleep = lambda _: threading.Event().wait(0.01)  # no reply, and no timeout
    sweeper = make_sweeper()
    reading = asyncio.create_task(sweeper.source.read())
    while not fabric.wire:  # noqa: ASYNC110  # set by another thread
        await asyncio.sleep(0.01)
    reading.cancel()
    begun = monotonic()
    await sweeper.source.close()
    assert monotonic() - begun < 5
    assert (fabric.opened, fabric.closed) == (1, 1)


async def test_close_does_not_wait_for_a_hanging_sweep_which_closes_the_port_when_it_returns(
    fabric, make_sweeper, monkeypatch
):
    monkeypatch.setattr(ibfabric, "CLOSE_SECONDS", 0.2)
    is_hanging, resume = threading.Event(), threading.Event()

    def wait():
        is_hanging.set()
        assert resume.wait(60)

    fabric.waits = wait
    sweeper = make_sweeper()
    reading = asyncio.create_task(sweeper.source.read())
    assert await asyncio.to_thread(is_hanging.wait, 60)
    reading.cancel()
    begun = monotonic()
    await sweeper.source.close()
    assert monotonic() - begun < 5
    assert fabric.closed == 0  # a port in use is not closed
    resume.set()
    async with asyncio.timeout(60):
        while not fabric.closed or sweeper.source._serial.hanging:  # noqa: ASYNC110  # set by another thread
            await asyncio.sleep(0.01)
    lock = SubnetLock("next", None)
    assert not lock.acquire(sweeper.source._subnet)
    lock.release()


@pytest.mark.parametrize("after", [1, 12, 25, 40, 60])
async def test_a_sweep_longer_than_the_interval_is_an_error_and_not_started_twice(fabric, make_sweeper, after):
    is_hanging, resume = threading.Event(), threading.Event()

    def wait():
        if len(fabric.wire) >= after:
            is_hanging.set()
            assert resume.wait(60)

    fabric.waits = wait
    sweeper = make_sweeper(interval=Duration(0.5), timeout=Duration(0.1), retries=0)
    with pytest.raises(SourceError, match=r"no answer within 0\.45 s") as caught:
        await sweeper.sweep()
    assert caught.value.reason == "timeout"
    with pytest.raises(SourceError, match="an earlier call has not returned"):
        await sweeper.sweep()
    assert fabric.opened == 1
    resume.set()
    async with asyncio.timeout(60):
        while sweeper.source._serial.hanging:  # noqa: ASYNC110  # set by another thread
            await asyncio.sleep(0.01)
    sweeper.source._serial._deadline = 60.0  # the next sweep must not time out on a busy machine
    result = await sweeper.sweep()
    assert len(result.links()) == 6
    assert sum(result.values["fabric_ib_port_responding"].values()) == 12
    assert len(result.values["fabric_ib_port_state"]) == 16
    assert not result.failures


async def test_a_new_source_continues_after_the_old_one_was_closed(fabric, make_sweeper):
    old = make_sweeper()
    await old.sweep()
    await old.source.close()
    result = await make_sweeper(only_switches=True).sweep()
    assert result.sweep_value("info")[0] == "sweeping"
    assert len(result.links()) == 6
    assert (fabric.opened, fabric.closed) == (2, 1)


CONFIG = "sources: {{ibfabric: {{enabled: true, interval: 200ms, timeout: 10ms, retries: 0, only_switches: {only}}}}}"


async def test_the_daemon_continues_after_a_reload_and_stops_during_a_hanging_sweep(fabric, tmp_path, monkeypatch):
    monkeypatch.setattr(ibfabric, "UmadPortOpener", lambda: fabric)
    resume = threading.Event()
    is_hanging = threading.Event()

    def wait():
        is_hanging.set()
        assert resume.wait(60)

    host = {"guid": format_guid(fabric.nodes[1].guid)}
    async with serving(tmp_path, CONFIG.format(only="false")) as served:
        await served.until(lambda page: page.value("fabric_ib_port_responding", port="1", **host) == 1)
        assert (await served.reload(CONFIG.format(only="true"))).status_code == 200
        page = await served.until(
            lambda page: page.value("fabric_ib_sweep_links") == 6 and not page.all("fabric_ib_port_responding", **host)
        )
        assert page.value("fabric_ib_sweep_info", state="sweeping") == 1
        assert fabric.opened == 2
        fabric.waits = wait
        assert await asyncio.to_thread(is_hanging.wait, 60)
        begun = monotonic()
    assert monotonic() - begun < 5
    resume.set()
    async with asyncio.timeout(60):
        while fabric.closed < fabric.opened:  # noqa: ASYNC110  # set by another thread
            await asyncio.sleep(0.01)


# --- options


def test_the_source_is_disabled_by_default_and_built_once_per_port(tmp_path):
    assert not IbFabricOptions().enabled
    options = msgspec.convert(
        {"enabled": True, "ports": [{"device": "mlx5_0"}, {"device": "mlx5_1", "port": 2}]}, IbFabricOptions
    )
    made = DEFINITION.build(options, Context(Host("gpu-1", tmp_path, tmp_path)))
    assert [source.target for source in made] == ["mlx5_0:*", "mlx5_1:2"]
    assert made[0].settings == (options, PortChoice(device="mlx5_0"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"window": 0}, "window is 0; give 1 to 1024"),
        ({"per_destination": 17}, "per_destination is 17; give 1 to 16"),
        ({"per_second": 9}, "per_second is 9; give 10 to 1000000"),
        ({"retries": -1}, "retries is -1; give 0 to 10"),
        ({"ports": []}, "ports is empty"),
        ({"m_key_file": "a", "m_key_env": "B"}, "give one of m_key_file and m_key_env"),
        ({"m_key": "0x5"}, "unknown field"),
    ],
)
def test_invalid_options_are_rejected(given, text):
    with pytest.raises(msgspec.ValidationError, match=text):
        msgspec.convert(given, IbFabricOptions)


def test_the_limits_are_those_of_the_options():
    limits = IbFabricOptions(window=5, per_second=20, retries=0, timeout=Duration(0.25)).limits()
    assert (limits.window, limits.per_destination, limits.per_second, limits.timeout, limits.tries) == (
        5,
        1,
        20.0,
        0.25,
        1,
    )
    usual = IbFabricOptions().limits()
    assert (usual.window, usual.per_destination, usual.per_second, usual.timeout, usual.tries) == (
        64,
        1,
        10_000,
        0.5,
        3,
    )


def test_the_source_starts_no_programs():
    folder = Path(ibfabric.__file__).parent
    for path in (*folder.glob("*.py"), Path(umad.__file__)):
        assert "subprocess" not in path.read_text()
