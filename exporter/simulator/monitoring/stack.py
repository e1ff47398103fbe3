"""The monitoring of the simulated fabric: which programs run, with which configuration, and when they end.

It is used with `async with`, within that of the fabric; `follow` ends and starts what the fabric's faults end.
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, Self

from exporter.simulator.fabric.cluster import FabricCluster, HostPaths
from exporter.simulator.fabric.conditions import MonitoringState
from exporter.simulator.monitoring import files
from exporter.simulator.monitoring.infiniband import SubnetTools, exporter_config, in_subnet, subnet
from exporter.simulator.monitoring.listening_ports import ListeningPorts
from exporter.simulator.monitoring.programs import Program, Programs
from exporter.simulator.monitoring.receiver import Notice, Receiver
from exporter.simulator.web_server import WebServer

RULES = "fabric*.yml"
"""Rule files in the folder of rules."""

ROUTES = "alertmanager.yml"

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where brokers are installed, which the path of a user may lack."""


class Installed(NamedTuple):
    """Paths of the programs that are installed; empty for those that are not.

    Attributes:
        mosquitto: The broker.
        prometheus: Prometheus.
        alertmanager: Alertmanager.
        subnet: Those of an InfiniBand fabric; None if one of them is missing.
    """

    mosquitto: str
    prometheus: str
    alertmanager: str
    subnet: SubnetTools | None = None

    @classmethod
    def find(cls) -> Self:
        """Look for the programs, also in the folders of administrators. Debian has another name for Alertmanager."""
        tools = SubnetTools.of(_which("ibsim"), _which("opensm"))
        return cls(_which("mosquitto"), _which("prometheus"), _which("alertmanager", "prometheus-alertmanager"), tools)


class Broker(NamedTuple):
    """The broker of hosts and collector.

    Attributes:
        address: Where clients connect; empty for no broker.
        port: Port on which it is started on loopback; 0 for one that runs already.
    """

    address: str = ""
    port: int = 0


class Endpoint(NamedTuple):
    """A part that listens: its name, and its URL."""

    name: str
    url: str


