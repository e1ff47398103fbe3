"""Base of the readers of switch APIs: life of the client, reasons of its errors, and conversion of parsed values."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from exporter.config.secret import SecretError, read_secret
from exporter.config.units import watts_of_dbm
from exporter.core.source import SourceError
from exporter.core.table import Value, complete_sum
from exporter.sources.switch.merge import Family, PartialTable, PartialTableBuilder, Support
from exporter.sources.switch.metrics import PACKET_SUMS
from exporter.sources.switch.options import Login, Target
from exporter.sources.switch.readers.empty_cages import has_module, is_measured
from exporter.switch_api.errors import (
    InvalidResponseError,
    LoginBackoffError,
    LoginError,
    RefusedError,
    ResponseTimeoutError,
    SwitchApiError,
)
from exporter.switch_api.port import PortState
from exporter.switch_api.tls import tls_context
from exporter.switch_api.transceiver import Transceiver


class SwitchClient(Protocol):
    """A client of one switch."""

    address: str

    def __init__(
        self, address: str, username: str, password: str, *, tls: ssl.SSLContext | None, timeout: float
    ) -> None: ...

    async def close(self) -> None:
        """Log out, where there is a session, and close the connections; bounded in time."""


Client = TypeVar("Client", bound=SwitchClient)

FAMILY_ENDINGS: Mapping[Family, frozenset[str]] = MappingProxyType(
    {
        Family.TRAFFIC: frozenset({"receive_bytes_total", "transmit_bytes_total"}),
        Family.ERRORS: frozenset({"receive_errors_total", "transmit_errors_total"}),
        Family.PAUSE: frozenset({"receive_pause_frames_total", "transmit_pause_frames_total"}),
        Family.PFC: frozenset(
            {"receive_pfc_frames_total", "transmit_pfc_frames_total", "receive_pfc_all_priorities_frames_total"}
        ),
        Family.PFC_DURATION: frozenset({"receive_pfc_paused_seconds_total", "transmit_pfc_paused_seconds_total"}),
        Family.ECN: frozenset({"ecn_marked_packets_total", "queue_ecn_marked_packets_total"}),
        Family.QUEUES: frozenset(
            {"queue_full_discards_total", "queue_early_discards_total", "congestion_discards_total"}
        ),
        Family.BUFFERS: frozenset({"priority_group_discards_total", "priority_group_highest_depth_bytes"}),
        Family.OPTICS: frozenset({"module_temperature_celsius", "module_lane_receive_power_watts"}),
    }
)
"""Endings of metrics of which a family that is counted has at least one."""

REASONS: Sequence[tuple[type[SwitchApiError], str]] = (
    (LoginBackoffError, "login_backoff"),
    (LoginError, "login"),
    (ResponseTimeoutError, "timeout"),
    (RefusedError, "refused"),
    (InvalidResponseError, "malformed"),
)
"""Error of a client to the reason of a failure, subclasses first; any other error means `unreachable`."""


def families(parts: Sequence[PartialTable], otherwise: Mapping[Family, Support]) -> dict[Family, Support]:
    """Return for each family whether it is counted.

    Args:
        parts: The rows of a poll.
        otherwise: The families, with the support of those without values.
    """
    present = {ending for part in parts for ending in part.columns}
    return {
        family: Support.COUNTED if present & FAMILY_ENDINGS[family] else support
        for family, support in otherwise.items()
    }


def state_cells(up: bool | None, admin_up: bool | None, speed: int | None) -> dict[str, Value | None]:
    """Return the cells of the state of a port; one that is down has no speed."""
    return {
        "link_up": None if up is None else int(up),
        "admin_up": None if admin_up is None else int(admin_up),
        "link_speed_bytes_per_second": speed / 8 if up and speed else None,
    }


def port_state_cells(port: PortState) -> dict[str, Value | None]:
    """Return the cells of the state of a port."""
    return state_cells(port.up, port.admin_up, port.speed)


def packet_sum_cells(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the sums of PACKET_SUMS of which a port has all counters."""
    return {
        ending: total
        for ending, casts in PACKET_SUMS.items()
        if (total := complete_sum([counters.get(cast) for cast in casts])) is not None
    }


