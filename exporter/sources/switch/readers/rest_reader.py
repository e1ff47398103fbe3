"""What the readers of REST APIs share: how a client comes and goes, what its errors mean, and what a switch counts."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from exporter.config.secret import SecretError, read_secret
from exporter.core.source import SourceError
from exporter.core.table import Value
from exporter.sources.switch.merge import (
    Family,
    Neighbour,
    PartialTable,
    Support,
)
from exporter.sources.switch.options import Login, Target
from exporter.switch_api.http import (
    AnswerTimeoutError,
    BackoffError,
    CommandError,
    LoginError,
    ReplyError,
    RestError,
)
from exporter.switch_api.neighbour import Heard
from exporter.switch_api.port import Port
from exporter.switch_api.tls import tls_context


class SwitchClient(Protocol):
    """A client of one switch."""

    address: str

    def __init__(
        self, address: str, username: str, password: str, *, tls: ssl.SSLContext | None, timeout: float
    ) -> None: ...

    async def close(self) -> None:
        """End the session, where there is one, and close the connections; bounded in time."""


Client = TypeVar("Client", bound=SwitchClient)

_ENDINGS: Mapping[Family, frozenset[str]] = {
    Family.TRAFFIC: frozenset({"receive_bytes_total", "transmit_bytes_total"}),
    Family.ERRORS: frozenset({"receive_errors_total", "transmit_errors_total"}),
    Family.PAUSE: frozenset({"receive_pause_frames_total", "transmit_pause_frames_total"}),
    Family.PFC: frozenset(
        {"receive_pfc_frames_total", "transmit_pfc_frames_total", "receive_pfc_all_priorities_frames_total"}
    ),
    Family.PFC_DURATION: frozenset({"receive_pfc_paused_seconds_total", "transmit_pfc_paused_seconds_total"}),
    Family.ECN: frozenset({"ecn_marked_packets_total", "queue_ecn_marked_packets_total"}),
    Family.QUEUES: frozenset({"queue_full_discards_total", "queue_early_discards_total", "congestion_discards_total"}),
    Family.BUFFERS: frozenset({"priority_group_discards_total", "priority_group_highest_depth_bytes"}),
    Family.OPTICS: frozenset({"module_temperature_celsius", "module_lane_receive_power_watts"}),
}


def families(parts: Sequence[PartialTable], otherwise: Mapping[Family, Support]) -> dict[Family, Support]:
    """Say of families whether they are counted.

    Args:
        parts: What there is.
        otherwise: What holds of a family of which there is nothing.
    """
    present = {ending for part in parts for ending in part.columns}
    return {family: Support.COUNTED if present & _ENDINGS[family] else support for family, support in otherwise.items()}


def state(port: Port) -> dict[str, Value | None]:
    """Give the cells that say how a port is; one that is down has no speed."""
    return {
        "link_up": None if port.up is None else int(port.up),
        "admin_up": None if port.admin_up is None else int(port.admin_up),
        "link_speed_bytes_per_second": port.speed / 8 if port.up and port.speed else None,
    }


def neighbour(heard: Heard) -> Neighbour:
    """Give a neighbour as readers do."""
    return Neighbour(
        heard.port,
        heard.chassis,
        heard.peer_port,
        heard.name,
        heard.port_description,
        heard.description,
        heard.capabilities,
        heard.addresses,
    )


def source_error(error: RestError) -> SourceError:
    """Give the error of a client as that of a source."""
    reasons: tuple[tuple[type[RestError], str], ...] = (
        (BackoffError, "login_rest"),
        (LoginError, "login"),
        (AnswerTimeoutError, "timeout"),
        (CommandError, "refused"),
        (ReplyError, "malformed"),
    )
    reason = next((reason for kind, reason in reasons if isinstance(error, kind)), "unreachable")
    return SourceError(reason, str(error))


class RestReader(Generic[Client]):
    """Has the client of one switch: made when it is needed, and anew where the password was changed meanwhile.

    Args:
        target: The switch.
        options: How to log in.
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

    async def _opened(self) -> Client:
        """Give the client; it is made off the loop, since files are read for it.

        Raises:
            SourceError: The password or the CA file cannot be read, or the address is none.
        """
        if self._client is not None:
            return self._client
        try:
            fresh, self._password = await asyncio.to_thread(self._made)
        except SecretError as error:
            raise SourceError("credentials", str(error)) from None
        except OSError as error:
            reason = f"ca_file {self._login.ca_file}: {error.strerror or error}; name a PEM file of CAs"
            raise SourceError("configuration", f"{self._target.name}: {reason}") from None
        except ValueError as error:
            raise SourceError("configuration", f"{self._target.name}: {error}") from None
        self._client = fresh
        return fresh

    async def _failed(self, error: RestError) -> SourceError:
        """Give the error of the client as that of a source."""
        if isinstance(error, LoginError):
            await self._renew()
        return source_error(error)

    async def _renew(self) -> None:
        """Begin anew, without the rest after failed log-ins, where the password was changed meanwhile."""
        if await asyncio.to_thread(self._is_outdated):
            await self.close()

    def _made(self) -> tuple[Client, str]:
        """Make a client, and give the password that it was made with."""
        login = self._login
        address = login.address or self._target.address
        password = _read_password(login)
        tls = None
        if not address.startswith("http://"):
            tls = tls_context(ca_file=login.ca_file, sha256=login.sha256, insecure=login.insecure)
        return self._kind(address, login.username, password, tls=tls, timeout=float(login.timeout)), password

    def _is_outdated(self) -> bool:
        """Tell whether the password is another one by now."""
        try:
            return _read_password(self._login) != self._password
        except SecretError:
            return False


def _read_password(login: Login) -> str:
    return read_secret(login.password, login.password_file, login.password_env)
