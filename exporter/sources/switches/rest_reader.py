"""What the readers of REST APIs share: how a client is made, what its errors mean, and what a switch counts."""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from exporter.rest.http import AnswerTimeoutError, BackoffError, CommandError, LoginError, ReplyError, RestError
from exporter.rest.lldp import Heard
from exporter.rest.tls import tls_context
from exporter.secret import SecretError, read_secret
from exporter.source import SourceError
from exporter.sources.switches.options import Login, Target
from exporter.sources.switches.parts import Family, Neighbour, Part, Support

Client = TypeVar("Client")

_ENDINGS: Mapping[Family, frozenset[str]] = {
    Family.TRAFFIC: frozenset({"receive_bytes_total", "transmit_bytes_total"}),
    Family.ERRORS: frozenset({"receive_errors_total", "transmit_errors_total"}),
    Family.PAUSE: frozenset({"receive_pause_frames_total", "transmit_pause_frames_total"}),
    Family.PFC: frozenset({"receive_pfc_frames_total", "transmit_pfc_frames_total"}),
    Family.PFC_DURATION: frozenset({"receive_pfc_paused_seconds_total", "transmit_pfc_paused_seconds_total"}),
    Family.ECN: frozenset({"ecn_marked_packets_total", "queue_ecn_marked_packets_total"}),
    Family.QUEUES: frozenset({"queue_full_discards_total", "queue_early_discards_total"}),
    Family.BUFFERS: frozenset({"priority_group_discards_total", "priority_group_highest_depth_bytes"}),
    Family.OPTICS: frozenset({"module_temperature_celsius", "module_lane_receive_power_watts"}),
}


def families(parts: Sequence[Part], otherwise: Mapping[Family, Support]) -> dict[Family, Support]:
    """Say of families whether they are counted.

    Args:
        parts: What there is.
        otherwise: What holds of a family of which there is nothing.
    """
    present = {ending for part in parts for ending in part.columns}
    return {family: Support.COUNTED if present & _ENDINGS[family] else support for family, support in otherwise.items()}


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


def password(options: Login) -> str:
    """Read the password; blocks for a file.

    Raises:
        SecretError: It cannot be read.
    """
    return read_secret(options.password, options.password_file, options.password_env)


async def made(
    target: Target, options: Login, make: Callable[[str, str, ssl.SSLContext | None], Client]
) -> tuple[Client, str]:
    """Make a client, off the loop, since files are read for it; and give the password that it was made with.

    Args:
        target: The switch.
        options: How to log in.
        make: Takes address, password and TLS settings; these are None for an address of plain HTTP.

    Raises:
        SourceError: The password or the CA file cannot be read, or the address is none.
    """
    address = options.address or target.address

    def work() -> tuple[Client, str]:
        secret = password(options)
        tls = None
        if not address.startswith("http://"):
            tls = tls_context(ca_file=options.ca_file, sha256=options.sha256, insecure=options.insecure)
        return make(address, secret, tls), secret

    try:
        return await asyncio.to_thread(work)
    except SecretError as error:
        raise SourceError("credentials", str(error)) from None
    except OSError as error:
        reason = f"ca_file {options.ca_file}: {error.strerror or error}; name a PEM file of CAs"
        raise SourceError("configuration", f"{target.name}: {reason}") from None
    except ValueError as error:
        raise SourceError("configuration", f"{target.name}: {error}") from None


async def is_changed(options: Login, known: str) -> bool:
    """Tell whether the password is another one by now."""
    try:
        return await asyncio.to_thread(password, options) != known
    except SecretError:
        return False