def add_module_rows(modules: PartialTableBuilder, lanes: PartialTableBuilder, name: str, module: Transceiver) -> None:
    """Add the rows of an optical module and of its lanes; none for an empty cage."""
    powers = map(watts_of_dbm, (*module.receive_power.values(), *module.transmit_power.values()))
    if not has_module(module.voltage, (module.temperature, *module.bias.values(), *powers)):
        return
    modules.row((name,), {"module_temperature_celsius": module.temperature, "module_voltage_volts": module.voltage})
    for lane in sorted({*module.receive_power, *module.transmit_power, *module.bias}, key=int):
        levels = module.receive_power.get(lane), module.transmit_power.get(lane)
        received, transmitted = (None if level is None else watts_of_dbm(level) for level in levels)
        bias = module.bias.get(lane)
        if is_measured(bias, received, transmitted):
            lanes.row(
                (name, lane),
                {
                    "module_lane_receive_power_watts": received,
                    "module_lane_transmit_power_watts": transmitted,
                    "module_lane_bias_amperes": bias,
                },
            )


def reason_of(error: SwitchApiError) -> str:
    """Return the reason of a failure by the class of the client's error."""
    return next((reason for kind, reason in REASONS if isinstance(error, kind)), "unreachable")


def to_source_error(error: SwitchApiError) -> SourceError:
    """Convert the error of a client to one of a source."""
    return SourceError(reason_of(error), str(error))


class ApiReader(Generic[Client]):
    """Owns the client of one switch: created at the first poll, and again when the password has changed.

    Args:
        target: The switch.
        options: Credentials and TLS settings.
        kind: Class of the client.
    """

    def __init__(self, target: Target, options: Login, kind: type[Client]) -> None:
        self._target = target
        self._login = options
        self._kind = kind
        self._client: Client | None = None
        self._password = ""

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def _open_client(self) -> Client:
        """Return the client; it is made in a thread, since that reads files.

        Raises:
            SourceError: The password or the CA file cannot be read, or the address is invalid.
        """
        if self._client is not None:
            return self._client
        try:
            client, self._password = await asyncio.to_thread(self._make_client)
        except SecretError as error:
            raise SourceError("credentials", str(error)) from None
        except OSError as error:
            reason = f"ca_file {self._login.ca_file}: {error.strerror or error}; name a PEM file of CAs"
            raise SourceError("configuration", f"{self._target.name}: {reason}") from None
        except ValueError as error:
            raise SourceError("configuration", f"{self._target.name}: {error}") from None
        self._client = client
        return client

    async def _failed(self, error: SwitchApiError) -> SourceError:
        """Convert a client's error; if a log-in failed and the password changed, the next poll uses the new one."""
        if isinstance(error, LoginError):
            await self._close_if_password_changed()
        return to_source_error(error)

    async def _close_if_password_changed(self) -> None:
        """Close a client with an outdated password, so that the backoff after its failed log-ins ends."""
        if await asyncio.to_thread(self._is_password_changed):
            await self.close()

    def _make_client(self) -> tuple[Client, str]:
        """Make a client, and return its password too."""
        login = self._login
        address = login.address or self._target.address
        password = _read_password(login)
        tls = None
        if not address.startswith("http://"):
            tls = tls_context(ca_file=login.ca_file, sha256=login.sha256, insecure=login.insecure)
        return self._kind(address, login.username, password, tls=tls, timeout=float(login.timeout)), password

    def _is_password_changed(self) -> bool:
        try:
            return _read_password(self._login) != self._password
        except SecretError:
            return False


def _read_password(login: Login) -> str:
    return read_secret(login.password, login.password_file, login.password_env)
