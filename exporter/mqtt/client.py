"""One connection to an MQTT broker on the event loop, by the documented callbacks of paho-mqtt.

paho opens the connection in a thread, since it blocks; after that all its callbacks run in the event loop. Received
messages are passed on in the callback, so there is no second queue, and the PUBACK of each published message has its
reason code.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, error_string
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from exporter.mqtt.packet_limit import MAX_PACKET_SIZE, PacketRefusedError, limiting_context

KEEP_ALIVE = 20
"""Keep Alive in seconds; the broker publishes the will after one and a half times this without a packet."""

CONNECT_TIMEOUT = 5.0
"""Seconds to wait for the TCP connection, and for each message of the TLS handshake."""

KEEP_ALIVE_CHECK_INTERVAL = 1.0
"""Seconds between two checks of the keep alive."""

MessageHandler = Callable[[str, bytes], None]
"""Called with topic and payload of each message as it arrives; must not block or raise."""


_Answer = TypeVar("_Answer")


class BrokerError(Exception):
    """The connection could not be established or ended, or the broker did not respond."""


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the broker publishes and retains when the connection ends without a DISCONNECT.

    Attributes:
        topic: The topic.
        payload: The payload.
        expiry: Message Expiry Interval in seconds.
    """

    topic: str
    payload: bytes
    expiry: float


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
    will: Will | None = None
    on_received: MessageHandler | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a broker.

    Attributes:
        address: Host and port.
        username: User name.
        password: Its password.
        context: TLS context; None for no TLS.
    """

    address: tuple[str, int]
    username: str | None = None
    password: str | None = None
    context: ssl.SSLContext | None = None


class BrokerClient:
    """A client for one connection, which is opened by `connect` and closed by `close`.

    Args:
        settings: The settings.
        access: The broker.
        timeout: Seconds to wait for a response of the broker.
    """

    def __init__(self, settings: ClientSettings, access: Access, timeout: float) -> None:
        self._settings, self._access, self._timeout = settings, access, timeout
        self._loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[ReasonCode] = self._loop.create_future()
        self._ended: asyncio.Future[BaseException] = self._loop.create_future()
        self._published: dict[int, asyncio.Future[ReasonCode]] = {}
        self._subscribed: dict[int, asyncio.Future[list[ReasonCode]]] = {}
        self._keep_alive_timer: asyncio.TimerHandle | None = None
        self._client = self._paho_client()

    def _paho_client(self) -> Client:
        client = Client(
            CallbackAPIVersion.VERSION2,
            self._settings.identifier,
            protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False,
        )
        client.connect_timeout = CONNECT_TIMEOUT
        if self._access.username is not None:
            client.username_pw_set(self._access.username, self._access.password)
        context = limiting_context(self._access.context)
        client.tls_set_context(context)
        client.tls_insecure_set(not context.check_hostname)
        will = self._settings.will
        if will is not None:
            properties = _expiry_properties(will.expiry, PacketTypes.WILLMESSAGE)
            client.will_set(will.topic, will.payload, qos=1, retain=True, properties=properties)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        return client

    # --- connection

    async def connect(self, *, clean_start: bool) -> None:
        """Connect, and wait for the CONNACK; `close` has to be called also after an error.

        Args:
            clean_start: Whether the broker drops an existing session of this identifier.

        Raises:
            BrokerError: The broker refuses the connection, or does not respond.
            OSError: The broker cannot be reached, or the TLS handshake failed.
        """
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.MaximumPacketSize = MAX_PACKET_SIZE
        properties.SessionExpiryInterval = round(self._settings.session_expiry)
        host, port = self._access.address
        connecting = asyncio.ensure_future(
            asyncio.to_thread(
                self._client.connect, host, port, KEEP_ALIVE, clean_start=clean_start, properties=properties
            )
        )
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:  # its thread cannot be cancelled: what it opens has to be closed
            await asyncio.wait([connecting], timeout=self._timeout)  # a name server may take longer
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            raise
        except UnicodeError:
            raise BrokerError(f"{host!r} is not a host name") from None
        self._attach()
        reason = await self._response(self._connected)
        if reason.is_failure:
            raise BrokerError(f"the broker refuses the connection: {reason}")

    def close(self) -> None:
        """Send DISCONNECT, and close the socket."""
        self._client.on_disconnect = None
        self._client.disconnect()
        waiting = self._client.socket()
        if isinstance(waiting, socket.socket):  # the broker does not read: make the write fail, so that paho closes it
            with suppress(OSError):
                waiting.shutdown(socket.SHUT_RDWR)
            self._client.loop_write()
        self._end(BrokerError("the connection was closed"))

    async def run_while_connected(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it returns or the connection ends.

        Raises:
            BrokerError: The connection ended.
        """
        working = asyncio.ensure_future(work)
        waiting: list[asyncio.Future[Any]] = [working, self._ended]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            (result,) = await asyncio.gather(working, return_exceptions=True)
        if result is not None:
            raise self._ended.result() if self._ended.done() else result

    # --- messages

    async def publish_confirmed(
        self, topic: str, payload: bytes, *, retain: bool = False, expiry: float | None = None
    ) -> bool:
        """Publish with QoS 1; return whether the broker accepted the message.

        Args:
            topic: The topic.
            payload: The payload; empty to clear a retained message.
            retain: Whether the broker retains the message.
            expiry: Message Expiry Interval in seconds; None for no expiry.

        Raises:
            BrokerError: The broker did not respond, or the connection ended.
        """
        info = self._client.publish(topic, payload, qos=1, retain=retain, properties=_expiry_properties(expiry))
        reason = await self._acknowledged(self._published, info.rc, info.mid)
        return not reason.is_failure

    async def subscribe(self, filters: Sequence[str], options: SubscribeOptions) -> list[ReasonCode]:
        """Subscribe to topic filters; return the reason code of each.

        Raises:
            BrokerError: The broker did not respond, or the connection ended.
        """
        result, number = self._client.subscribe([(one, options) for one in filters])
        return await self._acknowledged(self._subscribed, result, number)

    async def _acknowledged(
        self, waiting: dict[int, asyncio.Future[_Answer]], result: MQTTErrorCode, number: int | None
    ) -> _Answer:
        """Wait for the acknowledgement of the packet with a Packet Identifier."""
        self._watch_socket()
        if result != MQTTErrorCode.MQTT_ERR_SUCCESS or number is None:
            raise BrokerError(error_string(result))
        future = waiting[number] = self._loop.create_future()
        try:
            return await self._response(future)
        finally:
            del waiting[number]

    async def _response(self, future: asyncio.Future[_Answer]) -> _Answer:
        waiting: list[asyncio.Future[Any]] = [future, self._ended]
        await asyncio.wait(waiting, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        if self._ended.done():
            raise self._ended.result()
        raise BrokerError(f"the broker did not respond within {self._timeout:g} s")

    # --- the socket in the event loop

    def _attach(self) -> None:
        """Let the event loop call paho when the socket can be read, and for the keep alive."""
        sock = self._client.socket()
        if sock is not None:
            self._client.on_socket_close = self._on_socket_close
            self._loop.add_reader(sock.fileno(), self._on_readable)
        self._check_keep_alive()

    def _watch_socket(self) -> None:
        """Let the event loop call paho when the socket can be written, if something waits for that."""
        sock = self._client.socket()
        if sock is None:
            self._end(BrokerError("the connection was lost"))
        elif self._client.want_write():
            self._loop.add_writer(sock.fileno(), self._on_writable)
        else:
            self._loop.remove_writer(sock.fileno())

    def _on_socket_close(self, _client: Client, _userdata: object, sock: Any) -> None:  # noqa: ANN401  # a protocol of paho without a name
        if sock.fileno() >= 0:
            self._loop.remove_reader(sock.fileno())
            self._loop.remove_writer(sock.fileno())

    def _on_readable(self) -> None:
        self._call_paho(self._client.loop_read)
        sock = self._client.socket()
        if isinstance(sock, ssl.SSLSocket) and sock.pending():  # decrypted already, so the loop sees nothing to read
            self._loop.call_soon(self._on_readable)

    def _on_writable(self) -> None:
        self._call_paho(self._client.loop_write)

    def _check_keep_alive(self) -> None:
        self._call_paho(self._client.loop_misc)
        if not self._ended.done():
            self._keep_alive_timer = self._loop.call_later(KEEP_ALIVE_CHECK_INTERVAL, self._check_keep_alive)

    def _call_paho(self, step: Callable[[], MQTTErrorCode]) -> None:
        try:
            step()
        except PacketRefusedError as error:
            self._end(BrokerError(str(error)))
        except Exception as error:  # noqa: BLE001  # of paho on a malformed packet, or of our handler
            self._end(error)
        self._watch_socket()

    def _end(self, error: Exception) -> None:
        """Record why the connection ended; the first reason counts."""
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
        if not self._ended.done():
            self._ended.set_result(error)

    # --- callbacks of paho

    def _on_connect(
        self, _client: Client, _userdata: object, _flags: ConnectFlags, reason: ReasonCode, _: Properties | None
    ) -> None:
        if not self._connected.done():
            self._connected.set_result(reason)

    def _on_disconnect(
        self, _client: Client, _userdata: object, flags: DisconnectFlags, reason: ReasonCode, _: Properties | None
    ) -> None:
        if not self._connected.done():
            text = "the broker closed the connection before CONNACK; check `tls` and its files"
        elif flags.is_disconnect_packet_from_server:
            text = f"the broker ended the connection: {reason}"
        else:
            text = f"the connection was lost: {reason}"
        self._end(BrokerError(text))

    def _on_message(self, _client: Client, _userdata: object, message: MQTTMessage) -> None:
        if self._settings.on_received is not None:
            with suppress(UnicodeDecodeError):  # of a topic; brokers reject such topics
                self._settings.on_received(message.topic, bytes(message.payload))

    def _on_publish(
        self, _client: Client, _userdata: object, number: int, reason: ReasonCode, _: Properties | None
    ) -> None:
        _set_answer(self._published, number, reason)

    def _on_subscribe(
        self, _client: Client, _userdata: object, number: int, reasons: list[ReasonCode], _: Properties | None
    ) -> None:
        _set_answer(self._subscribed, number, reasons)


def _set_answer(waiting: Mapping[int, asyncio.Future[_Answer]], number: int, answer: _Answer) -> None:
    future = waiting.get(number)
    if future is not None and not future.done():
        future.set_result(answer)


def _expiry_properties(seconds: float | None, packet: int = PacketTypes.PUBLISH) -> Properties | None:
    """Return the properties of a PUBLISH, or of a will, with a Message Expiry Interval."""
    if seconds is None:
        return None
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    properties.MessageExpiryInterval = max(1, round(seconds))
    return properties
