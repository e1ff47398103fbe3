"""A redis server for tests of SONiC's databases."""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import redis

START_TIMEOUT_SECONDS = 60.0
DATABASES = {"appl": 0, "counters": 2, "config": 4, "state": 6}


@contextlib.contextmanager
def running_redis(program: str, folder: Path) -> Iterator[str]:
    """Run redis on a Unix socket in a folder, and yield the path of the socket."""
    path = str(folder / "redis.sock")
    command = [program, "--port", "0", "--unixsocket", path, "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        client = redis.Redis(unix_socket_path=path)
        end = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            with contextlib.suppress(redis.ConnectionError):
                client.ping()
                break
            assert time.monotonic() < end
        client.close()
        yield path
        process.terminate()


def fill(client: redis.Redis, hashes: dict[str, dict[str, str]]) -> None:
    """Write hashes into a database."""
    for key, fields in hashes.items():
        client.hset(key, mapping=fields)


@contextlib.contextmanager
def filled(server: str, *hashes: dict[str, dict[str, str]]) -> Iterator[dict[int, redis.Redis]]:
    """Fill the databases in the order of DATABASES, yield a client of each by number, and empty them at the end."""
    clients = {number: redis.Redis(unix_socket_path=server, db=number) for number in DATABASES.values()}
    for client, content in zip(clients.values(), hashes, strict=True):
        fill(client, content)
    yield clients
    clients[0].flushall()
    for client in clients.values():
        client.close()


def hashes_of(path: Path) -> dict[str, dict[str, str]]:
    """Return the hashes of a dump of a database in any of its JSON forms; other types are skipped."""
    data = json.loads(path.read_text())
    data = data.get("data", data)
    values = {key: value.get("value", value) if isinstance(value, dict) else value for key, value in data.items()}
    return {key: value for key, value in values.items() if isinstance(value, dict) and value}
