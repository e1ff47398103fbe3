"""`ib topology` and `ib diff` on fabrics simulated by ibsim, compared with the net file."""

import html
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import promql_parser as promql
import pytest

from exporter.daemon.loading import load_config
from tests.helpers import promtool
from tests.helpers.ibsim import Simulator, simulator
from tests.helpers.paths import ROOT
from tests.helpers.promql import exported, faults

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "infiniband.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
SHOWN = [block for kind, block in BLOCKS if kind == "text"]
QUERIES = [block for kind, block in BLOCKS if kind == "promql"]

HOSTS = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")

DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")


def net(
    links: list[tuple[str, int, str, int]], slow: tuple[tuple[str, int], ...] = (), hosts: tuple[str, ...] = HOSTS
) -> str:
    """Return a net file of ibsim: two leaves and two spines, always in the same order, so that GUIDs stay the same.

    Args:
        links: Node, port, node, port.
        slow: Ports with one lane only; both ends of a link.
        hosts: Names of the hosts.
    """
    lines = []
    for name in ("leaf-1", "leaf-2", "spine-1", "spine-2", *hosts):
        is_host = name in hosts
        lines.append(f'Hca\t2 "{name}"\t# "{name} mlx5_0"' if is_host else f'Switch\t8 "{name}"')
        for one, port, other, its_port in (*links, *((c, d, a, b) for a, b, c, d in links)):
            if one == name:
                option = " w=1" if (one, port) in slow else ""
                lines.append(f'[{port}]\t"{other}"[{its_port}]{option}')
        lines.append("")
    return "\n".join(lines)


LINKS = [
    ("leaf-1", 1, "gpu-1", 1),
    ("leaf-1", 2, "gpu-2", 1),
    ("leaf-2", 1, "gpu-3", 1),
    ("leaf-2", 2, "gpu-4", 1),
    ("leaf-1", 7, "spine-1", 1),
    ("leaf-1", 8, "spine-2", 1),
    ("leaf-2", 7, "spine-1", 2),
    ("leaf-2", 8, "spine-2", 2),
]
"""Links of a healthy fabric."""

LATER = [
    *(link for link in LINKS if link[2] not in {"gpu-2", "gpu-4"}),
    ("leaf-2", 5, "gpu-2", 1),
]
"""Links of the same fabric without one host, and with another one moved."""


SLOW = (("leaf-2", 8), ("spine-2", 2))


class Fabric:
    """A simulated fabric with a subnet manager at its first host, and programs that run on its hosts."""

    def __init__(self, simulated: Simulator, folder: Path) -> None:
        self._simulated = simulated
        self.folder = folder
        self.set_counter = simulated.set_counter
        self.unlink = simulated.unlink
        self.command = simulated.command

    def run(self, *command: object, host: str = HOSTS[0]) -> subprocess.CompletedProcess[str]:
        """Run a program at a host."""
        env = self._simulated.env(host)
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        return subprocess.run(
            [*map(str, command)], cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )

    def ib(self, *words: object, host: str = HOSTS[0]) -> subprocess.CompletedProcess[str]:
        """Run `fabric-exporter ib`."""
        return self.run(sys.executable, "-m", "exporter", "ib", *words, host=host)

    def saved(self, *words: object, name: str = "saved.json") -> dict:
        """Save the fabric in a file; return the document."""
        done = self.ib("topology", "--json", *words)
        assert (done.returncode, done.stderr) == (0, "")
        (self.folder / name).write_text(done.stdout)
        return json.loads(done.stdout)


@pytest.fixture
def start(tmp_path, program):
    """Return a function that simulates the fabric of a net file."""
    for name in ("ibsim", "opensm"):
        program(name)

    @contextmanager
    def make(text: str, name: str = "fabric") -> Iterator[Fabric]:
        (tmp_path / name).mkdir()
        with simulator(text) as simulated, simulated.manager(HOSTS[0]):
            yield Fabric(simulated, tmp_path / name)

    return make


def named(document: dict) -> set[frozenset[tuple[str, int]]]:
    """Return the links of a document by the nodes' names in the net file."""
    names = {node["guid"]: node["name"].removesuffix(" mlx5_0") for node in document["nodes"]}
    return {frozenset((names[end["guid"]], end["port"]) for end in link["ends"]) for link in document["links"]}


