"""docs/security.md: its limits are those of the code, its rights those of the chart, and its examples are valid."""

import re
import subprocess
from inspect import signature
from pathlib import Path

import pytest
import trustme
import yaml

from exporter import cli
from exporter.config import secret, yaml_document, yaml_loader
from exporter.daemon import lookups, probe
from exporter.daemon.loading import load_config
from exporter.linux import cached_file, infiniband, rdma_reader, rewritten_files, tail, untrusted_files
from exporter.linux.lldp import frames
from exporter.linux.netlink import netlink_socket
from exporter.mqtt import dedup, host_settings, packet_limit, publisher, states, subscriber, topics
from exporter.nccl import (
    batch,
    comma,
    datagram,
    debug_log,
    flight_recorder,
    inspector,
    prometheus_text,
    ras,
    ras_protocol,
)
from exporter.outputs import http_server, listener, request, webapp, webauth, webconfig
from exporter.snmp import exchange, walk
from exporter.sources.common import job_files
from exporter.sources.ibfabric.options import IbFabricOptions
from exporter.sources.lldp import neighbour_cache
from exporter.sources.nccl import identity, processes, timing_socket
from exporter.sources.pods import (
    cni_results,
    container_cgroups,
    namespace_readings,
    pod_log_folders,
    pod_resources,
    pod_resources_client,
)
from exporter.sources.pods import identity as pod_identity
from exporter.sources.pods import namespaces as pod_namespaces
from exporter.sources.pods import tables as pod_tables
from exporter.sources.switch import trap_head, traps
from exporter.switch_api import http, login_backoff, port
from exporter.switch_api.sonic_db import resp
from tests.deploy.test_helm_rights import RIGHTS
from tests.helpers.paths import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
FILES = dict(re.findall(r"^```yaml\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def kib(size: float) -> str:
    return f"{size / 2**10:g} KiB"


def mib(size: float) -> str:
    return f"{size / 2**20:g} MiB"


def n(number: float) -> str:
    return f"{number:,.0f}"


SHARE = {8: "an eighth"}[http_server.DESCRIPTORS_PER_CONNECTION]
MADS = IbFabricOptions()

LIMITS = {
    # HTTP
    "connections": f"{n(http_server.MAX_CONNECTIONS)}; at most {SHARE} of the open files that the process may have",
    "of these in their TLS handshake": f"one of {http_server.HANDSHAKE_SHARE}",
    "TLS handshake": f"{n(listener.HANDSHAKE_TIMEOUT)} seconds",
    "head of a request": f"{kib(request.MAX_HEAD_SIZE)}, {request.MAX_HEADERS} headers,"
    f" {kib(request.MAX_TARGET_LENGTH)} of target, {n(http_server.HEADER_TIMEOUT)} seconds from its first byte",
    "body of a request": f"{http_server.Application.max_body} bytes: none is read",
    "pause of a client in reading a response": f"{n(http_server.STALL_TIMEOUT)} seconds",
    "idle connection": f"{n(http_server.KEEP_ALIVE_TIMEOUT)} seconds",
    "scrapes at a time": f"{webapp.DEFAULT_MAX_REQUESTS}, `--web.max-requests`",
    "passwords that wait for their check": f"{webauth.MAX_WAITING}; clients take turns",
    "parameters of `/probe`": f"{webapp.MAX_PARAMETERS}, a target of {probe.MAX_TARGET_LENGTH} characters",
    "probes at a time": f"{probe.MAX_PROBES}, of which {lookups.MAX_PROBED} names are resolved at a time",
    "duration of a probe": f"{n(probe.DEFAULT_TIMEOUT)} seconds if the client states no timeout,"
    f" {n(probe.MAX_TIMEOUT)} at most",
    "switches whose state is kept between probes": f"{n(probe.MAX_CACHED)}, for {n(probe.CACHE_SECONDS)} seconds",
    # Jobs
    "datagram of the socket": f"{kib(datagram.MAX_DATAGRAM)}, {n(datagram.MAX_ROWS)} rows",
    "senders": f"{n(timing_socket.MAX_SENDERS)} processes; one that is silent for"
    f" {n(timing_socket.EXPIRY_SECONDS)} seconds is forgotten",
    "rate of a process": f"{kib(timing_socket.SENDER_RATE)} per second, {mib(timing_socket.SENDER_BURST)} at once",
    "rate of a user whose PIDs are not visible": f"that of {timing_socket.HIDDEN_SENDERS} processes",
    "queue": f"{mib(timing_socket.MAX_QUEUED)}; where it is full, the user with most of it loses",
    "entries of folders": f"{n(job_files.MAX_ENTRIES)}, of which a job has {n(job_files.MAX_JOB_ENTRIES)}",
    "files followed": f"{n(untrusted_files.MAX_FILES)} of each kind; of more, the newest",
    "line": f"{mib(tail.MAX_LINE)}; of a log {kib(debug_log.MAX_LINE)}",
    "bytes of a growing file read at a time": mib(tail.FILE_BUDGET),
    "backlog of a growing file": f"{mib(tail.MAX_BACKLOG)}; beyond that, reading continues {kib(tail.START_WINDOW)}"
    " before its end",
    "dump of the Flight Recorder, or of another profiler": mib(flight_recorder.MAX_FILE),
    "text file of Inspector": mib(prometheus_text.MAX_TEXT),
    "jobs of a host, and processes of a job": f"{processes.MAX_JOBS} and {processes.MAX_PROCESSES}",
    "environment of a process": kib(identity.MAX_ENVIRONMENT),
    "response of RAS": f"{mib(ras.MAX_ANSWER)}, lines of {kib(ras_protocol.MAX_LINE)}",
    # Switches
    "SNMP: rows of one column": n(walk.MAX_ROWS),
    "SNMP: bytes of one walk": mib(walk.MAX_BYTES),
    "SNMP: text": kib(exchange.MAX_TEXT_BYTES),
    "APIs: response": f"{mib(signature(http.HttpClient).parameters['max_reply'].default)},"
    f" {n(http.MAX_JSON_VALUES)} values; of an error {kib(http.MAX_ERROR_REPLY)}",
    "APIs: redirects": f"{http.MAX_REDIRECTS}, to the same host",
    "redis: response": f"{mib(resp.MAX_BYTES)}, {n(resp.MAX_ITEMS)} items, {kib(resp.MAX_TEXT)} of text",
    "ports of a switch": f"{n(port.MAX_PORTS)}, with names of {port.MAX_NAME_LENGTH} characters",
    "delay after a rejected login": f"up to {n(login_backoff.MAX_BACKOFF_SECONDS)} seconds",
    "datagram of a trap": f"{n(trap_head.MAX_BYTES)} bytes",
    "rate of an address": f"{n(traps.BURST)} at once, {n(traps.RATE)} per second",
    "rate of all addresses": f"{n(traps.TOTAL_BURST)} at once, {n(traps.TOTAL_RATE)} per second; a datagram counts once"
    f" for each {traps.PIECE_BYTES} bytes",
    "polls of a switch by traps": f"one in {n(traps.MIN_POLL_SECONDS)} seconds",
    # MQTT
    "packet": f"{kib(packet_limit.MAX_PACKET_SIZE)}; larger ones and QoS 2 end the connection",
    "batch of timings": f"{kib(batch.MAX_BATCH)}, {n(batch.MAX_OPERATIONS)} operations",
    "topic": f"{n(topics.MAX_TOPIC)} characters",
    "state of a port or daemon": f"{n(states.MAX_MESSAGE)} bytes; {n(states.MAX_STATES)} states",
    "settings of a host": f"{kib(host_settings.MAX_MESSAGE)}, {host_settings.MAX_SETTINGS} settings;"
    f" {mib(host_settings.MAX_TOTAL)} of all hosts",
    "queue of a collector": f"{mib(subscriber.MAX_QUEUED_BYTES)}, shared by senders",
    "jobs of a collector": f"{dedup.MAX_JOBS}, of which one host has {dedup.MAX_HOST_JOBS}",
    "hosts of a collector": f"{n(dedup.MAX_ALL_HOSTS)}, of which a job has {n(dedup.MAX_HOSTS)}",
    "queue of a host, while the broker is unavailable": f"{n(publisher.MAX_QUEUED)} batches and"
    f" {mib(publisher.MAX_QUEUED_BYTES)}",
    # Pods
    "network namespaces": f"{n(pod_namespaces.MAX_NAMESPACES)}, those with a name first",
    "NICs of all namespaces": f"{n(pod_tables.MAX_NICS)}: those of namespaces with the fewest",
    "NICs of a namespace": f"{namespace_readings.MAX_NICS}: cards, then the oldest",
    "result of libcni": f"{kib(cni_results.MAX_FILE_SIZE)}, {cni_results.MAX_INTERFACES} interfaces;"
    f" {n(cni_results.MAX_FILES)} in a folder, of more the newest",
    "entries of `/var/log/pods`": n(pod_log_folders.MAX_ENTRIES),
    "processes whose namespace is read": n(container_cgroups.MAX_PROCESSES),
    "pod resources: reply": f"{mib(pod_resources_client.MAX_REPLY)}, {n(pod_resources.MAX_FIELDS)} fields,"
    f" {n(pod_resources.MAX_GRANTS)} devices",
    "pod resources: call": f"one in {n(pod_identity.CALL_INTERVAL)} seconds, with a timeout of"
    f" {n(pod_resources_client.CALL_SECONDS)} seconds",
    "pod resources: age of the last reply": f"{n(pod_identity.MAX_REPLY_AGE)} seconds, while further calls fail",
    # Kernel, fabric, files
    "file of sysfs": f"{n(cached_file.PAGE_SIZE)} bytes, a page",
    "netlink: datagram": kib(netlink_socket.MAX_DATAGRAM),
    "netlink: messages of a dump": n(netlink_socket.MAX_DUMP_MESSAGES),
    "RDMA devices of a host": n(infiniband.MAX_DEVICES),
    "queue pairs of an RDMA device": n(rdma_reader.MAX_QUEUE_PAIRS),
    "LLDP: frame": f"{n(frames.MAX_FRAME)} bytes; {frames.MAX_FRAMES} in a file;"
    f" {neighbour_cache.MAX_NEIGHBOURS} neighbours of a port",
    "MADs": f"{MADS.window} in flight, {({1: 'one'})[MADS.per_destination]} to a node, {n(MADS.per_second)} per second;"
    " Get only",
    "configuration file": f"{mib(yaml_document.MAX_SIZE)}, {n(yaml_loader.MAX_VALUES)} values,"
    f" depth {yaml_loader.MAX_DEPTH}",
    "web configuration file, certificate or key": mib(webconfig.MAX_FILE_SIZE),
    "file of a secret": kib(secret.MAX_SIZE),
}
"""What each row of the tables of limits is, by the constants."""


def tables(head: str) -> list[list[str]]:
    """Return the rows of all tables whose header matches a pattern."""
    found = re.findall(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert found
    return [[cell.strip() for cell in line.split("|")[1:-1]] for table in found for line in table.splitlines()]


def test_every_limit_is_the_constant_of_the_code() -> None:
    assert dict(tables(r"limit[a-z ]*")) == LIMITS
    assert len(tables(r"limit[a-z ]*")) == len(LIMITS), "a name is used twice"


def test_limits_that_are_named_once_are_the_same_where_they_are_several() -> None:
    assert comma.MAX_FILE == rewritten_files.POLL_BUDGET == flight_recorder.MAX_FILE
    assert inspector.MAX_LINE == tail.MAX_LINE


ROLES = {
    "node": "node",
    "node with `hostPID` and a folder of its own": "node-options",
    "node with `optics` and `lldp.listen`": "node-optics",
    "node with `pods`": "node-pods",
    "node with `pods`, its `processes` and `podResources`, and another folder of kubelet": "node-pods-all",
    "switches": "switches",
    "infiniband": "infiniband",
    "infiniband with a device plugin": "infiniband-device-plugin",
    "collector": "collector",
}
"""Each first cell of the table of rights, and the variant of the chart."""


def listed(cell: str) -> list[str]:
    return [one.strip("` ") for one in cell.split(",") if one.strip()]


def test_rights_are_those_of_the_chart() -> None:
    found = {}
    for role, container, user, capabilities, privileged, namespaces, paths in tables("role"):
        variant = ROLES[role]
        rights = (int(user), listed(capabilities), {"yes": True, "no": False}[privileged], listed(namespaces))
        found[variant, role.split()[0], listed(container)[0]] = (*rights, set(listed(paths)))
    expected = {key: (*row[:4], set(row[4])) for key, row in RIGHTS.items() if key[0] != "all"}
    assert found == expected


def test_the_unit_has_what_is_listed() -> None:
    section = PAGE.partition("\n## systemd\n")[2].partition("\n## ")[0]
    listed = re.findall(r"`(\w+=[^`]*)`", section)
    systemd = ROOT / "deploy" / "systemd"
    units = [(systemd / name).read_text().splitlines() for name in ("fabric-exporter.service", "timing.conf")]
    assert len(listed) > 15
    assert set(listed) <= {line for unit in units for line in unit}
    program = (ROOT / "exporter" / "outputs" / "listener.py").read_text()
    assert "LISTEN_FDS" not in program, "it takes sockets of systemd: correct the page"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the examples to files with certificates of a CA of their own."""
    ca = trustme.CA()
    for name in ("web", "mqtt", "prometheus"):
        made = ca.issue_cert(f"{name}.example.net")
        made.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.crt")
        made.private_key_pem.write_to_path(tmp_path / f"{name}.key")
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_command_accepts_the_examples(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (command,) = block.splitlines()
    program, *words = command.split()
    assert program == "fabric-exporter"
    assert cli.main(words) == 0
    options = load_config(folder / "fabric.yml").sources["mqtt"]
    credentials = re.findall(r"^LoadCredential=([\w.-]+):", PAGE, re.MULTILINE)
    directory, _, name = options.key_file.rpartition("/")
    assert directory == "/run/credentials/fabric-exporter.service"
    assert name in credentials


def test_prometheus_accepts_its_example(folder: Path, program) -> None:
    command = [program("promtool"), "check", "config", folder / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = yaml.safe_load(FILES["prometheus.yml"])["scrape_configs"]
    assert job["scheme"] == "https"


def test_the_socket_has_the_documented_mode(tmp_path: Path) -> None:
    path = tmp_path / "timing.sock"
    timing_socket._listen(str(path)).close()
    assert f"{path.stat().st_mode & 0o7777:04o}" in PAGE
