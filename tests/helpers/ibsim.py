"""InfiniBand fabrics simulated by Debian's `ibsim`, and parsers for the output of `ibnetdiscover` and `perfquery`.

Each simulator has a folder and a socket of its own, so that tests may run side by side. Programs use its fabric as that
of the machine when they run with `env()`, in a folder that may be written to.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

PRELOAD = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so"
PROMPT = "sim> "
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

Place = tuple[str, int]
"""A node by name, and its port."""


def fat_tree(leaves: int = 2, hosts: int = 2, spines: int = 1, cables: int = 1) -> str:
    """Return a net file: `hosts` at each leaf, from port 1 on; then `cables` to each spine."""
    links: list[tuple[Place, Place]] = []
    for leaf in range(leaves):
        name = f"Leaf{leaf + 1}"
        links += [((name, host + 1), (f"H{leaf * hosts + host + 1}", 1)) for host in range(hosts)]
        links += [
            ((name, hosts + spine * cables + cable + 1), (f"Spine{spine + 1}", leaf * cables + cable + 1))
            for spine in range(spines)
            for cable in range(cables)
        ]
    peers: dict[str, dict[int, Place]] = {}
    for one, other in links:
        peers.setdefault(one[0], {})[one[1]] = other
        peers.setdefault(other[0], {})[other[1]] = one
    blocks = []
    for name, ports in sorted(peers.items(), key=lambda item: item[0].startswith("H")):
        header = f'Hca 2 "{name}"' if name.startswith("H") else f'Switch {max(36, *ports)} "{name}"'
        lines = (f'[{port}] "{peer}"[{far}]' for port, (peer, far) in sorted(ports.items()))
        blocks.append("\n".join([header, *lines]))
    return "\n\n".join(blocks) + "\n"


def links_of_net(text: str) -> set[frozenset[Place]]:
    """Return the links of a net file, by names."""
    links, name = set(), ""
    for line in text.splitlines():
        if header := re.match(r'(?:Switch|Hca)\s+\d+\s+"([^"]+)"', line):
            name = header[1]
        elif port := re.match(r'\[(\d+)\]\s+"([^"]+)"\[(\d+)\]', line):
            links.add(frozenset({(name, int(port[1])), (port[2], int(port[3]))}))
    return links


@dataclass(frozen=True)
class Found:
    """A node in the output of `ibnetdiscover`; a switch has one LID, an adapter one per port."""

    kind: str
    guid: int
    ports: int
    description: str
    lids: Mapping[int, int]


@dataclass(frozen=True)
class Discovered:
    """What `ibnetdiscover` found: nodes by GUID, and links, each an unordered pair of GUID and port."""

    nodes: Mapping[int, Found]
    links: frozenset[frozenset[tuple[int, int]]]

    def named_links(self) -> set[frozenset[Place]]:
        """Return the links by the nodes' descriptions."""
        return {frozenset((self.nodes[guid].description, port) for guid, port in link) for link in self.links}

    def lid(self, name: str, port: int = 0) -> int:
        """Return the LID of a switch, or of a port of an adapter, by description."""
        (node,) = (node for node in self.nodes.values() if node.description == name)
        return node.lids[port]


def links_of_ibnetdiscover(text: str) -> Discovered:
    """Read the output of `ibnetdiscover`."""
    nodes: dict[int, Found] = {}
    links, guid, lids = set(), 0, {}
    for line in text.splitlines():
        if header := re.match(r'(Switch|Ca)\s+(\d+)\s+"[SH]-([0-9a-f]+)"\s+# "([^"]*)"(?:.* lid (\d+))?', line):
            guid = int(header[3], 16)
            lids = {0: int(header[5])} if header[5] else {}
            nodes[guid] = Found(header[1], guid, int(header[2]), header[4], lids)
        elif port := re.match(r'\[(\d+)\](?:\([0-9a-f]+\))?\s+"[SH]-([0-9a-f]+)"\[(\d+)\]', line):
            links.add(frozenset({(guid, int(port[1])), (int(port[2], 16), int(port[3]))}))
            own = re.search(r"# lid (\d+)", line)
            if own:
                lids[int(port[1])] = int(own[1])
    return Discovered(nodes, frozenset(links))


def counters_of_perfquery(text: str) -> dict[str, int]:
    """Read the counters that `perfquery`, with or without `-x`, prints: `Name:.....7`."""
    found = re.findall(r"^(\w+):\.*(0x[0-9a-fA-F]+|\d+)$", text, re.MULTILINE)
    return {name: int(value, 0) for name, value in found}


