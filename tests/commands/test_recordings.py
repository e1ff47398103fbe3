"""The commands `probe`, `snapshot` and `replay`: credentials, output files, and messages."""

import asyncio
import socket
import subprocess
import sys
import threading

import pytest

from exporter import cli
from exporter.commands import probe
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp import recording
from exporter.snmp.ber import (
    COUNTER64,
    INTEGER,
    OCTET_STRING,
    TIME_TICKS,
    Typed,
)
from exporter.snmp.client import SnmpClient
from exporter.snmp.security import Community

IFX = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
NAME = (1, 3, 6, 1, 2, 1, 1, 5, 0)
ROWS = {
    (1, 3, 6, 1, 2, 1, 1, 3, 0): Typed(TIME_TICKS, 100_000),
    NAME: Typed(OCTET_STRING, b"leaf-secret-7"),
    (1, 3, 6, 1, 2, 1, 2, 2, 1, 8, 1): Typed(INTEGER, 1),
    (*IFX, 1, 1): Typed(OCTET_STRING, b"Ethernet1"),
    (*IFX, 6, 1): Typed(COUNTER64, 1_000),
}


@pytest.fixture
def switch():
    """Yield the address of an agent with the community `right`, in a thread of its own."""
    made, found = threading.Event(), []
    loop = asyncio.new_event_loop()

    async def serve():
        async with SnmpAgent(ROWS, community="right") as agent:
            found.extend(("{}:{}".format(*await agent.start()), asyncio.Event()))
            made.set()
            await found[1].wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert made.wait(60)
    yield found[0]
    loop.call_soon_threadsafe(found[1].set)
    thread.join(60)
    loop.close()


@pytest.fixture
def community(tmp_path):
    """Return flags that name a file with the community."""
    (tmp_path / "community").write_text("right\n")
    return ["--snmp.community-file", str(tmp_path / "community")]


def test_a_snapshot_goes_into_a_file_without_names(capsys, tmp_path, switch, community):
    file = tmp_path / "leaf.rec"
    assert cli.main(["snapshot", switch, str(file), *community]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"{file}: {len(ROWS)} rows; names, addresses and serial numbers are replaced; review it all the same before"
        " you share it\n"
    )
    rows = recording.load(file).rows
    assert rows.keys() == ROWS.keys()
    assert rows[*IFX, 6, 1] == ROWS[*IFX, 6, 1]
    assert b"secret" not in file.read_bytes()
    assert rows[NAME].value != b"leaf-secret-7"
    file_before = file.read_bytes()
    assert cli.main(["snapshot", switch, str(file), *community]) == 1
    assert "exists already; name another file, or remove it" in capsys.readouterr().err
    assert file.read_bytes() == file_before


def test_a_raw_snapshot_warns_of_its_content(capsys, tmp_path, switch, community):
    file = tmp_path / "leaf.rec"
    assert cli.main(["snapshot", switch, str(file), "--raw", *community]) == 0
    assert "names, addresses and serial numbers are in it: review it before you share it" in capsys.readouterr().err
    assert recording.load(file).rows == ROWS