def ends(links) -> set[frozenset[tuple[str, int]]]:
    return {frozenset([(one, port), (other, its)]) for one, port, other, its in links}


def test_the_document_has_the_links_of_the_net_file(start):
    with start(net(LINKS)) as fabric:
        document = fabric.saved()
        again = fabric.saved(name="again.json")
        without = fabric.saved("--no-counters", name="without.json")
    assert named(document) == ends(LINKS)
    assert len(document["links"]) == len(LINKS), "each once"
    about = {node["name"]: node for node in document["nodes"]}
    assert {name: node["role"] for name, node in about.items() if node["role"]} == {
        "leaf-1": "leaf",
        "leaf-2": "leaf",
        "spine-1": "spine",
        "spine-2": "spine",
    }
    host = about["gpu-2 mlx5_0"]
    assert (host["kind"], host["host"], host["device"]) == ("adapter", "gpu-2", "mlx5_0")
    assert document["origin"] == {"guid": about["gpu-1 mlx5_0"]["guid"], "port": 1}
    for link in document["links"]:
        assert (link["width"], link["generation"], link["speed_bytes_per_second"]) == ("4X", "SDR", 10e9 / 8)
        assert (link["expected_width"], link["expected_generation"]) == ("12X", "QDR"), "as iblinkinfo prints"
        assert (link["expected_speed_bytes_per_second"], link["degraded"]) == (120e9 / 8, True)
        assert link["errors"] == {}
    assert {port["state"] for port in about["spine-1"]["ports"][:2]} == {"active"}
    assert [port["port"] for port in about["spine-1"]["ports"] if port["state"] == "down"] == [3, 4, 5, 6, 7, 8]
    assert {**again, "taken": document["taken"]} == document
    texts = [(fabric.folder / name).read_text() for name in ("saved.json", "again.json")]
    assert len({re.sub(r'"taken": "[^"]+"', "", text) for text in texts}) == 1, "the same byte for byte"
    assert {link["errors"] for link in without["links"]} == {None}, "not requested"
    assert named(without) == ends(LINKS)


def test_every_host_reads_the_same_topology(start):
    with start(net(LINKS)) as fabric:
        one, other = (fabric.ib("topology", "--json", "--no-counters", host=host) for host in ("gpu-1", "gpu-4"))
    one, other = json.loads(one.stdout), json.loads(other.stdout)
    assert one.pop("origin") != other.pop("origin")
    del one["taken"], other["taken"]
    assert one == other


def test_errors_are_printed_at_the_end_that_counted_them(start):
    with start(net(LINKS)) as fabric:
        fabric.set_counter("leaf-1", 7, "PortCounters.SymbolErrorCounter", 65535)
        fabric.set_counter("spine-2", 2, "PortCounters.PortXmitDiscards", 7)
        fabric.set_counter("spine-2", 2, "PortCounters.LinkDownedCounter", 3)
        fabric.set_counter("leaf-2", 1, "PortCounters.PortXmitWait", 9)
        document = fabric.saved()
        drawn = fabric.ib("topology").stdout
    guids = {node["name"]: node["guid"] for node in document["nodes"]}
    erring = {place: found for link in document["links"] for place, found in link["errors"].items()}
    assert erring == {
        f"{guids['leaf-1']}:7": {"symbol_errors": 65535},
        f"{guids['spine-2']}:2": {"link_down": 3, "transmit_discards": 7},
    }
    (line,) = (line for line in drawn.splitlines() if "symbol" in line)
    assert re.match(r" +7  spine-1 port 1 .*  errors here: symbol_errors=65535 \(saturated\)$", line)
    (line,) = (line for line in drawn.splitlines() if "discards" in line)
    assert re.match(r" +8  spine-2 port 2 .*  errors there: link_down=3, transmit_discards=7$", line)
    assert drawn.splitlines()[-1] == "4 switches, 4 adapters, 8 links, 8 degraded, 2 with errors"
    assert "\x1b" not in drawn, "no colours in a pipe"


