"""The source of a fabric: ports that cannot be used, one sweeper for a subnet, stopping, and what it is made from."""

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


# Ports of this host.


def test_of_several_ports_the_first_active_one_is_taken():
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
def test_a_port_that_does_not_fit_is_refused_in_words(ports, device, reason, text):
    with pytest.raises(UmadError, match=text) as told:
        select_port(ports, device, None)
    assert told.value.reason == reason


def test_a_port_of_infiniband_is_taken_beside_one_of_roce():
    assert select_port([local(infiniband=False), local("mlx5_1", state=1)], "", None).device == "mlx5_1"


async def test_a_host_of_roce_alone_is_told_so_and_nothing_is_sent(fabric, swept):
    fabric.layer = False
    with pytest.raises(SourceError, match="RoCE has no subnet") as told:
        await swept().look()
    assert told.value.reason == "roce"
    assert (fabric.wire, fabric.opened) == ([], 0)


def test_a_library_that_is_absent_is_named_with_its_packages(monkeypatch):
    monkeypatch.setattr(umad, "LIBRARY", "libibumad.so.of-nowhere")
    umad._library.cache_clear()
    try:
        with pytest.raises(UmadError, match=r"libibumad.so.of-nowhere cannot be loaded.*install libibumad3") as told:
            umad.local_ports()
    finally:
        umad._library.cache_clear()
    assert told.value.reason == "library"


class Library:
    """What stands for libibumad where its answers are to be select_port."""

    def __init__(self, opened=7, agent=0, told=0):
        self.opened, self.agent, self.told, self.closed = opened, agent, told, []

    def umad_open_port(self, _device, _number):
        ctypes.set_errno(self.told)
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
        ctypes.set_errno(self.told)
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
def test_why_a_port_cannot_be_opened_is_said_with_the_remedy(monkeypatch, result, number, reason, text):
    """The library gives EIO for all that the kernel says when the node is opened, and leaves errno as it is."""
    monkeypatch.setattr(umad, "_library", lambda: Library(-result, told=number))
    with pytest.raises(UmadError, match=text) as told:
        UmadPort("mlx5_0", 1)
    assert told.value.reason == reason


def test_a_signal_while_it_waits_is_no_end_of_the_port(monkeypatch):
    library = Library(told=errno.EINTR)
    monkeypatch.setattr(umad, "_library", lambda: library)
    port = UmadPort("mlx5_0", 1)
    assert port.receive(0.1) is None
    library.told = errno.ENODEV
    with pytest.raises(OSError, match="No such device") as told:
        port.receive(0.1)
    assert told.value.errno == errno.ENODEV
    port.close()
    port.close()
    assert library.closed == [7]


@pytest.mark.parametrize(("layer", "fits"), [(b"InfiniBand", True), (b"IB", True), (b"", True), (b"Ethernet", False)])
def test_what_the_kernel_tells_of_a_port(layer, fits):
    told = umad._UmadPortStruct(ca_name=b"mlx5_0", portnum=2, base_lid=7, sm_lid=1, state=4, link_layer=layer)
    told.gid_prefix[:] = bytes.fromhex("fe80000000000000")
    told.port_guid[:] = bytes.fromhex("0002c90300a1b2c3")
    found = umad._to_local_port(told)
    assert found == ("mlx5_0", 2, 7, 1, 4, fits, 0xFE80 << 48, 0x0002C90300A1B2C3)
    assert found.name == "mlx5_0:2"


def test_a_port_that_serves_no_agent_is_closed_again(monkeypatch):
    library = Library(agent=-errno.EPERM)
    monkeypatch.setattr(umad, "_library", lambda: library)
    with pytest.raises(UmadError, match="no agent for management class 0x01: Operation not permitted") as told:
        UmadPort("mlx5_0", 1)
    assert told.value.reason == "agent"
    assert library.closed == [7]


async def test_a_port_that_cannot_be_opened_is_told_and_tried_again(fabric, swept):
    fabric.error = UmadError("permission", "mlx5_0:1: no right")
    one = swept()
    with pytest.raises(SourceError, match="no right") as told:
        await one.look()
    assert told.value.reason == "permission"
    fabric.error = None
    assert not (await one.look()).failures


async def test_a_port_that_goes_away_is_opened_anew(fabric, swept):
    one = swept()
    await one.look()
    fabric.waits = lambda: (_ for _ in ()).throw(OSError(errno.ENODEV, "No such device", "mlx5_0:1"))
    with pytest.raises(SourceError, match="No such device") as told:
        await one.look()
    assert told.value.reason == "port"
    assert (fabric.opened, fabric.closed) == (1, 1)
    fabric.waits = lambda: None
    assert len((await one.look()).links()) == 6
    assert fabric.opened == 2