def test_a_configured_switch_is_recorded_with_its_own_options(capsys, tmp_path, switch):
    config = tmp_path / "config.yml"
    config.write_text(f"switches: {{targets: [{{name: leaf-7, address: '{switch}', snmp: {{community: right}}}}]}}")
    assert cli.main(["snapshot", "leaf-7", "--config.file", str(config)]) == 0
    captured = capsys.readouterr()
    assert recording.parse(captured.out.encode()).rows.keys() == ROWS.keys()
    assert captured.err == ""  # no progress where it is no terminal


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "'leaf-1': no SNMP options; name a switch of --config.file that has snmp, or give --snmp.community-file"),
        (["--snmp.version", "4"], "--snmp.version: is '4'; expected one of 1, 2c, 3"),
        (["--snmp.version", "3"], "version 3 needs a user; give its name"),
        (["--snmp.auth", "md4", "--snmp.user", "u"], "--snmp.auth: is 'md4'; expected one of md5"),
        (["--snmp.community-file", "/nowhere"], "/nowhere: the secret cannot be read: No such file or directory"),
        (["--snmp.community-env", "NOT_SET"], "environment variable NOT_SET: the secret is empty or not set"),
    ],
)
def test_missing_options_are_one_line_of_error(capsys, flags, message):
    assert cli.main(["snapshot", "leaf-1", *flags]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert message in captured.err


def test_a_wrong_community_is_one_line_without_it(capsys, monkeypatch, switch):
    monkeypatch.setattr("exporter.snmp.snapshot._TIMEOUT", 0.2)
    monkeypatch.setenv("COMMUNITY", "wrong-hush")
    assert cli.main(["snapshot", switch, "--snmp.community-env", "COMMUNITY"]) == 1
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert switch in captured.err
    assert "hush" not in captured.err + captured.out


@pytest.mark.parametrize("poll", ["true", "false"])
def test_a_probe_of_a_switch_of_the_configuration_whether_polled_or_not(capsys, tmp_path, switch, poll):
    config = tmp_path / "config.yml"
    text = f"{{name: leaf-7, address: '{switch}', poll: {poll}, snmp: {{community: right}}}}"
    config.write_text(f"switches: {{targets: [{text}]}}")
    assert cli.main(["probe", "leaf-7", "--config.file", str(config)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith("success after")
    assert "  receive_bytes_total: 1\n" in captured.out
    assert "right" not in captured.out


def test_a_probe_by_flags_with_its_metrics(capsys, switch, community):
    assert cli.main(["probe", switch, "--metrics", *community]) == 0
    captured = capsys.readouterr()
    assert 'fabric_switch_receive_bytes_total{switch="leaf-secret-7",port="Ethernet1"} 1000\n' in captured.out
    assert "fabric_probe_success 1\n" in captured.out
    assert captured.err.startswith("success after")


def test_a_failed_probe_prints_the_reason_and_exits_with_1(capsys, monkeypatch, switch):
    monkeypatch.setenv("COMMUNITY", "wrong-hush")
    monkeypatch.setattr(probe, "TIMEOUT_SECONDS", 0.8)
    assert cli.main(["probe", switch, "--snmp.community-env", "COMMUNITY"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("FAILURE after")
    assert "timeout: " in captured.out
    assert "hush" not in captured.out + captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["127.0.0.1"], "target '127.0.0.1': 127.0.0.1 has no protocol to poll it; give one or more of snmp"),
        (["127.0.0.1", "--auth", "lab"], "there is no auth 'lab'; probe.auths has none"),
        (
            ["127.0.0.1", "--module", "catos"],
            "there is no module 'catos'; probe.modules has none, and profiles are arista",
        ),
        (["127.0.0.1", "--snmp.version", "4"], "--snmp.version: is '4'; expected one of 1, 2c, 3"),
    ],
)
def test_an_invalid_probe_is_one_line_of_error(capsys, arguments, message):
    assert cli.main(["probe", *arguments]) == 1
    captured = capsys.readouterr()
    assert (captured.out, len(captured.err.splitlines())) == ("", 1)
    assert message in captured.err


def test_a_recording_is_served_as_a_switch(tmp_path):
    (tmp_path / "leaf.rec").write_text(recording.dump(ROWS))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "exporter", "replay", str(tmp_path / "leaf.rec"), "--listen", address]

    async def ask():
        async with SnmpClient(address, Community(b"public")) as client:
            return (await client.get([NAME])).values[NAME]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert address in process.stdout.readline()
            value = asyncio.run(ask())
        finally:
            process.kill()
    assert value == ROWS[NAME]


def test_a_recording_that_is_not_there_is_named(capsys, tmp_path):
    assert cli.main(["replay", str(tmp_path / "none.rec")]) == 1
    path = tmp_path / "none.rec"
    assert (
        capsys.readouterr().err == f"fabric-exporter: {path}: the recording cannot be read: No such file or directory\n"
    )


def test_an_address_that_is_taken_is_named(capsys, tmp_path):
    (tmp_path / "leaf.rec").write_text(recording.dump(ROWS))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert cli.main(["replay", str(tmp_path / "leaf.rec"), "--listen", address]) == 1
    assert f"fabric-exporter: {address}: cannot be listened on: " in capsys.readouterr().err
