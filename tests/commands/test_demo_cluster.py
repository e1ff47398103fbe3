"""The command `demo-cluster` as a process: its flags, that alerts arrive, and that no program is left at its end."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from exporter import cli
from exporter.commands import demo_cluster
from exporter.config.errors import UserError
from exporter.daemon import loading
from exporter.simulator.fabric.fault_table import KINDS
from exporter.simulator.monitoring import infiniband
from exporter.simulator.monitoring.programs import Program, Programs
from exporter.simulator.monitoring.receiver import Notice, Receiver
from exporter.simulator.web_server import WebServer
from tests.helpers.ibsim import links_of_net
from tests.helpers.stack import free_port, until

ENDED = "import sys; print('first'); print('no such disk'); sys.exit(3)"
SERVES = "import http.server as h, sys; h.test(h.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind='127.0.0.1')"


def running(folder: Path) -> list[int]:
    """List the processes whose command line names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder) in path.read_bytes().decode(errors="replace").replace("\0", " "):
                found.append(int(path.parent.name))
    return found


@contextlib.contextmanager
def started(folder, *flags, path=None):
    """Run the command with its files below a folder; yield the process."""
    words = [sys.executable, "-m", "exporter", "demo-cluster", "--first-port", "0", "--directory", folder / "demo"]
    environment = {**os.environ, "PATH": os.environ["PATH"] if path is None else path}
    with (
        (folder / "out").open("wb") as out,
        (folder / "err").open("wb") as err,
        subprocess.Popen([*map(str, words), *flags], stdout=out, stderr=err, env=environment) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=60)


def queried(api, query):
    """Return the series of a query."""
    return httpx.get(api, params={"query": query}).json()["data"]["result"]


def written(process, file, pattern):
    """Wait until a pattern is in a file of the process."""

    def look():
        found = re.search(pattern, file.read_text())
        assert found or process.poll() is None, file.read_text()
        return found

    return until(pattern, look, seconds=180)


# --- flags


def test_help_names_every_fault_with_its_target_and_text(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo-cluster", "--help"])
    assert stopped.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert [f"{name}: {f'{kind.default} {kind.text}'.strip()}" in text for name, kind in KINDS.items()] == [True] * 28


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--fault", "fire"], "--fault: 'fire': 'fire' is not a fault; expected NAME[:TARGET][@START[-END]] with one"),
        (["--fault", "late-rank:32"], "--fault: 'late-rank:32': late-rank is at a rank; expected one of 0, 1,"),
        (["--fault", "broker-gone@1m", "--broker", "b:1883"], "--fault: 'broker-gone@1m' ends the broker of the demo,"),
        (["--broker", "b:0"], "--broker: 'b:0' is not an address; write HOST, HOST:PORT or [IPV6]:PORT"),
        (["--rules", "/nowhere"], "--rules: /nowhere has no alertmanager.yml or no fabric*.yml; make a copy by"),
    ],
)
def test_a_wrong_value_is_one_error_before_anything_starts(capsys, monkeypatch, flags, error):
    monkeypatch.setattr(demo_cluster, "serve", None)  # would fail
    assert cli.main(["demo-cluster", *flags]) == 1
    text = capsys.readouterr().err
    assert error in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "value", "error"),
    [
        ("--interval", "1.5s", "'1.5s': expected a whole number of units, such as 1500ms"),
        ("--first-port", "99999", "'99999': expected a port of at most 65500, or 0 for free ones"),
        ("--first-port", "-1", "'-1': expected a port of at most 65500, or 0 for free ones"),
        ("--first-port", "٣", "'٣': expected a port of at most 65500, or 0 for free ones"),
    ],
)
def test_values_that_a_program_would_refuse_later_are_wrong_flags(capsys, flag, value, error):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo-cluster", flag, value])
    assert stopped.value.code == 2
    assert error in capsys.readouterr().err


def test_an_interval_without_unit_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo-cluster", "--interval", "5"])
    assert stopped.value.code == 2
    assert "expected a duration with its unit" in capsys.readouterr().err


