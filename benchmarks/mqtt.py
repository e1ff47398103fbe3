"""CPU of a collector for a message received by MQTT, against paho-mqtt's own thread that passes each to the loop."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from measure import Figure
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.subscribeoptions import SubscribeOptions

from exporter.mqtt.client import Access, BrokerClient, ClientSettings
from exporter.simulator.monitoring.listening_ports import free_port

MESSAGES = 10_000
RATE = 100_000 / 60
"""Messages a second: those of some thousand hosts."""

BAR = 0.8
ROUNDS = 3

SENDER = """
import sys, time
import paho.mqtt.client as paho
client = paho.Client(paho.CallbackAPIVersion.VERSION2)
client.max_inflight_messages_set(100)
client.connect("127.0.0.1", int(sys.argv[1]))
client.loop_start()
begun = time.monotonic()
for number in range(int(sys.argv[2])):
    info = client.publish("a", bytes(2000), qos=1)
    time.sleep(max(0.0, begun + number / float(sys.argv[3]) - time.monotonic()))
info.wait_for_publish(120)
client.disconnect()
client.loop_stop()
"""


class Count:
    """Counts messages, and measures the CPU of this process from the first to the last."""

    def __init__(self) -> None:
        self.received = 0
        self.seconds = 0.0
        self.ended = asyncio.Event()

    def add(self, _topic: str, _payload: bytes) -> None:
        """Count one message."""
        self.received += 1
        if self.received == 1:
            self.seconds = -time.process_time()
        if self.received == MESSAGES:
            self.seconds += time.process_time()
            self.ended.set()


async def _ours(port: int, count: Count, send: Callable[[], Awaitable[None]]) -> None:
    client = BrokerClient(ClientSettings("ours", on_received=count.add), Access(("127.0.0.1", port)), 10.0)
    await client.connect(clean_start=True)
    await client.subscribe(["a"], SubscribeOptions(qos=1))
    await send()
    client.close()


async def _thread(port: int, count: Count, send: Callable[[], Awaitable[None]]) -> None:
    loop, subscribed = asyncio.get_running_loop(), asyncio.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.on_message = lambda _client, _data, message: loop.call_soon_threadsafe(  # type: ignore[assignment]
        count.add, message.topic, bytes(message.payload)
    )
    client.on_subscribe = lambda *_: loop.call_soon_threadsafe(subscribed.set)  # type: ignore[assignment]
    await asyncio.to_thread(client.connect, "127.0.0.1", port)
    client.loop_start()
    while not client.is_connected():  # noqa: ASYNC110  # once
        await asyncio.sleep(0.01)
    client.subscribe("a", qos=1)
    await subscribed.wait()
    await send()
    client.disconnect()
    client.loop_stop()


def _microseconds(port: int, receive: Callable[[int, Count, Callable[[], Awaitable[None]]], Awaitable[None]]) -> float:
    async def measure() -> float:
        count = Count()

        async def send() -> None:
            command = [sys.executable, "-c", SENDER, str(port), str(MESSAGES), str(RATE)]
            sender = await asyncio.create_subprocess_exec(*command)
            await asyncio.wait_for(count.ended.wait(), 300)
            await sender.wait()

        await receive(port, count, send)
        return count.seconds / MESSAGES * 1e6

    return asyncio.run(measure())


def run() -> list[Figure]:
    """Measure both in turns, and return the best of each."""
    program = shutil.which("mosquitto", path="/usr/sbin:/usr/bin")
    if program is None:
        print("mosquitto is not installed: left out")
        return []
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        config = Path(folder) / "mosquitto.conf"
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nlog_type none\n")
        with subprocess.Popen([program, "-c", config]) as broker:
            try:
                time.sleep(1.0)
                pairs = [(_microseconds(port, _ours), _microseconds(port, _thread)) for _ in range(ROUNDS)]
            finally:
                broker.kill()
    ours, peer = (min(figures) for figures in zip(*pairs, strict=True))
    return [Figure("a received message of 2 kB, QoS 1", "µs", ours, "paho's thread", peer, BAR)]
