"""Ports for programs that start later: outgoing connections and other processes do not take them."""

import random
import socket
import subprocess
import sys

import pytest

from exporter.simulator.monitoring import listening_ports
from exporter.simulator.monitoring.listening_ports import ListeningPorts


def unused(port):
    """Return whether nothing uses a port, by TCP and by UDP."""
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        try:
            for one in (stream, datagrams):
                one.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@pytest.fixture
def few(monkeypatch, tmp_path):
    """Only three free ports."""
    first = next(
        port for port in random.sample(range(10_000, 30_000), 1_000) if all(map(unused, range(port, port + 3)))
    )
    path = tmp_path / "ip_local_port_range"
    path.write_text(f"{first + 3}\t60999\n")
    for name, value in (("EPHEMERAL", path), ("LOWEST", first), ("NARROWEST", 1)):
        monkeypatch.setattr(listening_ports, name, value)
    return range(first, first + 3)


def test_consecutive_ports_begin_with_the_first():
    with ListeningPorts(9430) as ports:
        assert [ports.take() for _ in range(3)] == [9430, 9431, 9432]


def test_no_outgoing_connection_gets_a_free_port(tmp_path):
    lowest = int(listening_ports.EPHEMERAL.read_text().split()[0])
    with ListeningPorts() as ports:
        taken = [ports.take() for _ in range(200)]
    assert len(set(taken)) == 200
    assert listening_ports.LOWEST <= min(taken) <= max(taken) < lowest


def test_two_that_choose_at_the_same_time_get_different_ports(few):
    with ListeningPorts() as one, ListeningPorts() as other:
        assert {one.take(), other.take(), one.take()} == set(few)


def test_a_port_of_another_process_is_not_free(few):
    listening = f"import socket; one = socket.create_server(('127.0.0.1', {few[1]})); print(flush=True); input()"
    with (
        subprocess.Popen([sys.executable, "-c", listening], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
        ListeningPorts() as ports,
    ):
        other.stdout.readline()
        assert {ports.take(), ports.take()} == {few[0], few[2]}
        other.communicate(b"\n")


def test_a_program_can_listen_on_a_reserved_port_and_the_end_frees_it(few):
    with ListeningPorts() as ports:
        for _ in few:
            socket.create_server(("127.0.0.1", ports.take())).close()
    with ListeningPorts() as ports:
        assert {ports.take() for _ in few} == set(few)


@pytest.mark.parametrize("text", [None, "", "none\n", "1024\t65535\n"])
def test_ports_are_free_where_the_range_is_not_known_or_is_everything(monkeypatch, tmp_path, text):
    path = tmp_path / "ip_local_port_range"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(listening_ports, "EPHEMERAL", path)
    with ListeningPorts() as ports:
        assert ports.take() >= listening_ports.LOWEST