# --- programs


def program(folder, name, code, port):
    return Program(name, (sys.executable, "-c", code, str(port)), port, "/", folder / f"{name}.log")


async def test_a_program_that_ends_at_the_start_is_an_error_with_its_log_and_the_others_are_stopped(tmp_path):
    async with Programs() as programs:
        await programs.start([program(tmp_path, "web", SERVES, free_port())])
        pid = programs.pids["web"]
        with pytest.raises(UserError) as raised:
            await programs.start([program(tmp_path, "broken", ENDED, free_port())])
    assert str(raised.value) == "broken ended with status 3; the end of its log: first | no such disk"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_program_that_is_not_there_is_an_error(tmp_path):
    async with Programs() as programs:
        with pytest.raises(UserError, match="broker cannot be started: /nowhere/broker: No such file"):
            await programs.start([Program("broker", ("/nowhere/broker",), 1, "", tmp_path / "log")])


async def test_a_program_that_is_killed_is_an_error_and_one_that_is_stopped_is_none(tmp_path):
    async with Programs() as programs:
        first, second = (program(tmp_path, name, SERVES, free_port()) for name in ("first", "second"))
        failed = asyncio.ensure_future(programs.failed())
        await programs.start([first, second])
        await programs.stop([first])
        assert list(programs.pids) == ["second"]
        await programs.start([first])
        assert not failed.done()
        os.kill(programs.pids["first"], signal.SIGKILL)
        with pytest.raises(UserError, match="first ended with status -9; the end of its log:"):
            await failed


# --- the receiver


def alert(status, **labels):
    annotations = {"description": "Port  1\nis down."}
    return {"status": status, "labels": labels, "annotations": annotations, "fingerprint": str(sorted(labels.items()))}


async def test_each_alert_is_reported_once_when_it_begins_and_ends():
    got: list[Notice] = []
    down = {"alertname": "FabricLinkDown", "severity": "critical", "host": "gpu-001", "side": ""}
    slow = {"alertname": "FabricLinkDown", "severity": "critical", "host": "gpu-002"}
    messages = [[alert("firing", **down)]] * 2
    messages += [[alert("firing", **down), alert("firing", **slow)], [alert("resolved", **down)]]
    async with WebServer(Receiver(got.append)) as server, httpx.AsyncClient(trust_env=False) as client:
        for alerts in messages:
            sent = await client.post(f"{server.url}/pager", json={"receiver": "pager", "alerts": alerts})
            assert sent.status_code == 200
        refused = await client.post(f"{server.url}/pager", json={"receiver": "pager"})
        assert refused.status_code == 400
    assert [one.line() for one in got] == [
        'pager  firing   FabricLinkDown{host="gpu-001"} Port 1 is down.',
        'pager  firing   FabricLinkDown{host="gpu-002"} Port 1 is down.',
        'pager  resolved FabricLinkDown{host="gpu-001"} Port 1 is down.',
    ]


