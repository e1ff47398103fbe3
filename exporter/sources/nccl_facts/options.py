"""Configuration of the source `nccl_facts`."""

import msgspec

from exporter.config.addresses import is_host_name, is_ip_address
from exporter.config.errors import RuleError
from exporter.config.units import Duration
from exporter.core.source import Options
from exporter.nccl.ras_protocol import MIN_INTERVAL_SECONDS, PORT
from exporter.sources.common.job_files import INSPECTOR_FOLDER, LOG_FOLDER

LOOPBACK = ("::1", "127.0.0.1")
"""Addresses of localhost: the service listens on one of them."""


class RasOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of RAS polling; polling can crash jobs, see the documentation.

    Attributes:
        enabled: Whether RAS is polled.
        address: Address of the service in this host's network namespace; localhost means both loopback addresses.
        interval: Time between two polls.
        force: Whether to poll unknown releases, and those known to crash.
        sole: Whether to poll although no log shows that rank 0 of the job runs here; no other host must poll then.
    """

    enabled: bool = False
    address: str = f"localhost:{PORT}"
    interval: Duration = Duration(30.0)
    force: bool = False
    sole: bool = False

    def __post_init__(self) -> None:
        """Validate interval and address.

        Raises:
            RuleError: The interval is too short, or the address malformed.
        """
        if self.interval < MIN_INTERVAL_SECONDS:
            raise RuleError(["interval"], f"is {self.interval:g} s; give {MIN_INTERVAL_SECONDS:g}s or more")
        host, _, port = self.address.rpartition(":")
        is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16
        is_bracketed = host.startswith("[") and host.endswith("]") and is_ip_address(host[1:-1])
        if not (is_port and (is_bracketed or is_host_name(host))):
            raise RuleError(
                ["address"], f"is {self.address!r}; give a host and a port, such as localhost:{PORT} or [::1]:{PORT}"
            )

    @property
    def endpoint(self) -> tuple[tuple[str, ...], int]:
        """Hosts to try, and the port."""
        host, _, port = self.address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        return (LOOPBACK if host == "localhost" else (host,)), int(port)


class NcclFactsOptions(Options, frozen=True, kw_only=True):
    """Configuration of `sources.nccl_facts`; include and exclude are names of jobs.

    Attributes:
        logs: NCCL's logs, or complete outputs of jobs; folders of them, or shell patterns of either.
        textfiles: Folders of Inspector's text files, or shell patterns of folders.
        ras: RAS polling.
    """

    interval: Duration = Duration(5.0)
    logs: tuple[str, ...] = (LOG_FOLDER,)
    textfiles: tuple[str, ...] = (INSPECTOR_FOLDER,)
    ras: RasOptions = RasOptions()
