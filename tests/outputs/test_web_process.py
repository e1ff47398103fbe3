"""The exporter as a process with few descriptors, under clients that hold their connections."""

import contextlib
import http.client
import os
import re
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest
import trustme

from tests.helpers.paths import FIXTURES

PORTS = 'fabric_rdma_receive_bytes_total{device="'

LIMIT = 256
"""Descriptors of the process, an eighth of which may be connections, and a quarter of those in their handshake."""

SPARE = 8
"""Descriptors that the sources may open meanwhile."""

START = f"""
import resource, sys
from exporter import cli
resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))
sys.exit(cli.main(sys.argv[1:]))
"""


class Exporter:
    """A running exporter; `trusting` is the context of a client, None where it serves plain HTTP."""

    def __init__(self, process, log, trusting):
        self.process, self.log, self.trusting = process, log, trusting
        self.until(lambda: "listening on" in log.read_text())
        host, port = re.search(r"listening on ([\d.]+):(\d+)", log.read_text()).groups()
        self.address = host, int(port)

    def until(self, condition):
        end = monotonic() + 60
        while not (found := condition()):
            assert self.process.poll() is None, self.log.read_text()
            assert monotonic() < end, self.log.read_text()
            sleep(0.02)
        return found

    def scrape(self):
        """Return the body of /metrics, over a connection of its own."""
        kind = http.client.HTTPConnection if self.trusting is None else http.client.HTTPSConnection
        options = {} if self.trusting is None else {"context": self.trusting}
        connection = kind(*self.address, timeout=10, **options)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            assert answer.status == 200
            return answer.read().decode()

    def accepts(self):
        """Return the page, None where the connection is refused, as it is while all others are being answered."""
        try:
            return self.scrape()
        except REFUSED:
            return None

    def descriptors(self):
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def connect(self, handshake):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(10)
        sock.connect(self.address)
        if self.trusting is None or not handshake:
            return sock
        return self.trusting.wrap_socket(sock, server_hostname="127.0.0.1")


@pytest.fixture(params=["tls", "plain"], scope="module")
def exporter(request, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("exporter")
    (tmp_path / "nic").mkdir()
    flags = ["--path.sysfs", FIXTURES / "sysfs", "--path.nic-replay", tmp_path / "nic"]
    trusting = None
    if request.param == "tls":
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
        (tmp_path / "web.yml").write_text("tls_server_config: {cert_file: both.pem, key_file: both.pem}\n")
        flags += ["--web.config.file", tmp_path / "web.yml"]
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
    log = tmp_path / "log"
    command = [sys.executable, "-c", START, "--web.listen-address", "127.0.0.1:0", *map(str, flags)]
    with log.open("wb") as out, subprocess.Popen(command, stderr=out, env=os.environ) as process:
        try:
            exporter = Exporter(process, log, trusting)
            exporter.until(lambda: PORTS in exporter.scrape())
            yield exporter
        finally:
            process.kill()


REFUSED = (ConnectionError, ssl.SSLError)
"""How a client sees that its connection is closed."""

UNREAD = "the responses are not read"

HELD = {
    "nothing is sent": (300, False, b""),
    "the handshake is not completed": (300, False, b"\x16\x03\x01\x02\x00\x01"),
    "the head is not completed": (100, True, b"GET /metrics HTTP/1.1\r\nHost: a\r\n"),
    UNREAD: (40, True, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 200),
}
"""What clients do that hold their connections: how many, whether after a handshake, what they send."""


def closed_in(page):
    """Return how many connections were refused, or closed for others, or sent nonsense, or paused for too long."""
    counts = re.findall(r'http_refused_total\{reason="(?:connections|malformed|timeout)"\} (\d+)', page)
    assert len(counts) == 3
    return sum(map(int, counts))


@pytest.mark.parametrize("held", HELD)
def test_held_connections_leave_scrapes_and_descriptors(exporter, held):
    count, handshake, sent = HELD[held]
    closed, before, most = closed_in(exporter.scrape()), exporter.descriptors(), 0
    clients = []
    try:
        for number in range(count):
            with contextlib.suppress(*REFUSED):
                clients.append(exporter.connect(handshake))
                clients[-1].sendall(sent)
            if number % 20 == 19:
                # Those that do not read are being answered until their buffers are full.
                page = exporter.until(exporter.accepts) if held == UNREAD else exporter.scrape()
                assert PORTS in page
                most = max(most, exporter.descriptors())
        # Those that are being answered are closed when their buffers are full.
        exporter.until(lambda: closed_in(exporter.accepts() or page) - closed >= count - LIMIT // 8)
    finally:
        for client in clients:
            client.close()
    assert most <= before + LIMIT // 8 + SPARE
    assert "Too many open files" not in exporter.log.read_text()
    exporter.until(lambda: exporter.descriptors() <= before + SPARE)
