"""Socket activation: the daemon serves on the sockets that systemd passes."""

import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from time import monotonic, sleep

import pytest

from exporter.config.errors import UserError
from exporter.outputs.activated_sockets import activated_sockets
from tests.helpers.stack import free_port

PATIENCE = 60.0

LAUNCHER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.execve(sys.argv[2], sys.argv[2:], {**os.environ, "LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())})
"""
"""What systemd does in the process that the program becomes; a copy of a descriptor is inherited."""


@pytest.fixture
def program(tmp_path):
    """Return the command of a daemon of a host without hardware."""
    (tmp_path / "class").mkdir()
    return [
        *(sys.executable, "-m", "exporter", "--web.systemd-socket"),
        *("--path.sysfs", tmp_path, "--path.procfs", tmp_path, "--path.nic-replay", tmp_path),
    ]


def scrape(port):
    """Scrape until something listens."""
    end = monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
                return answer.read().decode()
        except urllib.error.URLError:
            assert monotonic() < end
            sleep(0.05)


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="needs systemd-socket-activate")
def test_systemd_opens_the_port_and_the_first_scrape_starts_the_daemon(program):
    port = free_port()
    command = [
        "systemd-socket-activate",
        "--listen",
        f"127.0.0.1:{port}",
        f"--setenv=PATH={os.environ['PATH']}",
        *program,
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            assert "fabric_exporter_build_info" in scrape(port)
        finally:
            process.terminate()
        assert process.wait(PATIENCE) == 0


def test_a_scrape_during_a_restart_is_answered(program):
    """The socket is that of systemd: it takes connections while no daemon runs."""
    with socket.create_server(("127.0.0.1", 0)) as given, socket.socket() as client:
        client.settimeout(PATIENCE)
        client.connect(given.getsockname())
        client.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        for _ in range(2):
            command = [sys.executable, "-c", LAUNCHER, str(given.fileno()), *program]
            with subprocess.Popen(command, pass_fds=[given.fileno()], stderr=subprocess.DEVNULL) as process:
                try:
                    assert "fabric_exporter_build_info" in scrape(given.getsockname()[1])
                finally:
                    process.terminate()
                assert process.wait(PATIENCE) == 0
        assert client.recv(64).startswith(b"HTTP/1.1 200 ")


def passed(count, process=None):
    return {"LISTEN_PID": str(process or os.getpid()), "LISTEN_FDS": count, "LISTEN_FDNAMES": "web"}


@pytest.mark.parametrize(
    "environment",
    [{}, {"LISTEN_FDS": "1"}, passed("0"), passed(""), passed("one"), passed("²"), passed("1", process=1)],
)
def test_without_a_socket_there_is_an_error_with_the_remedy(environment):
    with pytest.raises(UserError, match=r"^--web\.systemd-socket: systemd passed no socket; start the service by its"):
        activated_sockets(environment)
    assert environment == {}, "no other program takes them for its own"


@pytest.mark.parametrize("count", ["65", "9" * 5000])
def test_more_sockets_than_a_service_has_are_an_error(count):
    with pytest.raises(UserError, match="give the socket unit at most 64"):
        activated_sockets(passed(count))


UNSUITABLE = {
    "datagrams": (socket.AF_INET, socket.SOCK_DGRAM),
    "local": (socket.AF_UNIX, socket.SOCK_STREAM),
    "not listening": (socket.AF_INET, socket.SOCK_STREAM),
}


@pytest.mark.parametrize("kind", UNSUITABLE.values(), ids=UNSUITABLE.keys())
def test_what_http_cannot_be_served_on_is_an_error(kind, monkeypatch):
    with socket.socket(*kind) as given:
        monkeypatch.setattr("exporter.outputs.activated_sockets.FIRST_DESCRIPTOR", given.fileno())
        with pytest.raises(UserError, match="is no listening TCP socket; use ListenStream=PORT"):
            activated_sockets(passed("1"))


def test_a_file_is_no_socket(monkeypatch, tmp_path):
    with (tmp_path / "file").open("w") as file:
        monkeypatch.setattr("exporter.outputs.activated_sockets.FIRST_DESCRIPTOR", file.fileno())
        with pytest.raises(UserError, match="is no socket: Socket operation on non-socket"):
            activated_sockets(passed("1"))


def test_addresses_and_sockets_exclude_each_other(program):
    command = [*program, "--web.listen-address", "127.0.0.1:0"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert result.returncode == 1
    assert "--web.systemd-socket and --web.listen-address exclude each other" in result.stderr
