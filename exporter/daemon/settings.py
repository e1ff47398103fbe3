"""The settings of a daemon that come from its flags."""

import socket
from dataclasses import dataclass, field
from pathlib import Path

from exporter.config.errors import ConfigError
from exporter.config.shard import Shard


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of the flags of `run`; `sockets` listen in place of the addresses."""

    config_file: Path | None = None
    listen_addresses: tuple[str, ...] = (":10315",)
    sockets: tuple[socket.socket, ...] = ()
    telemetry_path: str = "/metrics"
    web_config_file: Path | None = None
    max_requests: int = 40
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    nic_replay: Path | None = None
    dev: Path | None = None
    shard: Shard = field(default_factory=Shard)


def check_roots(settings: Settings) -> None:
    """Check that sysfs, procfs and /dev are mounted at their paths: without them a host seems to have no hardware.

    Raises:
        ConfigError: One is not.
    """
    folders = [("--path.sysfs", settings.sysfs / "class"), ("--path.procfs", settings.procfs)]
    folders += [] if settings.dev is None else [("--path.dev", settings.dev)]
    for flag, folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{flag}: there is no directory {folder}; check the flag, and in a container the mount")
