"""The connection to the broker: made anew whenever it ends, later each time, and never by all at once.

A connection is given what lies in its files at that moment: passwords and certificates may be replaced at any time.
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

KEEPALIVE = 20
"""Seconds of silence after which the broker is asked whether it is there; it waits half as long again, and calls the
last will."""

TIMEOUT = 10.0
"""Seconds for the broker to answer."""

STEADY = 30.0
"""Seconds after which a connection is a good one: when it ends, the next try is made at once again."""

MAX_PACKET = 300 * 1024
"""Bytes of a packet that the broker is asked to keep to; what others publish beyond that is not delivered."""

_library_log = logging.getLogger(f"{__name__}.library")
_library_log.setLevel(logging.CRITICAL)  # what it would say is told here, once

UNUSABLE = (aiomqtt.MqttError, SecretError, OSError)
"""What comes of a broker, a network, a secret or a file that is not as it should be; ssl's errors are OSErrors."""


class Backoff:
    """Seconds to wait before the next try: twice as long each time, and by chance up to half of it less.

    Args:
        first: Seconds before the first try after a failure.
        most: Seconds at most.
    """

    def __init__(self, first: float = 1.0, most: float = 60.0) -> None:
        self._first, self._most = first, most
        self._tries = 0

    def next(self) -> float:
        """Give the seconds to wait now."""
        seconds = min(self._most, self._first * 2.0 ** min(self._tries, 30))
        self._tries += 1
        return seconds * random.uniform(0.5, 1.0)  # noqa: S311  # to spread load, not to keep a secret

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._tries = 0


