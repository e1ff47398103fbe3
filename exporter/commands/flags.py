"""Flags that several commands have: configuration file, sysfs, web server, log and SNMP credentials."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from exporter.daemon import log

if TYPE_CHECKING:
    from exporter.sources.switch.options import Snmp

Parsed = TypeVar("Parsed")

DEFAULT_LISTEN_ADDRESS = ":10315"

MAX_DIGITS = 12
"""Digits of a count in a flag."""

SNMP_FLAGS = MappingProxyType(
    {
        "version": "SNMP version: 1, 2c (default) or 3",
        "community_file": "file that contains the community",
        "community_env": "environment variable that contains the community",
        "user": "user name of SNMPv3",
        "auth": "authentication protocol of SNMPv3: md5, sha, sha224, sha256, sha384 or sha512",
        "auth_password_file": "file that contains the authentication password",
        "priv": "privacy protocol of SNMPv3: des, aes, aes192, aes256, aes192c or aes256c",
        "priv_password_file": "file that contains the privacy password",
    }
)
"""Keys of a target's `snmp`, as flags. None takes a password, since other users can read flags."""


def add_config_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--config.file`."""
    parser.add_argument(
        "--config.file", dest="config_file", type=Path, metavar="FILE", help="configuration file (YAML)"
    )


def add_path_flag(
    parser: argparse.ArgumentParser, name: str, text: str, default: Path | None = None, metavar: str = "DIR"
) -> None:
    """Add `--path.NAME`, where to read something of the host."""
    parser.add_argument(
        f"--path.{name}", dest=name.replace("-", "_"), type=Path, default=default, metavar=metavar, help=text
    )


def add_sysfs_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--path.sysfs`."""
    add_path_flag(parser, "sysfs", "mount point of sysfs (default /sys)", Path("/sys"))


def add_host_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--path.sysfs`, `--path.procfs` and `--path.nic-replay`."""
    add_sysfs_flag(parser)
    add_path_flag(parser, "procfs", "mount point of procfs (default /proc)", Path("/proc"))
    add_path_flag(parser, "nic-replay", "read NICs from recordings in this directory instead of the kernel")


def add_web_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the web server, which are those of Prometheus's own exporters."""
    parser.add_argument(
        "--web.listen-address",
        dest="listen_addresses",
        action="append",
        metavar="ADDRESS",
        help=f"address to listen on, repeatable (default {DEFAULT_LISTEN_ADDRESS})",
    )
    parser.add_argument(
        "--web.telemetry-path",
        dest="telemetry_path",
        default="/metrics",
        metavar="PATH",
        help="path of the metrics (default /metrics)",
    )
    parser.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="web configuration file with TLS and users, in the format of Prometheus's exporter-toolkit",
    )
    parser.add_argument(
        "--web.max-requests",
        dest="max_requests",
        type=_max_requests,
        default=40,
        metavar="N",
        help="maximum number of parallel scrape requests, 0 for no limit (default 40)",
    )


def listen_addresses(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the addresses of `--web.listen-address`, or the default one."""
    return tuple(arguments.listen_addresses or [DEFAULT_LISTEN_ADDRESS])


def flag_type(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """Return a type of argparse, whose error is that of a parser of units: argparse shows no text of a ValueError."""

    def read(text: str) -> Parsed:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    return read


def count_type(text: str) -> int:
    """Parse a whole number above zero, as a type of argparse."""
    if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS or int(text) == 0:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r}: expected a whole number above zero, of {MAX_DIGITS} digits at most"
        )
    return int(text)


def _max_requests(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text) or sys.maxsize


def add_log_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--log.level` and `--log.format`."""
    parser.add_argument(
        "--log.level",
        dest="log_level",
        default="info",
        choices=(*log.LEVELS, *log.ALIASES),
        help="minimum level of logged messages (default info)",
    )
    parser.add_argument(
        "--log.format",
        dest="log_format",
        default="logfmt",
        choices=log.FORMATS,
        help="format of log lines (default logfmt)",
    )


def add_snmp_flags(parser: argparse.ArgumentParser) -> None:
    """Add one `--snmp.…` flag for each of SNMP_FLAGS."""
    for name, text in SNMP_FLAGS.items():
        parser.add_argument(f"--snmp.{name.replace('_', '-')}", dest=f"snmp_{name}", metavar="VALUE", help=text)


def snmp_options(arguments: argparse.Namespace) -> "Snmp | None":
    """Return the options that the `--snmp.…` flags describe; None where none of them is set.

    Raises:
        ConfigError: A value is wrong, or one is missing.
    """
    from exporter.config.yaml_reader import convert
    from exporter.sources.switch.options import Snmp

    given = {name: value for name in SNMP_FLAGS if (value := getattr(arguments, f"snmp_{name}")) is not None}
    options: Snmp | None = convert(given, Snmp, "--snmp.") if given else None
    return options
