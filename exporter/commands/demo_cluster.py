"""The command `demo-cluster`: a simulated cluster with all that monitors it, from counters to pages, on loopback."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from exporter.commands.demo_directory import demo_directory
from exporter.commands.flags import flag_type
from exporter.commands.terminal import BOLD, CYAN, GREEN, PLAIN, RED, YELLOW, print_lines
from exporter.config.errors import UserError, system_errors_as_user_errors
from exporter.config.units import Duration, at_least
from exporter.simulator.fabric.fault_table import KINDS
from exporter.simulator.fabric.faults import GRAMMAR

if TYPE_CHECKING:
    from exporter.simulator.fabric.cluster import FabricCluster
    from exporter.simulator.monitoring.receiver import Notice
    from exporter.simulator.monitoring.stack import Monitoring

HELP = "run a simulated cluster of four hosts with exporters, broker, Prometheus and Alertmanager on loopback"

LAST_FIRST_PORT = 65_500
"""Highest first port: the programs need less than thirty after it."""

FIRST_PORT = 10315

INTERVAL = "5s"

TICK = 1.0
"""Seconds between updates of devices."""

MAX_TICK = 5.0
"""Maximum simulated time of one update: the hours of a suspended machine are not simulated afterwards."""

LEAST_SWITCH_INTERVAL = 5.0
"""Seconds: a poll of a simulated switch takes some on a busy machine, and a late log-in is not tried again soon."""

SLOW = "60s"
"""Interval of PCIe links and optical modules: the shortest at which modules may be read."""

SEVERITY_COLOURS = MappingProxyType({"critical": RED, "warning": YELLOW, "info": CYAN})


@dataclass(frozen=True, slots=True)
class Options:
    """Values of the flags.

    Attributes:
        faults: Faults, see `GRAMMAR`.
        directory: New or empty directory for all files, which is not removed; None for a temporary one.
        first_port: First of the ports; 0 for free ones.
        interval: Time between reads, and between scrapes.
        rules: Folder of rules and of the configuration of Alertmanager.
        nccl_log: Whether the job writes NCCL's logs.
        infiniband: Whether there is an InfiniBand fabric too.
        broker: Address of a broker that runs already; empty to start one.
        everywhere: Whether exporters listen on all addresses, not on loopback alone.
    """

    faults: Sequence[str] = ()
    directory: Path | None = None
    first_port: int = FIRST_PORT
    interval: str = INTERVAL
    rules: Path | None = None
    nccl_log: bool = True
    infiniband: bool = True
    broker: str = ""
    everywhere: bool = False


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # the default one breaks names at their hyphens
    width = max(map(len, KINDS)) + 1
    parser.epilog = f"faults, as {GRAMMAR}, such as pause-storm:gpu-002/4@2m-5m:\n" + "\n".join(
        f"  {name + ':':{width}} {f'{kind.default} {kind.text}'.strip()}" for name, kind in KINDS.items()
    )
    parser.add_argument(
        "--fault",
        dest="faults",
        action="append",
        default=[],
        metavar="FAULT",
        help="one of the faults below, repeatable",
    )
    parser.add_argument(
        "--interval",
        type=_interval,
        default=INTERVAL,
        metavar="DURATION",
        help=f"time between reads and between scrapes (default {INTERVAL}); switches and InfiniBand are read each"
        f" {LEAST_SWITCH_INTERVAL:g} and 3 s at most",
    )
    parser.add_argument(
        "--rules",
        type=Path,
        metavar="DIR",
        help="folder with rules and alertmanager.yml, such as a copy made by alerts/build.py (default those of the"
        " source tree)",
    )
    parser.add_argument(
        "--first-port",
        type=_first_port,
        default=FIRST_PORT,
        metavar="PORT",
        help=f"first of the consecutive ports on 127.0.0.1, 0 for free ones (default {FIRST_PORT})",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="new or empty directory for all files, not removed at the end (default a temporary one)",
    )
    _add_parts(parser)
    _add_network(parser)


def _add_parts(parser: argparse.ArgumentParser) -> None:
    """Add the flags that leave something out."""
    parser.add_argument(
        "--no-nccl-log",
        dest="nccl_log",
        action="store_false",
        help="the job writes no log of NCCL, as without NCCL_DEBUG",
    )
    parser.add_argument(
        "--no-infiniband",
        dest="infiniband",
        action="store_false",
        help="no InfiniBand fabric of ibsim beside the cluster",
    )


def _add_network(parser: argparse.ArgumentParser) -> None:
    """Add the flags for programs that run elsewhere, as in containers of their own."""
    parser.add_argument(
        "--broker",
        default="",
        metavar="HOST:PORT",
        help="MQTT broker that runs already (default one is started, if mosquitto is installed)",
    )
    parser.add_argument(
        "--all-addresses",
        dest="everywhere",
        action="store_true",
        help="exporters listen on all addresses, not on 127.0.0.1 alone",
    )


def _interval(text: str) -> str:
    """Validate a duration that Prometheus understands too, which has no decimals."""
    flag_type(Duration.parse)(text)
    if "." in text:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of units, such as 1500ms")
    return text


def _first_port(text: str) -> int:
    """Validate a port after which there is room for those of all programs."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(LAST_FIRST_PORT)) or int(text) > LAST_FIRST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a port of at most {LAST_FIRST_PORT}, or 0 for free ones")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM, SIGINT, or SIGHUP, which a closing terminal sends."""
    _check_faults(arguments.faults, ends_broker=not arguments.broker)
    options = Options(
        arguments.faults,
        arguments.directory,
        arguments.first_port,
        arguments.interval,
        _rules(arguments.rules),
        arguments.nccl_log,
        arguments.infiniband,
        _broker(arguments.broker),
        arguments.everywhere,
    )
    asyncio.run(serve(options))
    return 0


def _check_faults(faults: Sequence[str], *, ends_broker: bool) -> None:
    """Check faults.

    Args:
        faults: Faults, see `GRAMMAR`.
        ends_broker: Whether the broker is one of the demo, which a fault can end.

    Raises:
        UserError: One is invalid.
    """
    from exporter.simulator.fabric.conditions import MonitoringState
    from exporter.simulator.fabric.faults import parse_fault
    from exporter.simulator.fabric.topology import Shape, Topology

    topology = Topology(Shape())
    for text in faults:
        try:
            state = parse_fault(text, topology).kind.state
        except ValueError as error:
            raise UserError(f"--fault: {error}") from None
        if isinstance(state, MonitoringState) and not (state.broker or ends_broker):
            raise UserError(f"--fault: {text!r} ends the broker of the demo, which has none; leave out --broker")


def _broker(text: str) -> str:
    """Return the address of a broker that runs already, as is; empty for none.

    Raises:
        UserError: It is not a valid address.
    """
    from exporter.mqtt.options import parse_broker

    if text:
        try:
            parse_broker(text, tls=False)
        except ValueError as error:
            raise UserError(f"--broker: {error}") from None
    return text


def _rules(given: Path | None) -> Path | None:
    """Return the folder of rules: the one that is given, or that of the source tree; None if that is not here.

    Raises:
        UserError: The given folder lacks a file.
    """
    from exporter.simulator.monitoring.stack import ROUTES, RULES

    folder = Path(__file__).parents[2] / "alerts" if given is None else given
    if (folder / ROUTES).is_file() and any(folder.glob(RULES)):
        return folder.resolve()
    if given is None:
        return None
    raise UserError(f"--rules: {given} has no {ROUTES} or no {RULES}; make a copy by alerts/build.py --output DIR")


async def serve(options: Options) -> None:
    """Run the demo until SIGTERM, SIGINT, or SIGHUP, which a closing terminal sends.

    Raises:
        UserError: The directory cannot be used, or a program cannot be started or ended.
    """
    from exporter.simulator.fabric.cluster import FabricCluster
    from exporter.simulator.monitoring.listening_ports import ListeningPorts
    from exporter.simulator.monitoring.stack import Broker, Installed, Monitoring

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    installed = Installed.find()
    async with AsyncExitStack() as stack:
        ports = stack.enter_context(ListeningPorts(options.first_port))
        folder = await stack.enter_async_context(demo_directory(options.directory, "--directory"))
        stack.enter_context(
            system_errors_as_user_errors(f"the demo in {folder}", "free disk space, or name a --directory")
        )
        broker = Broker(options.broker)
        if not options.broker and installed.mosquitto:
            port = ports.take()
            broker = Broker(f"127.0.0.1:{port}", port)
        cluster = FabricCluster(
            folder,
            faults=options.faults,
            interval=options.interval,
            switch_interval=at_least(options.interval, LEAST_SWITCH_INTERVAL),
            module_interval=SLOW,
            broker=broker.address or None,
            nccl_log=options.nccl_log,
        )
        await stack.enter_async_context(cluster)
        monitoring = Monitoring(
            cluster,
            folder,
            installed=installed,
            ports=ports,
            broker=broker,
            everywhere=options.everywhere,
            interval=options.interval,
            rules=options.rules,
            infiniband=options.infiniband,
            report=_Reporter(stopping),
        )
        if await _unless(stopping, stack.enter_async_context(monitoring)):
            print_lines(sys.stderr, _banner(cluster, monitoring, folder))
            await _run_until(stopping, cluster, monitoring)


async def _unless(stopping: asyncio.Event, starting: Coroutine[Any, Any, object]) -> bool:
    """Wait until all has started; cancel that, and return False, if it is to be stopped before."""
    start, stop = asyncio.ensure_future(starting), asyncio.ensure_future(stopping.wait())
    await asyncio.wait([start, stop], return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if start.done():
        start.result()
        return True
    start.cancel()
    await asyncio.wait([start])
    return False


async def _run_until(stopping: asyncio.Event, cluster: "FabricCluster", monitoring: "Monitoring") -> None:
    """Advance the cluster in real time, and end and start programs as its faults have it; raise what one raises."""
    tasks = [
        asyncio.ensure_future(one)
        for one in (
            _simulate(stopping, cluster),
            _follow(stopping, cluster, monitoring),
            monitoring.programs.failed(),
            stopping.wait(),
        )
    ]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stopping.set()
    simulating, *others = tasks
    await asyncio.wait([simulating])  # not cancelled, as its thread writes files
    for task in others:
        task.cancel()
    await asyncio.wait(others)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _simulate(stopping: asyncio.Event, cluster: "FabricCluster") -> None:
    since = monotonic()
    while not stopping.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), max(0.0, since + TICK - monotonic()))
        now = monotonic()
        seconds, since = now - since, now
        await cluster.advance(min(max(seconds, 1e-3), MAX_TICK))


async def _follow(stopping: asyncio.Event, cluster: "FabricCluster", monitoring: "Monitoring") -> None:
    while not stopping.is_set():
        await monitoring.follow(cluster.model.conditions.monitoring)
        await asyncio.sleep(TICK)


class _Reporter:
    """Prints alerts to standard output; stops the demo where that is closed."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping

    def __call__(self, notice: "Notice") -> None:
        colour = SEVERITY_COLOURS.get(notice.labels.get("severity", ""), PLAIN) if notice.status == "firing" else GREEN
        try:
            print_lines(sys.stdout, [f"{datetime.now():%H:%M:%S} {colour}{notice.line()}{PLAIN}"])  # noqa: DTZ005  # local time
        except OSError:
            self._stopping.set()


def _banner(cluster: "FabricCluster", monitoring: "Monitoring", folder: Path) -> list[str]:
    """Return the lines printed at the start, with colours."""
    topology, faults = cluster.model.topology, cluster.model.plan.faults
    width = max(len(one.name) for one in monitoring.endpoints)
    sizes = f"{len(topology.hosts)} hosts, {len(topology.leaves)} leaves, {len(topology.spines)} spines"
    lines = [
        f"{BOLD}fabric-exporter demo-cluster{PLAIN}: {sizes}, and a job on all GPUs",
        *(f"  {one.name:{width}}  {BOLD}{one.url}{PLAIN}" for one in monitoring.endpoints),
        f"  {'files':{width}}  {folder}",
        *(f"  {'without':{width}}  {text}" for text in monitoring.missing),
    ]
    lines += [f"  {YELLOW}{'fault':{width}}{PLAIN}  {one}" for one in faults]
    if not faults:
        lines.append(f"  {'faults':{width}}  none; try --fault late-rank:5@1m-10m, and --help for others")
    return [*lines, f"  {'stop':{width}}  Ctrl-C"]
