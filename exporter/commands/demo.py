"""The command `demo`: an exporter and a simulated cluster with moving traffic, in one process."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.commands.demo_directory import demo_directory
from exporter.commands.flags import DEFAULT_LISTEN_ADDRESS, add_log_flags, add_web_flags, listen_addresses
from exporter.commands.terminal import BOLD, PLAIN, YELLOW, print_lines
from exporter.config.errors import system_errors_as_user_errors
from exporter.daemon import log
from exporter.simulator.faults import FAULTS

if TYPE_CHECKING:
    from exporter.daemon.daemon import Daemon
    from exporter.daemon.settings import Settings
    from exporter.simulator.cluster import Cluster

HELP = "serve simulated devices with moving traffic; needs no hardware"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    add_web_flags(parser)
    add_log_flags(parser)
    parser.add_argument(
        "--demo.directory",
        dest="directory",
        type=Path,
        metavar="DIR",
        help="new or empty directory for the simulated host, not removed at the end (default a temporary one)",
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # the default one breaks names at their hyphens
    width = max(map(len, FAULTS)) + 1
    parser.epilog = "faults:\n" + "\n".join(f"  {name + ':':{width}} {text}" for name, text in FAULTS.items())
    parser.add_argument(
        "--demo.fault",
        dest="faults",
        action="append",
        default=[],
        choices=FAULTS,
        metavar="FAULT",
        help="one of the faults below, repeatable",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP."""
    log.set_up(arguments.log_level, arguments.log_format)
    asyncio.run(
        serve(
            directory=arguments.directory,
            listen_addresses=listen_addresses(arguments),
            telemetry_path=arguments.telemetry_path,
            web_config_file=arguments.web_config_file,
            max_requests=arguments.max_requests,
            faults=arguments.faults,
        )
    )
    return 0


def settings(
    cluster: "Cluster",
    *,
    listen_addresses: Sequence[str] = ("localhost:0",),
    telemetry_path: str = "/metrics",
    web_config_file: Path | None = None,
    max_requests: int = 40,
) -> "Settings":
    """Return the settings of a daemon that reads a started cluster."""
    from exporter.daemon.settings import Settings

    return Settings(
        config_file=cluster.config_file,
        listen_addresses=tuple(listen_addresses),
        telemetry_path=telemetry_path,
        web_config_file=web_config_file,
        max_requests=max_requests,
        sysfs=cluster.sysfs,
        procfs=cluster.procfs,
        nic_replay=cluster.recordings,
    )


async def serve(
    *,
    directory: Path | None = None,
    listen_addresses: Sequence[str] = (DEFAULT_LISTEN_ADDRESS,),
    telemetry_path: str = "/metrics",
    web_config_file: Path | None = None,
    max_requests: int = 40,
    faults: Sequence[str] = (),
) -> None:
    """Serve the demo until SIGTERM, SIGINT, or SIGHUP, which a closing terminal sends.

    Args:
        directory: New or empty directory for the simulated host, not removed; None for a temporary one.
        listen_addresses: See `--web.listen-address`.
        telemetry_path: See `--web.telemetry-path`.
        web_config_file: See `--web.config.file`.
        max_requests: See `--web.max-requests`.
        faults: Faults of the cluster, see `FAULTS`.

    Raises:
        UserError: The directory cannot be written or is not empty, or an address is invalid or cannot be listened on.
    """
    from exporter.daemon.daemon import Daemon
    from exporter.simulator.cluster import Cluster

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        folder = await stack.enter_async_context(demo_directory(directory, "--demo.directory"))
        with _simulation_errors(folder):
            cluster = await stack.enter_async_context(Cluster(folder, faults=faults))
        daemon = Daemon(
            settings(
                cluster,
                listen_addresses=listen_addresses,
                telemetry_path=telemetry_path,
                web_config_file=web_config_file,
                max_requests=max_requests,
            )
        )
        await daemon.start()
        stack.push_async_callback(daemon.stop)
        print_lines(sys.stderr, _banner(cluster, _url(daemon), telemetry_path))
        with _simulation_errors(folder):
            await _simulate_until(stopping, cluster)


def _simulation_errors(folder: Path) -> AbstractContextManager[None]:
    return system_errors_as_user_errors(
        f"the simulated devices in {folder}", "free disk space or ports, or name another --demo.directory"
    )


def _url(daemon: "Daemon") -> str:
    """Return the URL of the daemon on this machine."""
    scheme = "http" if daemon.web.tls is None else "https"
    host, port = daemon.web.addresses[0]
    if host in {"0.0.0.0", "::"}:  # noqa: S104  # compared, not bound
        host = "localhost"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def _simulate_until(stopping: asyncio.Event, cluster: "Cluster") -> None:
    """Run the cluster until `stopping` is set; raise what the cluster raises."""
    simulation = asyncio.ensure_future(cluster.run())
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([simulation, stop], return_when=asyncio.FIRST_COMPLETED)
        if simulation.done():
            simulation.result()
    finally:
        for task in (simulation, stop):
            task.cancel()
        await asyncio.wait([simulation, stop])


def _banner(cluster: "Cluster", url: str, telemetry_path: str) -> list[str]:
    """Return the lines printed at the start, with colours."""
    faults = cluster.training.faults
    lines = [
        f"{BOLD}fabric-exporter demo{PLAIN}: gpu-001 with eight rails and a job, leaf-01 (SNMP), leaf-02 (Onyx)",
        f"  open      {BOLD}{url}/{PLAIN} (page) and {BOLD}{url}{telemetry_path}{PLAIN} (metrics)",
        f"  files     {cluster.config_file.parent} (the configuration is {cluster.config_file.name})",
    ]
    lines += [f"  {YELLOW}fault{PLAIN}     {name}: {FAULTS[name]}" for name in FAULTS if name in faults]
    if not faults:
        lines.append(f"  faults    none; try --demo.fault {' | '.join(FAULTS)}")
    return [*lines, "  stop      Ctrl-C"]