class Simulator:
    """A running `ibsim`, its console, and programs that run in its fabric."""

    def __init__(self, folder: Path, net: str, process: subprocess.Popen[bytes]) -> None:
        self.folder, self.net = folder, net
        self._process, self._read = process, 0

    def env(self, host: str = "H1") -> dict[str, str]:
        """Return the environment of a program that runs at a host of the fabric."""
        own = {"LD_PRELOAD": PRELOAD, "IBSIM_SOCKNAME": self.folder.name, "SIM_HOST": host, "PATH": PATH}
        return {**os.environ, **own, "OSM_TMP_DIR": str(self.folder), "OSM_CACHE_DIR": str(self.folder)}

    def run(self, *command: object, host: str = "H1", seconds: float = 120.0, statuses: Sequence[int] = (0,)) -> str:
        """Run a program to its end at a host; return its output, or fail. `ibqueryerrors` ends with 1 at errors."""
        with tempfile.TemporaryDirectory(dir=self.folder) as here:
            done = subprocess.run(
                [*map(str, command)],
                check=False,
                env=self.env(host),
                cwd=here,
                capture_output=True,
                text=True,
                timeout=seconds,
            )
        assert done.returncode in statuses, f"{command}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def opensm(self, host: str = "H1") -> None:
        """Run a subnet manager once, which assigns a LID to each port."""
        self.run("opensm", "-o", "-f", self.folder / "opensm.log", host=host)

    @contextmanager
    def manager(self, host: str = "H1") -> Iterator[None]:
        """Run a subnet manager until the end of the block; the subnet is up when the block begins."""
        log, output = self.folder / "manager.log", self.folder / "manager.out"
        log.unlink(missing_ok=True)
        with (
            output.open("wb") as out,
            subprocess.Popen(
                ["opensm", "-d2", "-f", str(log)],
                env=self.env(host),
                cwd=self.folder,
                stdout=out,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            try:
                end = monotonic() + 60
                while not (log.exists() and "SUBNET UP" in log.read_text(errors="replace")):
                    assert process.poll() is None, output.read_text(errors="replace")[-2000:]
                    assert monotonic() < end, "opensm does not bring the subnet up"
                    sleep(0.02)
                yield
            finally:
                process.kill()

    def discover(self, host: str = "H1") -> Discovered:
        """Return the output of `ibnetdiscover`."""
        return links_of_ibnetdiscover(self.run("ibnetdiscover", host=host))

    def unlink(self, node: str, port: int | None = None) -> None:
        """Unplug a cable, or all cables of a node."""
        self.command(f"Unlink {_at(node, port)}")

    def relink(self, node: str, port: int | None = None) -> None:
        """Plug in again what was unplugged."""
        self.command(f"ReLink {_at(node, port)}")

    def set_counter(self, node: str, port: int, counter: str, value: int) -> None:
        """Set a counter, such as `PortCounters.SymbolErrorCounter`."""
        self.command(f"PerformanceSet {_at(node, port)} {counter}={value}")

    def error_rate(self, node: str, percent: int, port: int | None = None) -> None:
        """Make a node, or one of its ports, drop a share of the received datagrams."""
        self.command(f"Error {_at(node, port)} {percent}")

    def command(self, line: str) -> str:
        """Send a command to the console and return its output; fail if the console rejects it."""
        assert len(line) < 126, "the console reads no longer lines"
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert not re.search(r"^# ", answer, re.MULTILINE), f"{line}: {answer}"
        return answer

    def _answer(self) -> str:
        end = monotonic() + 60
        while True:
            text = (self.folder / "console").read_text(errors="replace")[self._read :]
            if PROMPT in text:
                self._read += text.index(PROMPT) + len(PROMPT)
                return text[: text.index(PROMPT)]
            complaints = (self.folder / "complaints").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, f"ibsim ended: {text[-2000:]}{complaints}"
            assert monotonic() < end, f"ibsim does not answer: {text[-2000:]}{complaints}"
            sleep(0.005)

    def ready(self) -> None:
        """Wait until it is ready: it prompts before its sockets are open, but processes commands only after."""
        self._answer()
        self.command("Verbose 0")


def _at(node: str, port: int | None) -> str:
    return f'"{node}"' if port is None else f'"{node}"[{port}]'


def _size_options(net: str) -> Sequence[str]:
    """Return the options of ibsim for the size of a net."""
    sizes = [int(size) + 1 for size in re.findall(r"^(?:Switch|Hca)\s+(\d+)", net, re.MULTILINE)]
    switches = len(re.findall(r"^Switch", net, re.MULTILINE))
    wanted = {"-N": len(sizes), "-S": switches, "-P": sum(sizes), "-L": max(1024, 2 * sum(sizes))}
    return [text for option, number in wanted.items() for text in (option, str(number + 8))]


@contextmanager
def simulator(net: str) -> Iterator[Simulator]:
    """Simulate a net until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="fabric-ibsim-"))
    try:
        (folder / "net").write_text(net)
        command = ["ibsim", "-s", *_size_options(net), str(folder / "net")]
        env = {**os.environ, "PATH": PATH, "IBSIM_SOCKNAME": folder.name}
        with (
            (folder / "console").open("wb") as out,
            (folder / "complaints").open("wb") as complaints,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=complaints, env=env) as process,
        ):
            try:
                one = Simulator(folder, net, process)
                one.ready()
                yield one
            finally:
                process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