async def test_datagrams_that_cannot_be_sent_are_failures_of_their_nodes(fabric, swept):
    one = swept()
    await one.look()
    fabric.failing = OSError(errno.ENOBUFS, "no")
    seen = await one.look()
    assert {reason for _, reason in seen.reasons()} == {"send_failed"}
    assert len({device for device, _ in seen.reasons()}) == 7
    fabric.failing = None
    assert not (await one.look()).failures


async def test_very_many_failures_are_told_in_few(fabric, swept):
    leaf = fabric.nodes[4]
    leaf.ports |= {number: type(leaf.ports[1])(leaf, number) for number in range(5, 255)}
    for number in range(5, 255):
        leaf.ports[number].state, leaf.ports[number].physical = 2, 5
    seen = await swept(retries=0).look()
    assert len(seen.failures) == MAX_FAILURES + 1
    assert seen.failures[-1].reason == "more"
    assert seen.failures[-1].detail == "50 more ports and nodes do not respond"


# One sweeper for a subnet.

HOLDER = """
import sys
from pathlib import Path
from exporter.sources.ibfabric.subnet_lock import SubnetLock
folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
lock = SubnetLock("poller-1, process 4711", folder)
print(lock.acquire(sys.argv[1]), flush=True)
sys.stdin.read()
"""


class Other:
    """Another process that holds the right to a subnet, or waits."""

    def __init__(self, subnet, *folder, alone=False):
        code = HOLDER
        if alone:  # as one of another host: it has no socket of this one
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
        self.told = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)  # whatever becomes of it, the right is free
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


async def test_a_second_sweeper_of_this_host_waits_names_the_first_and_takes_over(fabric, swept):
    subnet = f"{format_guid(fabric.prefix)}-{format_guid(fabric.nodes[0].guid + 1)}"
    one = swept()
    with Other(subnet) as other:
        assert other.told == ""
        for _ in range(2):
            seen = await one.look()
            assert seen.sweep("info") == ("waiting", f"process {other.process.pid} of this host", subnet)
            assert not seen.failures
            assert set(seen.values) == {"fabric_ib_sweep_info", "fabric_ib_sweep_discoveries_total"}
        assert len(fabric.wire) <= 2  # the subnet manager alone was asked who it is
    seen = await one.look()
    assert seen.sweep("info") == ("sweeping", "", subnet)
    assert len(seen.links()) == 6
    with Other(subnet) as other:
        assert other.told == f"process {os.getpid()} of this host"


async def test_a_second_sweeper_of_another_host_is_found_by_the_folder(fabric, swept, tmp_path):
    subnet = f"{format_guid(fabric.prefix)}-{format_guid(fabric.nodes[0].guid + 1)}"
    one = swept(lock=str(tmp_path))
    with Other(subnet, tmp_path, alone=True) as other:
        assert other.told == ""
        seen = await one.look()
        assert seen.sweep("info") == ("waiting", "poller-1, process 4711", subnet)
    assert len((await one.look()).links()) == 6
    with Other(subnet, tmp_path, alone=True) as other:
        assert other.told == f"poller, process {os.getpid()}"


async def test_a_folder_that_cannot_be_used_is_told(swept, tmp_path):
    with pytest.raises(SourceError, match="No such file") as told:
        await swept(lock=str(tmp_path / "none")).look()
    assert told.value.reason == "port"


def test_a_lock_is_held_once_and_given_back(tmp_path):
    first, second = SubnetLock("first", tmp_path), SubnetLock("second", tmp_path)
    name = f"test-{os.getpid()}"
    try:
        assert first.acquire(name) == ""
        assert first.acquire(name) == ""
        assert second.acquire(name) == f"process {os.getpid()} of this host"
        assert second.acquire(f"{name}/other") == ""  # another subnet; and a name that is no path
        assert first.acquire(f"{name}/other")
        first.release()
        assert second.acquire(name) == ""
        assert first.acquire(f"{name}/other") == ""  # one holds one at a time
    finally:
        first.release()
        second.release()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    name = f"test-{os.getpid()}"
    (tmp_path / "victim").write_text("mine")
    (tmp_path / f"fabric-exporter-ib-{name}.lock").symlink_to(tmp_path / "victim")
    lock = SubnetLock("one", tmp_path)
    with pytest.raises(OSError, match="symbolic"):
        lock.acquire(name)
    assert (tmp_path / "victim").read_text() == "mine"
    other = SubnetLock("two", None)
    assert not other.acquire(name)  # nothing is held after that
    other.release()


# Stopping, and being made anew.


