"""Connection to an MQTT broker that reconnects with exponential backoff.

Passwords and certificates are read from their files at each connect, so they may be replaced at any time.
"""

import asyncio
import hashlib
import logging
import random
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from exporter.config.secret import SecretError
from exporter.mqtt.options import MqttOptions

log = logging.getLogger(__name__)

KEEP_ALIVE = 20
"""Keep Alive in seconds; the broker publishes the will after one and a half times this without a packet."""

TIMEOUT = 10.0
"""Seconds to wait for a response of the broker."""

STABLE_SECONDS = 30.0
"""Seconds after which a connection resets the backoff."""

MAX_PACKET_SIZE = 300 * 1024
"""Maximum Packet Size of MQTT, in bytes: the broker does not deliver larger messages."""

_library_log = logging.getLogger(f"{__name__}.library")
_library_log.setLevel(logging.CRITICAL)  # its messages repeat what is logged here

CONNECTION_ERRORS = (aiomqtt.MqttError, SecretError, OSError)
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


MessageHandler = Callable[[str, bytes], None]
"""Called with topic and payload of each message as it arrives; must not block or raise."""


class BrokerClient(aiomqtt.Client):
    """An aiomqtt client that counts refused messages, and passes received messages to a handler as they arrive.

    aiomqtt's own queue delivers more slowly than messages arrive, and has no limit in bytes.
    """

    status: ConnectionStatus
    on_received: MessageHandler | None = None

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason_code: Any, properties: Any = None) -> None:  # noqa: ANN401  # of paho
        if not self._connected.done():  # aiomqtt would wait for a CONNACK that cannot arrive
            text = "the broker closed the connection before CONNACK; check `tls` and its files"
            self._connected.set_exception(aiomqtt.MqttError(text))
        super()._on_disconnect(client, userdata, flags, reason_code, properties)

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason_code: Any, properties: Any) -> None:  # noqa: ANN401  # of paho
        self.status.refused += reason_code.is_failure
        super()._on_publish(client, userdata, mid, reason_code, properties)

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:  # noqa: ANN401, ARG002  # of paho
        if self.on_received is not None:
            with suppress(UnicodeDecodeError):  # of a topic; brokers reject such topics
                self.on_received(message.topic, message.payload)

    async def publish_confirmed(
        self, topic: str, payload: bytes, *, retain: bool = False, expiry: float | None = None
    ) -> bool:
        """Publish with QoS 1, one message at a time; return whether the broker accepted it.

        Args:
            topic: The topic.
            payload: The payload; empty to clear a retained message.
            retain: Whether the broker retains the message.
            expiry: Message Expiry Interval in seconds; None for no expiry.

        Raises:
            MqttError: The broker did not respond.
        """
        before = self.status.refused
        await self.publish(topic, payload, qos=1, retain=retain, properties=expiry_properties(expiry))
        accepted = self.status.refused == before
        if not accepted and before == 0:
            log.warning("the broker refuses messages to %s; check the rights of this user for the topic", topic)
        return accepted

    async def run_while_connected(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it returns or the connection ends.

        Raises:
            MqttError: The connection ended.
        """
        working, watching = asyncio.ensure_future(work), asyncio.ensure_future(self._wait_disconnected())
        try:
            await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
            if working.done() and working.exception() is not None:
                await asyncio.wait([watching], timeout=0.1)  # has the cause, if it was the connection
        finally:
            working.cancel()
            watching.cancel()
            results = await asyncio.gather(watching, working, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _wait_disconnected(self) -> None:
        """Wait until the connection ends.

        Raises:
            MqttError: The connection ended.
        """
        async for _ in self.messages:  # empty, see `_on_message`
            pass


def expiry_properties(seconds: float | None, packet: int = PacketTypes.PUBLISH) -> Properties | None:
    """Return the properties of a PUBLISH, or of a will, with a Message Expiry Interval."""
    if seconds is None:
        return None
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    properties.MessageExpiryInterval = max(1, round(seconds))
    return properties


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of an MQTT client.

    Attributes:
        identifier: Client Identifier; a connection ends older ones with the same identifier.
        session_expiry: Session Expiry Interval in seconds.
        will: The will.
        on_received: Called with each received message.
    """

    identifier: str
    session_expiry: float = 0.0
    will: aiomqtt.Will | None = None
    on_received: MessageHandler | None = None


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
        try:
            password, context = await asyncio.to_thread(_read_files, options)
            async with _connected(_make_client(options, settings, status, password, context)) as client:
                status.connected, status.error = True, ""
                status.connects += 1
                begun = monotonic()
                log.info("connected to the broker %s", options.broker)
                await client.run_while_connected(work(client))
                return
        except CONNECTION_ERRORS as error:
            _log_failure(status, options, str(error.__cause__ or error) or type(error).__name__)
        except Exception:
            status.failures += 1
            log.exception("unexpected error; reconnecting to the broker %s", options.broker)
        finally:
            is_stable = status.connected and monotonic() - begun >= STABLE_SECONDS
            status.connected = False
        if is_stable:
            backoff.reset()
        await asyncio.sleep(backoff.next())


def _make_client(
    options: MqttOptions,
    settings: ClientSettings,
    status: ConnectionStatus,
    password: str | None,
    context: ssl.SSLContext | None,
) -> BrokerClient:
    host, port = options.address
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.MaximumPacketSize = MAX_PACKET_SIZE
    properties.SessionExpiryInterval = round(settings.session_expiry)
    client = BrokerClient(
        host,
        port,
        username=options.username,
        password=password,
        logger=_library_log,
        identifier=settings.identifier,
        protocol=aiomqtt.ProtocolVersion.V5,
        will=settings.will,
        timeout=TIMEOUT,
        keepalive=KEEP_ALIVE,
        clean_start=settings.session_expiry == 0 or status.connects == 0,
        properties=properties,
        tls_context=context,
        tls_insecure=True if options.sha256 is not None or options.insecure else None,  # else paho checks the name
    )
    client.status, client.on_received = status, settings.on_received
    return client


def _log_failure(status: ConnectionStatus, options: MqttOptions, error: str) -> None:
    """Count a failure, and log it unless it is the same as the last one."""
    status.failures += 1
    if error != status.error:
        log.warning("no connection to the broker %s: %s; retrying", options.broker, error)
    status.error = error


@asynccontextmanager
async def _connected(client: BrokerClient) -> AsyncIterator[BrokerClient]:
    """Connect, and disconnect at the end of the block; closes all resources where one of them fails.

    Raises:
        MqttError: The connection could not be established.
    """
    entering = asyncio.ensure_future(client.__aenter__())
    try:
        await asyncio.shield(entering)  # its thread cannot be cancelled: what it opens has to be closed
    except BaseException:
        await asyncio.shield(_close_abandoned(client, entering))
        raise
    try:
        yield client
    finally:
        with suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)