def test_an_unchanged_fabric_has_no_difference(start):
    with start(net(LINKS)) as fabric:
        fabric.saved()
        done = fabric.ib("diff", "saved.json")
        files = fabric.ib("diff", "saved.json", "saved.json", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[2:] == ["no difference"]
    assert files.returncode == 0


def test_a_host_that_is_unplugged_is_missing(start):
    with start(net(LINKS)) as fabric:
        fabric.saved()
        fabric.unlink("gpu-3")
        done, as_json = fabric.ib("diff", "saved.json"), fabric.ib("diff", "saved.json", "--json")
    assert (done.returncode, as_json.returncode) == (1, 1)
    assert [re.sub(r" \(\w+\)$", "", line) for line in done.stdout.splitlines()[2:]] == [
        "missing adapter gpu-3 mlx5_0",
        "missing link gpu-3 mlx5_0 port 1 -- leaf-2 port 1: leaf-2 port 1 is down",
        "2 differences",
    ]
    found = json.loads(as_json.stdout)
    assert [node["name"] for node in found["missing_nodes"]] == ["gpu-3 mlx5_0"]
    assert {name: len(value) for name, value in found.items() if isinstance(value, list) and value} == {
        "missing_nodes": 1,
        "missing_links": 1,
    }


def test_a_moved_cable_is_one_difference(start):
    with start(net(LINKS)) as fabric:
        fabric.saved()
        fabric.unlink("gpu-3")
        fabric.command('Link "gpu-3"[1] "leaf-1"[5]')
        done = fabric.ib("diff", "saved.json")
        document = fabric.saved(name="later.json")
    assert done.returncode == 1
    assert done.stdout.splitlines()[2:] == [
        "moved gpu-3 mlx5_0 port 1: was at leaf-2 port 1, is at leaf-1 port 5",
        "1 difference",
    ]
    assert named(document) == ends([*LINKS[:2], ("leaf-1", 5, "gpu-3", 1), *LINKS[3:]])


def test_a_link_of_one_lane_is_slower(start):
    with start(net(LINKS), "before") as fabric:
        fabric.saved()
        saved = fabric.folder / "saved.json"
    with start(net(LINKS, slow=SLOW), "after") as fabric:
        done = fabric.ib("diff", saved)
        fabric.saved(name="later.json")
        back = fabric.ib("diff", "later.json", saved)
    assert (done.returncode, back.returncode) == (1, 1)
    link = "leaf-2 port 8 -- spine-2 port 2"
    slow, fast = "1X SDR 2.5 Gb/s", "4X SDR 10 Gb/s"
    assert done.stdout.splitlines()[2:] == [f"slower link {link}: was {fast}, is {slow}", "1 difference"]
    assert back.stdout.splitlines()[2:] == [f"faster link {link}: was {slow}, is {fast}", "1 difference"]


def test_graphviz_draws_it(start, program):
    dot = program("dot")
    with start(net(LINKS)) as fabric:
        fabric.set_counter("leaf-1", 7, "PortCounters.SymbolErrorCounter", 5)
        text = fabric.ib("topology", "--dot").stdout
    done = subprocess.run([dot, "-Tsvg"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r'class="edge"', done.stdout)) == len(LINKS)
    drawn = html.unescape(done.stdout)
    heights = {
        name: float(height)
        for height, name in re.findall(r'<text [^>]*y="(-[0-9.]+)"[^>]*>([a-z]+)-\d(?: mlx5_0)?</text>', drawn)
    }
    assert heights["spine"] < heights["leaf"] < heights["gpu"], "y grows downwards"


@pytest.mark.parametrize(("command", "status"), [(["topology"], 1), (["diff", "saved.json"], 2)])
def test_a_missing_local_port_is_an_error(start, command, status):
    with start(net(LINKS)) as fabric:
        fabric.saved("--no-counters")
        done = fabric.ib(*command, "--device", "mlx5_9")
    assert (done.returncode, done.stdout) == (status, "")
    wanted = "mlx5_9, port any: no such umad port; available ports: ibsim0:1"
    assert done.stderr == f"fabric-exporter: {wanted}\n"


# --- the page


def without_date(text: str) -> str:
    """Replace the date."""
    return DATE.sub("DATE", text)


def test_the_page_shows_the_output_of_its_commands(start, program):
    """Run the commands of the page in their order, on the fabric that it describes."""
    program("dot")
    shell = program("bash")
    printed = []
    with start(net(LINKS), "first") as fabric:
        fabric.set_counter("leaf-1", 7, "PortCounters.SymbolErrorCounter", 65535)
        for command in COMMANDS[:3]:
            done = fabric.run(shell, "-o", "pipefail", "-c", command)
            assert (done.returncode, done.stderr) == (0, ""), command
            printed.append(done.stdout)
        saved, drawn = fabric.folder / "fabric.json", fabric.folder / "fabric.svg"
        assert drawn.read_text().count('class="edge"') == len(LINKS)
    with start(net(LATER, slow=SLOW, hosts=HOSTS[:3]), "second") as fabric:
        (fabric.folder / "fabric.json").write_bytes(saved.read_bytes())
        fabric.saved(name="later.json")
        for command in COMMANDS[3:]:
            done = fabric.run(shell, "-o", "pipefail", "-c", command)
            assert (done.returncode, done.stderr) == (1, ""), command
            printed.append(done.stdout)
    assert len(COMMANDS) == 5
    assert [without_date(text) for text in (printed[0], printed[3])] == [without_date(text) for text in SHOWN]
    assert without_date(printed[4]) == without_date(printed[3])


def test_the_configuration_of_the_page_is_valid(tmp_path):
    (text,) = (block for kind, block in BLOCKS if kind == "yaml")
    (tmp_path / "fabric.yml").write_text(text)
    options = load_config(tmp_path / "fabric.yml").sources["ibfabric"]
    assert options.enabled
    assert [(choice.device, choice.port) for choice in options.ports] == [("mlx5_0", 1)]


def test_the_page_documents_the_default_limits(tmp_path):
    (tmp_path / "fabric.yml").write_text("sources: {ibfabric: {enabled: true}}")
    options = load_config(tmp_path / "fabric.yml").sources["ibfabric"]
    text = " ".join(PAGE.partition("## Load on the fabric")[2].partition("\n## ")[0].split())
    assert (options.per_destination, options.window, options.per_second) == (1, 64, 10_000)
    assert (options.retries, options.timeout, options.interval, options.survey_interval) == (2, 0.5, 30.0, 600.0)
    for words in (
        "one request is in flight to a node",
        "64 in all",
        "10,000 are sent",
        "retried twice",
        "500 ms",
        "30 s",
    ):
        assert words in text
    assert "every ten minutes" in text


@pytest.mark.parametrize("query", QUERIES)
def test_queries_use_exported_metrics_and_labels(query):
    assert faults(promql.parse(query), exported()) == []


LEAF, HOST = 'guid="0000000000200000"', "0000000000100000"
TARGET = 'job="ib", instance="poller"'
AGENT = f'{{job="node", instance="gpu-1", device="mlx5_0", port="1", host="gpu-1", node_guid="{HOST}"}}'


def test_queries_have_results(tmp_path, program):
    """Evaluate the queries by promtool, for one port of a leaf that is linked to a host."""
    series = {
        f'fabric_ib_node_info{{{TARGET}, {LEAF}, node_name="leaf-1", node_kind="switch", role="leaf"}}': "1x20",
        f'fabric_ib_node_info{{{TARGET}, guid="{HOST}", node_name="gpu-1 mlx5_0", host="gpu-1", '
        'device="mlx5_0"}': "1x20",
        f'fabric_ib_link_info{{{TARGET}, {LEAF}, port="1", peer_guid="{HOST}", peer_port="1", peer="gpu-1 mlx5_0", '
        'width="2X", generation="NDR"}': "1x20",
        f'fabric_ib_link_degraded{{{TARGET}, {LEAF}, port="1"}}': "1x20",
        f'fabric_ib_transmit_discards_total{{{TARGET}, {LEAF}, port="1"}}': "0+60x20",
        f"fabric_rdma_info{AGENT}": "1x20",
    }
    link = 'peer="gpu-1 mlx5_0", peer_port="1", width="2X", generation="NDR"'
    labels = 'host="gpu-1", device="mlx5_0"'
    answers = [
        (f'{{{TARGET}, {LEAF}, port="1", node_name="leaf-1", {link}}}', 1),
        (f'{{{TARGET}, {LEAF}, port="1", {link}, peer_guid="{HOST}", node_guid="{HOST}", {labels}}}', 1),
        (f'{{{TARGET}, {LEAF}, port="1", peer_guid="{HOST}", {labels}}}', 2),
    ]
    promtool.answers(program("promtool"), tmp_path, series, zip(QUERIES, answers, strict=True))
