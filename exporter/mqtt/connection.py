"""Connection to an MQTT broker that reconnects with exponential backoff.

Passwords and certificates are read from their files at each connect, so they may be replaced at any time.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any

from exporter.config.secret import SecretError
from exporter.mqtt.client import Access, BrokerClient, BrokerError, ClientSettings
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.tls import tls_context

logger = logging.getLogger(__name__)

TIMEOUT = 10.0
"""Seconds to wait for a response of the broker."""

STABLE_SECONDS = 30.0
"""Seconds after which a connection resets the backoff."""

CONNECTION_ERRORS = (BrokerError, SecretError, OSError)
"""Errors of the broker, the network, a secret or a TLS file; errors of ssl are OSErrors."""


class Backoff:
    """Exponential backoff with jitter: each wait is 50 to 100 % of a value that doubles.

    Args:
        initial: Seconds of the first wait, at most.
        maximum: Seconds of any wait, at most.
    """

    def __init__(self, initial: float = 1.0, maximum: float = 60.0) -> None:
        self._initial, self._maximum = initial, maximum
        self._tries = 0

    def next(self) -> float:
        """Return the seconds to wait before the next try."""
        seconds = min(self._maximum, self._initial * 2.0 ** min(self._tries, 30))
        self._tries += 1
        return seconds * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, no secret

    def reset(self) -> None:
        """Restart with the shortest wait."""
        self._tries = 0


@dataclass(slots=True)
class ConnectionStatus:
    """State and counts of a connection that reconnects.

    Attributes:
        connected: Whether the connection is established.
        connects: Established connections; all but the first are reconnects.
        failures: Connections that ended or could not be established.
        refused: Messages for which the broker returned a failure reason code in the PUBACK, such as not authorized.
        error: Why the last connection ended or failed; empty while connected.
    """

    connected: bool = False
    connects: int = 0
    failures: int = 0
    refused: int = 0
    error: str = ""

    @property
    def reconnects(self) -> int:
        """Connections after the first."""
        return max(0, self.connects - 1)


async def keep_connected(
    options: MqttOptions,
    settings: ClientSettings,
    status: ConnectionStatus,
    backoff: Backoff,
    work: Callable[[BrokerClient], Coroutine[Any, Any, None]],
) -> None:
    """Run a coroutine with a connected client until it returns; reconnect whenever the connection ends before.

    Args:
        options: The broker.
        settings: Settings of the client.
        status: Updated with the state of the connection.
        backoff: Waits between tries.
        work: Called with the client of each connection; cancelled when the connection ends.
    """
    while True:
        begun = monotonic()
        client: BrokerClient | None = None
        try:
            client = BrokerClient(settings, await asyncio.to_thread(_read_access, options), TIMEOUT)
            await client.connect(clean_start=settings.session_expiry == 0 or status.connects == 0)
            status.connected, status.error = True, ""
            status.connects += 1
            begun = monotonic()
            logger.info("connected to the broker %s", options.broker)
            await client.run_while_connected(work(client))
        except CONNECTION_ERRORS as error:
            _log_failure(status, options, str(error) or type(error).__name__)
        except Exception as error:
            status.failures += 1
            status.error = repr(error)
            logger.exception("unexpected error; reconnecting to the broker %s", options.broker)
        else:
            return
        finally:
            if client is not None:
                client.close()
            is_stable = status.connected and monotonic() - begun >= STABLE_SECONDS
            status.connected = False
        if is_stable:
            backoff.reset()
        await asyncio.sleep(backoff.next())


def _log_failure(status: ConnectionStatus, options: MqttOptions, error: str) -> None:
    """Count a failure, and log it unless it is the same as the last one."""
    status.failures += 1
    if error != status.error:
        logger.warning("no connection to the broker %s: %s; retrying", options.broker, error)
    status.error = error


def _read_access(options: MqttOptions) -> Access:
    """Read the password, and build the TLS context. Blocks.

    Raises:
        SecretError: The password or key cannot be used.
        OSError: A TLS file cannot be read or is invalid.
    """
    try:
        context = tls_context(options) if options.tls else None
        return Access(options.address, options.username, options.password(), context)
    except ValueError as error:  # a file name with a NUL, or an encrypted key
        raise SecretError(str(error)) from None