async def _close_abandoned(client: BrokerClient, entering: asyncio.Future[BrokerClient]) -> None:
    """Close the resources of a connection that failed or was cancelled while it was being established."""
    await asyncio.wait([entering], timeout=TIMEOUT)
    entering.cancel()
    await asyncio.gather(entering, return_exceptions=True)
    with suppress(aiomqtt.MqttError):
        client.timeout = 1.0
        await client.__aexit__(None, None, None)


def _read_files(options: MqttOptions) -> tuple[str | None, ssl.SSLContext | None]:
    """Read the password, and build the TLS context. Blocks.

    Raises:
        SecretError: The password or key cannot be used.
        OSError: A TLS file cannot be read or is invalid.
    """
    try:
        return options.password(), _tls_context(options) if options.tls else None
    except ValueError as error:  # a file name with a NUL, or an encrypted key
        raise SecretError(str(error)) from None


def _tls_context(options: MqttOptions) -> ssl.SSLContext:
    expected = None if options.sha256 is None else bytes.fromhex(options.sha256.replace(":", "").strip())
    if expected is None and not options.insecure:
        context = ssl.create_default_context(cafile=options.ca_file)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # ssl documents this attribute; paho creates its sockets by it, unlike asyncio's TLS.
    context.sslsocket_class = _pinning_socket(expected)
    if options.cert_file is not None:
        context.load_cert_chain(options.cert_file, options.key_file, password=_no_password)
    return context


def _no_password() -> str:
    raise ValueError("the key of cert_file is encrypted; store it without a passphrase, readable by this user only")


def _pinning_socket(expected: bytes | None) -> type[ssl.SSLSocket]:
    class PinningSocket(ssl.SSLSocket):
        """A socket that is closed if the handshake fails or the certificate does not have the expected fingerprint."""

        def do_handshake(self, block: bool = False) -> None:
            try:
                super().do_handshake(block)
                shown = hashlib.sha256(self.getpeercert(binary_form=True) or b"").digest()
                if expected is not None and shown != expected:
                    raise ssl.SSLCertVerificationError(
                        f"the certificate's SHA-256 fingerprint is {shown.hex(':')}, not the pinned one"
                    )
            except BaseException:
                self.close()  # paho would leave it to the garbage collector
                raise

    return PinningSocket
