"""A real MQTT broker: mosquitto."""

import signal
import socket
import subprocess
from pathlib import Path
from time import monotonic

from exporter.mqtt.options import MqttOptions
from tests.helpers.stack import free_port

PATIENCE = 30.0
"""Seconds to wait for a start, on a busy machine."""


class Broker:
    """A mosquitto on loopback that can be stopped and started at the same port."""

    def __init__(self, path: str, folder: Path, lines: tuple[str, ...]):
        self.port = free_port()
        self._path, self._folder = path, folder
        self._config = folder / "mosquitto.conf"
        start = [f"listener {self.port} 127.0.0.1", "user root", "persistence false", "log_type all"]
        self._config.write_text("\n".join([*start, *lines]) + "\n")
        self.log = folder / "log"
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([self._path, "-c", self._config], stdout=log, stderr=log)
        end = monotonic() + PATIENCE
        while True:
            assert self.process.poll() is None, self.log.read_text()
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert monotonic() < end, self.log.read_text()

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def options(self, **other):
        return MqttOptions(broker=f"127.0.0.1:{self.port}", **other)