# --- as a process


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_parts_respond_and_none_is_left(tmp_path, program, number):
    for name in ("mosquitto", "prometheus", "prometheus-alertmanager", "ibsim", "opensm"):
        program(name)
    with started(tmp_path, "--fault", "late-rank") as process:
        written(process, tmp_path / "err", "Ctrl-C")
        output = (tmp_path / "err").read_text()
        assert "late-rank: 5 computes longer, by half, from 0 s" in output
        assert "\033" not in output
        urls = dict(re.findall(r"^  (\S+) +(http://\S+)$", output, re.MULTILINE))
        others = ["poller", "collector", "infiniband", "Alertmanager", "Prometheus"]
        assert list(urls) == [*(f"gpu-00{n}" for n in range(1, 5)), *others]
        assert [httpx.get(url, follow_redirects=True).status_code for url in urls.values()] == [200] * 9
        api = urls["Prometheus"] + "api/v1/query"

        def scraped():
            found = queried(api, "up == 1")
            return {one["metric"]["instance"] for one in found} == set(urls) - {"Alertmanager", "Prometheus"}

        until("all exporters are scraped", scraped, seconds=90)
        fabric = 'fabric_ib_node_info{instance="infiniband"}'
        until("the nodes", lambda: len(queried(api, fabric)) == 12, seconds=90)
        assert queried(api, "fabric_ib_link_degraded == 1") == []
        assert len(running(tmp_path)) == 13
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
    assert running(tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_stops_while_it_starts(tmp_path):
    with started(tmp_path) as process:
        until("programs", lambda: len(running(tmp_path)) > 2, seconds=90)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    assert running(tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_port_that_is_taken_is_one_error_and_no_program_is_left(tmp_path):
    first = free_port()  # outside of the ephemeral range: connections take none of the consecutive ports
    port = first + 1
    with socket.create_server(("127.0.0.1", port)), started(tmp_path, "--first-port", str(first)) as process:
        assert process.wait(timeout=120) == 1
    assert running(tmp_path) == []
    (line,) = (tmp_path / "err").read_text().splitlines()
    assert "ended with status" in line
    assert str(port) in line


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_broker_and_clients_may_be_elsewhere(tmp_path, broker):
    """As in containers: the broker runs already, exporters are reached by another address, ports are consecutive."""
    running_broker = broker()
    first = free_port()
    flags = ["--first-port", str(first), "--broker", f"127.0.0.1:{running_broker.port}", "--all-addresses"]
    with started(tmp_path, *flags, "--no-infiniband", path="/nowhere") as process:
        written(process, tmp_path / "err", "Ctrl-C")
        names = re.findall(r"^  (\S+) +http://\S+:(\d+)/$", (tmp_path / "err").read_text(), re.MULTILINE)
        assert "mosquitto is not installed" not in (tmp_path / "err").read_text()
        expected = [*(f"gpu-00{n}" for n in range(1, 5)), "poller", "collector"]
        assert [(name, int(port)) for name, port in names] == [(n, first + i) for i, n in enumerate(expected)]

        def judged():
            page = httpx.get(f"http://127.0.0.2:{first + 5}/metrics").text
            return re.search(r'^fabric_collector_batches_total\{.*outcome="accepted".*\} [1-9]', page, re.MULTILINE)

        until("batches of the hosts, by the broker", judged, seconds=90)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_other_programs_hosts_and_poller_run_alone(tmp_path, monkeypatch):
    code = "import sys; from exporter.simulator.monitoring import stack; stack.SBIN = ''; from exporter import cli;"
    code += " sys.exit(cli.main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "demo-cluster", "--first-port", "0", "--directory", str(tmp_path / "demo")]
    with (
        (tmp_path / "err").open("wb") as err,
        subprocess.Popen(words, stderr=err, env={**os.environ, "PATH": "/nowhere"}) as process,
    ):
        try:
            written(process, tmp_path / "err", "Ctrl-C")
            process.terminate()
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
    output = (tmp_path / "err").read_text()
    assert "mosquitto is not installed, so each host judges its own ranks" in output
    assert "Prometheus and alerts: prometheus is not installed" in output
    assert "InfiniBand: ibsim, its library or opensm is not installed" in output
    assert "collector  " not in output


def test_the_links_of_the_infiniband_fabric_have_two_ends():
    text = infiniband.net()
    assert len(re.findall("^Switch", text, re.MULTILINE)) == 4
    assert len(re.findall("^Hca", text, re.MULTILINE)) == 8
    assert len(links_of_net(text)) == 12, "eight to hosts, and one from each leaf to each spine"


@pytest.mark.parametrize(("interval", "seconds"), [("2s", 3.0), ("1500ms", 3.0), ("3s", 3.0), ("1m", 60.0)])
def test_sweeps_have_the_interval_of_the_demo_or_the_least_that_the_source_accepts(tmp_path, interval, seconds):
    path = infiniband.exporter_config(tmp_path, interval)
    assert loading.load_config(path).sources["ibfabric"].interval == seconds


def test_a_fabric_needs_all_its_programs():
    assert infiniband.SubnetTools.of("", "/usr/sbin/opensm") is None
