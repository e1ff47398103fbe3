"""A switch by the JSON API of NVIDIA Onyx: three `show` commands a poll, one after the other."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import TypeVar

from exporter.rest.http import AnswerTimeoutError, BackoffError, CommandError, LoginError, RestError
from exporter.rest.onyx import OnyxClient
from exporter.rest.onyx_data import (
    Congestion,
    Counters,
    OnyxShapeError,
    PerPort,
    PortState,
    parse_congestion_control,
    parse_counters,
    parse_description,
)
from exporter.rest.tls import tls_context
from exporter.secret import SecretError, read_secret
from exporter.source import Failure, SourceError
from exporter.sources.switches.metrics import PORTS
from exporter.sources.switches.options import Onyx, Target
from exporter.sources.switches.parts import Family, Harvest, PartBuilder, Support
from exporter.table import Value

Record = TypeVar("Record")

COUNTERS = "show interfaces ethernet counters"
DESCRIPTION = "show interfaces ethernet description"
CONGESTION = "show interfaces ethernet congestion-control"


class OnyxReader:
    """Polls one switch."""

    way = "onyx"

    def __init__(self, target: Target, options: Onyx, interval: float) -> None:  # noqa: ARG002
        """Take the target, how to log in, and the seconds between polls."""
        self._target = target
        self._address = options.address or target.address
        self._options = options
        self._client: OnyxClient | None = None
        self._password = ""

    async def read(self) -> Harvest:
        """Poll once; a command that fails costs its own columns.

        Raises:
            SourceError: Nothing could be read.
        """
        client = await self._opened()
        failures: list[Failure] = []
        now = monotonic()
        counters = await self._ask(client, COUNTERS, parse_counters, failures)
        states = await self._ask(client, DESCRIPTION, parse_description, failures)
        congestion = await self._ask(client, CONGESTION, parse_congestion_control, failures)
        if not counters and not states:
            detail = failures[0].detail if failures else f"{client.address}: has no Ethernet port to show"
            raise SourceError(failures[0].reason if failures else "empty", detail)
        builder = PartBuilder(PORTS)
        for port in {**counters, **states}:
            if self._target.wants(port):
                row = _row(counters.get(port), states.get(port), congestion.get(port))
                state = states.get(port)
                alias = (state.description if state else None) or ""
                builder.row((port,), {**row, "info": (self._target.name, "", alias, "")})
        return Harvest(parts=[builder.part(now)], families={Family.TRAFFIC: Support.COUNTED}, failures=failures)

    def nudge(self, port: str) -> None:
        """Do nothing: each poll asks for all."""

    async def close(self) -> None:
        """Log out and close the connection; bounded in time by the client."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def _opened(self) -> OnyxClient:
        """Make the client when there is none.

        Raises:
            SourceError: The password or the CA file cannot be read, or the address is none.
        """
        if self._client is None:
            try:
                self._client = await asyncio.to_thread(self._made)
            except SecretError as error:
                raise SourceError("credentials", str(error)) from None
            except OSError as error:
                reason = f"ca_file {self._options.ca_file}: {error.strerror or error}; name a PEM file of CAs"
                raise SourceError("configuration", f"{self._target.name}: {reason}") from None
            except ValueError as error:
                raise SourceError("configuration", f"{self._target.name}: {error}") from None
        return self._client

    def _made(self) -> OnyxClient:
        given = self._options
        password = self._password = self._read_password()
        tls = None
        if not self._address.startswith("http://"):
            tls = tls_context(ca_file=given.ca_file, sha256=given.sha256, insecure=given.insecure)
        return OnyxClient(self._address, given.username, password, tls=tls, timeout=float(given.timeout))

    def _read_password(self) -> str:
        given = self._options
        return read_secret(given.password, given.password_file, given.password_env)

    async def _renew(self) -> None:
        """Begin anew, without the rest after failed log-ins, where the password was changed meanwhile."""
        with suppress(SecretError):
            if await asyncio.to_thread(self._read_password) != self._password:
                await self.close()

    async def _ask(
        self,
        client: OnyxClient,
        command: str,
        parse: Callable[[object], PerPort[Record]],
        failures: list[Failure],
    ) -> Mapping[str, Record]:
        """Run one command; what goes wrong with it alone is noted, what concerns the switch is raised."""
        try:
            data = await client.show(command)
            found = await asyncio.to_thread(parse, data)  # a reply of megabytes must not hold up the other sources
        except OnyxShapeError as error:
            failures.append(Failure(command, "malformed", f"{client.address}: {command}: {error}"))
            return {}
        except CommandError as error:
            failures.append(Failure(command, "refused", str(error)))
            return {}
        except AnswerTimeoutError as error:
            raise SourceError("timeout", str(error)) from None
        except LoginError as error:
            await self._renew()
            raise SourceError("login_rest" if isinstance(error, BackoffError) else "login", str(error)) from None
        except RestError as error:
            raise SourceError("unreachable", str(error)) from None
        failures += [Failure(command, "malformed", f"{client.address}: {command}: {one}") for one in found.problems]
        return found.ports


def _row(counters: Counters | None, state: PortState | None, congestion: Congestion | None) -> dict[str, Value | None]:
    """Put one port's records together, by ending."""
    row: dict[str, Value | None] = {}
    if counters is not None:
        for way in ("receive", "transmit"):
            for what in ("bytes", "packets", "errors", "discards", "pause_frames"):
                row[f"{way}_{what}_total"] = getattr(counters, f"{way}_{what}")
        row["fcs_errors_total"] = counters.receive_fcs_errors
        row["symbol_errors_total"] = counters.receive_symbol_errors
    if congestion is not None:
        row["ecn_marked_packets_total"] = congestion.ecn_marked_packets
    if state is not None:
        row["link_up"] = None if state.up is None else int(state.up)
        row["link_speed_bytes_per_second"] = state.speed / 8 if state.up and state.speed else None
    return row
