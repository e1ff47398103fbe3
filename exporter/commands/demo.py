"""The demo: an exporter beside a simulated cluster whose traffic moves, in one process, to look at without hardware."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from exporter.daemon.daemon import Daemon, Settings
from exporter.simulator.cluster import Cluster
from exporter.simulator.faults import FAULTS

_BOLD, _YELLOW, _PLAIN = "\033[1m", "\033[33m", "\033[0m"


def settings(
    cluster: Cluster,
    *,
    listen_addresses: Sequence[str] = ("localhost:0",),
    telemetry_path: str = "/metrics",
    web_config_file: Path | None = None,
    max_requests: int = 40,
) -> Settings:
    """Give the settings of a daemon that watches a started cluster; the rest are those of the command line."""
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


async def run(
    *,
    directory: Path | None = None,
    listen_addresses: Sequence[str] = (":10315",),
    telemetry_path: str = "/metrics",
    web_config_file: Path | None = None,
    max_requests: int = 40,
    faults: Sequence[str] = (),
) -> None:
    """Serve the demo until told to stop by SIGTERM, SIGINT, or SIGHUP, which is the terminal that closes.

    Args:
        directory: New or empty folder for the simulated host, which is left there; None for one that is removed.
        listen_addresses: As of the command line, like all that follow.
        telemetry_path: The same.
        web_config_file: The same.
        max_requests: The same.
        faults: What is wrong with the cluster, see `FAULTS`.

    Raises:
        ValueError: The directory is not empty, or a fault or address is none.
        OSError: The directory cannot be written, or an address not be had.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        folder = await stack.enter_async_context(_folder(directory))
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
        _tell(_welcome(cluster, _url(daemon), telemetry_path))
        await _until(stopping, cluster)


def _url(daemon: Daemon) -> str:
    """Give the URL by which the daemon is reached from this machine."""
    scheme = "http" if daemon.web.tls is None else "https"
    host, port = daemon.web.addresses[0]
    if host in {"0.0.0.0", "::"}:  # noqa: S104  # compared, not bound
        host = "localhost"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def _until(stopping: asyncio.Event, cluster: Cluster) -> None:
    """Move the cluster until told to stop; what goes wrong with it is raised."""
    moving = asyncio.ensure_future(cluster.run())
    told = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([moving, told], return_when=asyncio.FIRST_COMPLETED)
        if moving.done():
            moving.result()
    finally:
        for one in (moving, told):
            one.cancel()
        await asyncio.wait([moving, told])


@asynccontextmanager
async def _folder(directory: Path | None) -> AsyncIterator[Path]:
    """Give the folder to live in: the one asked for, or a temporary one, which goes at the end."""
    if directory is None:
        temporary = await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="fabric-exporter-demo-")
        try:
            yield Path(temporary.name)
        finally:
            await asyncio.to_thread(temporary.cleanup)
        return
    yield await asyncio.to_thread(_made, directory)


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise ValueError(f"--demo.directory: {directory} is not empty; name a new folder, or remove what is in it")
    return directory.resolve()


def _welcome(cluster: Cluster, url: str, telemetry_path: str) -> list[str]:
    """Say what there is to see, with marks that a terminal shows as colours."""
    faults = cluster.training.faults
    lines = [
        f"{_BOLD}fabric-exporter demo{_PLAIN}: gpu-001 with eight rails and a job, leaf-01 (SNMP), leaf-02 (Onyx)",
        f"  look at   {_BOLD}{url}/{_PLAIN} (page) and {_BOLD}{url}{telemetry_path}{_PLAIN} (metrics)",
        f"  files     {cluster.config_file.parent} (the configuration is {cluster.config_file.name})",
    ]
    lines += [f"  {_YELLOW}fault{_PLAIN}     {name}: {FAULTS[name]}" for name in FAULTS if name in faults]
    if not faults:
        lines.append(f"  faults    none; try --demo.fault {' | '.join(FAULTS)}")
    return [*lines, "  stop      Ctrl-C"]


def _tell(lines: Sequence[str]) -> None:
    """Print for people; colours on a terminal alone."""
    text = "".join(f"{line}\n" for line in lines)
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        for mark in (_BOLD, _YELLOW, _PLAIN):
            text = text.replace(mark, "")
    sys.stderr.write(text)
    sys.stderr.flush()