async def test_a_pass_that_is_under_way_ends_soon_when_the_source_is_closed(fabric, swept):
    """Waiting takes real time here: each wait of the window a hundredth of a second, for ever."""
    for node in fabric.nodes[1:]:
        node.tamper = lambda _: None
    fabric.nodes[4].tamper = None
    fabric.clock.sleep = lambda _: threading.Event().wait(0.01)  # no answer, and no time that passes
    one = swept()
    reading = asyncio.create_task(one.source.read())
    while not fabric.wire:  # noqa: ASYNC110  # another thread's doing
        await asyncio.sleep(0.01)
    reading.cancel()
    begun = monotonic()
    await one.source.close()
    assert monotonic() - begun < 5
    assert (fabric.opened, fabric.closed) == (1, 1)


async def test_a_pass_that_hangs_in_the_kernel_does_not_hold_up_the_end_and_lets_go_when_it_comes_back(
    fabric, swept, monkeypatch
):
    monkeypatch.setattr(ibfabric, "CLOSE_SECONDS", 0.2)
    hangs, goes_on = threading.Event(), threading.Event()

    def wait():
        hangs.set()
        assert goes_on.wait(60)

    fabric.waits = wait
    one = swept()
    reading = asyncio.create_task(one.source.read())
    assert await asyncio.to_thread(hangs.wait, 60)
    reading.cancel()
    begun = monotonic()
    await one.source.close()
    assert monotonic() - begun < 5
    assert fabric.closed == 0  # a port is not taken from a thread that uses it
    goes_on.set()
    async with asyncio.timeout(60):
        while not fabric.closed or one.source._serial.out:  # noqa: ASYNC110  # another thread's doing
            await asyncio.sleep(0.01)
    lock = SubnetLock("next", None)
    assert not lock.acquire(one.source._subnet)
    lock.release()


@pytest.mark.parametrize("after", [1, 12, 25, 40, 60])
async def test_a_pass_that_outlives_the_interval_is_told_not_begun_twice_and_leaves_no_gap(fabric, swept, after):
    hangs, goes_on = threading.Event(), threading.Event()

    def wait():
        if len(fabric.wire) >= after:
            hangs.set()
            assert goes_on.wait(60)

    fabric.waits = wait
    one = swept(interval=Duration(0.5), timeout=Duration(0.1), retries=0)
    with pytest.raises(SourceError, match=r"no answer within 0\.45 s") as told:
        await one.look()
    assert told.value.reason == "timeout"
    with pytest.raises(SourceError, match="has not come back"):
        await one.look()
    assert fabric.opened == 1
    goes_on.set()
    async with asyncio.timeout(60):
        while one.source._serial.out:  # noqa: ASYNC110  # another thread's doing
            await asyncio.sleep(0.01)
    one.source._serial._deadline = 60.0  # the next one shall end, on a busy machine too
    seen = await one.look()
    assert len(seen.links()) == 6
    assert sum(seen.values["fabric_ib_port_responding"].values()) == 12
    assert len(seen.values["fabric_ib_port_state"]) == 16
    assert not seen.failures


async def test_one_that_was_made_anew_goes_on_after_the_old_one_was_closed(fabric, swept):
    old = swept()
    await old.look()
    await old.source.close()
    seen = await swept(only_switches=True).look()
    assert seen.sweep("info")[0] == "sweeping"
    assert len(seen.links()) == 6
    assert (fabric.opened, fabric.closed) == (2, 1)


CONFIG = "sources: {{ibfabric: {{enabled: true, interval: 200ms, timeout: 10ms, retries: 0, only_switches: {only}}}}}"


async def test_a_daemon_goes_on_after_a_reload_and_stops_though_a_pass_hangs(fabric, tmp_path, monkeypatch):
    monkeypatch.setattr(ibfabric, "UmadPortOpener", lambda: fabric)
    goes_on = threading.Event()
    hangs = threading.Event()

    def wait():
        hangs.set()
        assert goes_on.wait(60)

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
        assert await asyncio.to_thread(hangs.wait, 60)
        begun = monotonic()
    assert monotonic() - begun < 5
    goes_on.set()
    async with asyncio.timeout(60):
        while fabric.closed < fabric.opened:  # noqa: ASYNC110  # another thread's doing
            await asyncio.sleep(0.01)


# What it is made from.


def test_it_is_off_by_default_and_makes_a_source_for_each_port(tmp_path):
    assert not IbFabricOptions().enabled
    options = msgspec.convert(
        {"enabled": True, "ports": [{"device": "mlx5_0"}, {"device": "mlx5_1", "port": 2}]}, IbFabricOptions
    )
    made = DEFINITION.build(options, Host("gpu-1", tmp_path, tmp_path))
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
def test_options_that_no_fabric_bears_are_refused(given, text):
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


def test_nothing_of_it_runs_programs():
    folder = Path(ibfabric.__file__).parent
    for path in (*folder.glob("*.py"), Path(umad.__file__)):
        assert "subprocess" not in path.read_text()