@dataclass(slots=True)
class Link:
    """How it goes with the broker.

    Attributes:
        connected: Whether there is a connection.
        connects: Connections that were made; all but the first are reconnects.
        failures: Connections that ended or could not be made.
        refused: Messages that the broker took and then refused, such as for lack of a right.
        error: Why the last one ended or could not be made; empty while there is one.
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


Hear = Callable[[str, bytes], None]
"""Is given the topic and the payload of a message, at once, and raises nothing."""


class Client(aiomqtt.Client):
    """A client that knows what aiomqtt passes over.

    It counts what the broker refused. And messages are handed over as they come: through aiomqtt's own queue they would
    leave more slowly than they come in, and it has no bound in bytes.
    """

    link: Link
    hear: Hear | None = None

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason_code: Any, properties: Any = None) -> None:  # noqa: ANN401  # of paho
        if not self._connected.done():  # aiomqtt would wait on for an answer that cannot come
            text = "the broker ended the connection before it answered; check `tls` and its files"
            self._connected.set_exception(aiomqtt.MqttError(text))
        super()._on_disconnect(client, userdata, flags, reason_code, properties)

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason_code: Any, properties: Any) -> None:  # noqa: ANN401  # likewise
        self.link.refused += reason_code.is_failure
        super()._on_publish(client, userdata, mid, reason_code, properties)

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:  # noqa: ANN401, ARG002  # likewise
        if self.hear is not None:
            with suppress(UnicodeDecodeError):  # of a topic; brokers let none through
                self.hear(message.topic, message.payload)

    async def confirmed(self, topic: str, payload: bytes, *, retain: bool = False, expiry: float | None = None) -> bool:
        """Publish with QoS 1, one message at a time; tell whether the broker took it.

        Args:
            topic: Where.
            payload: What; empty to clear what is retained.
            retain: Whether the broker shall keep it for those who come later.
            expiry: Seconds after which nobody shall get it any more; never if None.

        Raises:
            MqttError: There was no answer.
        """
        before = self.link.refused
        await self.publish(topic, payload, qos=1, retain=retain, properties=expiring(expiry))
        taken = self.link.refused == before
        if not taken and before == 0:
            log.warning("the broker refuses what is published at %s; check the rights of this user there", topic)
        return taken

    async def while_connected(self, work: Coroutine[Any, Any, None]) -> None:
        """Work until the work is done, or the connection ends.

        Raises:
            MqttError: The connection ended.
        """
        working, watching = asyncio.ensure_future(work), asyncio.ensure_future(self._listen())
        try:
            await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
            if working.done() and working.exception() is not None:
                await asyncio.wait([watching], timeout=0.1)  # knows best why, if it was the connection
        finally:
            working.cancel()
            watching.cancel()
            ends = await asyncio.gather(watching, working, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _listen(self) -> None:
        """Wait until the connection ends.

        Raises:
            MqttError: It did.
        """
        async for _ in self.messages:  # there are none; see `_on_message`
            pass


def expiring(seconds: float | None, packet: int = PacketTypes.PUBLISH) -> Properties | None:
    """Give the properties of a message that expires, or of a last will that does."""
    if seconds is None:
        return None
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    properties.MessageExpiryInterval = max(1, round(seconds))
    return properties


@dataclass(frozen=True, slots=True)
class Role:
    """What one is at the broker.

    Attributes:
        identifier: Name of the client, which ends an older connection of the same name.
        session: Seconds that the broker shall keep what comes meanwhile for one that is away.
        will: What it shall publish when this one goes without a word.
        hear: Is given what comes.
    """

    identifier: str
    session: float = 0.0
    will: aiomqtt.Will | None = None
    hear: Hear | None = None


async def keep_connected(
    options: MqttOptions, role: Role, link: Link, backoff: Backoff, work: Callable[[Client], Coroutine[Any, Any, None]]
) -> None:
    """Work with the broker until the work is done; connect again whenever the connection ends before.

    Args:
        options: The broker.
        role: What this one is there.
        link: Is told how it goes.
        backoff: How long to wait between tries.
        work: Gets a client, and is cancelled when its connection ends.
    """
    while True:
        begun = monotonic()
        try:
            password, context = await asyncio.to_thread(_read_files, options)
            async with _connected(_make_client(options, role, link, password, context)) as client:
                link.connected, link.error = True, ""
                link.connects += 1
                begun = monotonic()
                log.info("connected to the broker %s", options.broker)
                await client.while_connected(work(client))
                return
        except UNUSABLE as error:
            _note(link, options, str(error.__cause__ or error) or type(error).__name__)
        except Exception:
            link.failures += 1
            log.exception("the connection to the broker %s is made anew", options.broker)
        finally:
            steady = link.connected and monotonic() - begun >= STEADY
            link.connected = False
        if steady:
            backoff.reset()
        await asyncio.sleep(backoff.next())


def _make_client(
    options: MqttOptions, role: Role, link: Link, password: str | None, context: ssl.SSLContext | None
) -> Client:
    host, port = options.address
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.MaximumPacketSize = MAX_PACKET
    properties.SessionExpiryInterval = round(role.session)
    client = Client(
        host,
        port,
        username=options.username,
        password=password,
        logger=_library_log,
        identifier=role.identifier,
        protocol=aiomqtt.ProtocolVersion.V5,
        will=role.will,
        timeout=TIMEOUT,
        keepalive=KEEPALIVE,
        clean_start=role.session == 0 or link.connects == 0,
        properties=properties,
        tls_context=context,
        tls_insecure=True if options.sha256 is not None or options.insecure else None,  # or paho looks at the name
    )
    client.link, client.hear = link, role.hear
    return client


def _note(link: Link, options: MqttOptions, error: str) -> None:
    """Log a failure, and the same one not again while it lasts."""
    link.failures += 1
    if error != link.error:
        log.warning("no connection to the broker %s: %s; trying on", options.broker, error)
    link.error = error


@asynccontextmanager
async def _connected(client: Client) -> AsyncIterator[Client]:
    """Connect, and disconnect at the end; nothing stays behind where either fails.

    Raises:
        MqttError: It cannot be done.
    """
    entering = asyncio.ensure_future(client.__aenter__())
    try:
        await asyncio.shield(entering)  # its thread cannot be stopped: what it opens has to be closed
    except BaseException:
        await asyncio.shield(_abandon(client, entering))
        raise
    try:
        yield client
    finally:
        with suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)


async def _abandon(client: Client, entering: asyncio.Future[Client]) -> None:
    """Close what a connection left open that did not come about, or that nobody wants any more."""
    await asyncio.wait([entering], timeout=TIMEOUT)
    entering.cancel()
    await asyncio.gather(entering, return_exceptions=True)
    with suppress(aiomqtt.MqttError):
        client.timeout = 1.0
        await client.__aexit__(None, None, None)


def _read_files(options: MqttOptions) -> tuple[str | None, ssl.SSLContext | None]:
    """Give the password and the settings of TLS. Blocks.

    Raises:
        SecretError: The password cannot be had.
        OSError: A file of TLS cannot be read, or is none.
    """
    try:
        return options.password(), _tls_context(options) if options.tls else None
    except ValueError as error:  # a name with a NUL, or a key with a passphrase
        raise SecretError(str(error)) from None


def _tls_context(options: MqttOptions) -> ssl.SSLContext:
    expected = None if options.sha256 is None else bytes.fromhex(options.sha256.replace(":", "").strip())
    if expected is None and not options.insecure:
        context = ssl.create_default_context(cafile=options.ca_file)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # Per context, as ssl documents it; paho makes its connections by this type, other than asyncio's TLS.
    context.sslsocket_class = _checked(expected)
    if options.cert_file is not None:
        context.load_cert_chain(options.cert_file, options.key_file, password=_no_password)
    return context


def _no_password() -> str:
    raise ValueError("the key of cert_file is encrypted; store it without a passphrase, readable by this user only")


def _checked(expected: bytes | None) -> type[ssl.SSLSocket]:
    class Checked(ssl.SSLSocket):
        """A connection that is closed where the handshake fails, or the certificate is not the expected one."""

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

    return Checked
