"""Print the alerts that Alertmanager sends, one line for each that begins or ends."""

import asyncio
import signal
import socket
from datetime import datetime

from exporter.outputs.http_server import ConnectionStats, Server
from exporter.simulator.monitoring.receiver import Notice, Receiver

PORT = 9099
"""Port of the URLs in alertmanager.yml."""


def _print(notice: Notice) -> None:
    print(f"{datetime.now():%H:%M:%S} {notice.line()}", flush=True)  # noqa: DTZ005, T201  # local time


async def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    server = Server(Receiver(_print), ConnectionStats())
    with socket.create_server(("", PORT)) as listening:
        server.listen(listening)
        await stopping.wait()
        await server.stop(1.0)


if __name__ == "__main__":
    asyncio.run(main())