class Monitoring:
    """The running programs.

    Attributes:
        programs: The programs.
        endpoints: Where they listen, for users.
        missing: What does not run, and why.
    """

    def __init__(
        self,
        cluster: FabricCluster,
        folder: Path,
        *,
        installed: Installed,
        ports: ListeningPorts,
        broker: Broker,
        everywhere: bool,
        interval: str,
        rules: Path | None,
        infiniband: bool,
        report: Callable[[Notice], None],
    ) -> None:
        """Plan the programs; `async with` starts them.

        Args:
            cluster: The running fabric.
            folder: Folder for files of the programs.
            installed: The programs that are installed.
            ports: Ports to listen on.
            broker: The broker.
            everywhere: Whether exporters listen on all addresses, not on loopback alone.
            interval: Time between scrapes.
            rules: Folder of rules and of the configuration of Alertmanager; None for no Prometheus.
            infiniband: Whether there is an InfiniBand fabric too.
            report: Called with each alert that a receiver gets.
        """
        self.programs = Programs()
        self.endpoints: list[Endpoint] = []
        self._cluster, self._folder, self._installed, self._interval = cluster, folder, installed, interval
        self._listen = "" if everywhere else "127.0.0.1"
        self.missing = list(_missing(installed, rules, broker, infiniband=infiniband))
        self._rules = rules if installed.prometheus else None
        self._receiver = Receiver(report)
        self._open = AsyncExitStack()
        self._broker: list[Program] = []
        if broker.port:
            path = self._file("broker.conf", files.broker(broker.port))
            self._broker = [self._program("broker", (installed.mosquitto, "-c", str(path)), broker.port, "")]
        targets: dict[str, str] = {}
        self._exporters = [self._host(name, paths, ports.take(), targets) for name, paths in cluster.hosts.items()]
        self._poller = [self._exporter("poller", cluster.poller_config, ports.take(), targets)]
        if broker.address:
            config = self._file("collector.yaml", files.collector(broker.address))
            self._exporters.append(self._exporter("collector", config, ports.take(), targets))
        tools = installed.subnet if infiniband else None
        self._subnet = [] if tools is None else self._infiniband(tools, ports.take(), targets)
        self._targets, self._ports = targets, ports

    async def __aenter__(self) -> Self:
        """Start all programs.

        Raises:
            UserError: One ended, or does not respond.
            OSError: A file cannot be written.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.programs)
            await self.programs.start(self._broker)
            await self.programs.start(self._exporters)
            await self.programs.start(self._poller)
            for program in self._subnet:
                await self.programs.start([program])
            if self._rules is not None:
                address = ""
                if self._installed.alertmanager:
                    server = await stack.enter_async_context(WebServer(self._receiver))
                    stack.push_async_callback(
                        self.programs.stop, [program := self._alertmanager(self._rules, server.url)]
                    )
                    await self.programs.start([program])
                    address = f"127.0.0.1:{program.port}"
                await self.programs.start([self._prometheus(self._rules, address)])
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all programs."""
        await self._open.aclose()

    async def follow(self, state: MonitoringState) -> None:
        """Stop or start the poller and the broker, as a fault has it.

        Raises:
            UserError: One does not start again.
        """
        for wanted, programs in ((state.broker, self._broker), (state.poller, self._poller)):
            running = [one for one in programs if one.name in self.programs.pids]
            if wanted and not running:
                await self.programs.start(programs)
            elif not wanted and running:
                await self.programs.stop(programs)

    def _host(self, name: str, paths: HostPaths, port: int, targets: dict[str, str]) -> Program:
        flags = ("--path.sysfs", paths.sysfs, "--path.procfs", paths.procfs, "--path.nic-replay", paths.recordings)
        return self._exporter(name, paths.config, port, targets, flags)

    def _infiniband(self, tools: SubnetTools, port: int, targets: dict[str, str]) -> list[Program]:
        """Return the programs of an InfiniBand fabric, in the order in which they start."""
        folder = self._folder / "infiniband"
        programs = subnet(tools, folder)
        exporter = self._exporter("infiniband", exporter_config(folder, self._interval), port, targets)
        return [*programs, in_subnet(exporter, tools, folder)]

    def _exporter(
        self, name: str, config: Path, port: int, targets: dict[str, str], flags: Sequence[str | Path] = ()
    ) -> Program:
        address = targets[name] = f"127.0.0.1:{port}"
        self.endpoints.append(Endpoint(name, f"http://{address}/"))
        listen = f"{self._listen}:{port}"
        words = ("-m", "exporter", "run", "--config.file", config, "--web.listen-address", listen, *flags)
        return self._program(name, (sys.executable, *map(str, words)), port, "/-/healthy")

    def _alertmanager(self, rules: Path, receiver: str) -> Program:
        text = files.alertmanager((rules / ROUTES).read_text(encoding="utf-8"), receiver)
        return self._server("Alertmanager", self._installed.alertmanager, text, "storage", "--cluster.listen-address=")

    def _prometheus(self, rules: Path, alertmanager: str) -> Program:
        text = files.prometheus(self._targets, sorted(rules.glob(RULES)), alertmanager, self._interval)
        return self._server("Prometheus", self._installed.prometheus, text, "storage.tsdb", "--log.level=warn")

    def _server(self, name: str, path: str, config: str, storage: str, flag: str) -> Program:
        """Return a program of Prometheus's project: with its configuration, and the flag that names its storage."""
        port, folder = self._ports.take(), self._folder / name.lower()
        self.endpoints.append(Endpoint(name, f"http://127.0.0.1:{port}/"))
        flags = (
            f"--config.file={self._file(f'{folder.name}.yml', config)}",
            f"--{storage}.path={folder}",
            f"--web.listen-address=127.0.0.1:{port}",
            flag,
        )
        return self._program(name, (path, *flags), port, "/-/ready")

    def _program(self, name: str, command: tuple[str, ...], port: int, ready: str) -> Program:
        return Program(name, command, port, ready, self._folder / f"{name.lower()}.log")

    def _file(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.write_text(text, encoding="utf-8")
        return path


def _missing(installed: Installed, rules: Path | None, broker: Broker, *, infiniband: bool) -> Iterator[str]:
    """Yield what does not run, and why."""
    if not broker.address:
        yield "broker and collector: mosquitto is not installed, so each host judges its own ranks"
    if not installed.prometheus:
        yield "Prometheus and alerts: prometheus is not installed"
    elif rules is None:
        yield "Prometheus and alerts: the rules are in the source tree; name their folder by --rules"
    elif not installed.alertmanager:
        yield "messages: Alertmanager is not installed; Prometheus shows the alerts"
    if infiniband and installed.subnet is None:
        yield "InfiniBand: ibsim, its library or opensm is not installed"


def _which(*names: str) -> str:
    return next((found for name in names if (found := shutil.which(name) or shutil.which(name, path=SBIN))), "")
