"""Scrapes of a real daemon, with what differs from run to run masked, to be compared with golden files.

`UPDATE_GOLDEN=1` writes the files again instead; read the difference before committing it.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from exporter.daemon.daemon import Daemon
from exporter.daemon.settings import Settings
from tests.helpers.paths import FIXTURES

GOLDEN = FIXTURES / "golden"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TEXT = "text/plain; version=0.0.4"
VARIES = "VARIES"

_VALUE = re.compile(
    r"^((?:process_|python_gc_|fabric_switch_(?:poll_duration|unchanged_polls|uptime_seconds)|fabric_source_(?:last_success|read_duration|reads|overruns|failures)"
    r"|fabric_ib_sweep_(?:duration_seconds|datagrams_total)"
    r"|fabric_exporter_(?:config_last_reload_success_time|event_loop_lag|http_requests|burst_ticks)"
    r"|fabric_nccl_(?:verdict_seconds|unmatched_collectives|log_age_seconds)"
    r"|fabric_rdma_(?:receive|transmit)_utilization_samples_(?:bucket|count))\S*) .*$",
    re.MULTILINE,
)
_LABEL = re.compile(r'\b(version|python|major|minor|patchlevel)="[^"]*"')


def masked(text: str) -> str:
    """Put a word in the place of every value that no two runs share."""
    return _LABEL.sub(rf'\1="{VARIES}"', _VALUE.sub(rf"\1 {VARIES}", text))


def is_fixed(name: str) -> bool:
    """Return whether a metric's values are the same in each run."""
    return not _VALUE.match(f"{name} 1")


def compare(source: str, text: str) -> None:
    """Compare a scrape with the golden file of a source."""
    path, found = GOLDEN / f"{source}.txt", masked(text)
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert found.splitlines() == path.read_text().splitlines()


class Scraper:
    """Scrapes one daemon."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def text(self, form: str = TEXT) -> str:
        """Scrape once."""
        answer = await self._client.get("/metrics", headers={"Accept": form})
        assert answer.status_code == 200
        return answer.text

    async def until(self, look: Callable[[str], bool]) -> str:
        """Scrape until the wanted metrics are there, and return the scrape."""
        async with asyncio.timeout(30):
            while not look(text := await self.text()):  # noqa: ASYNC110  # a scrape has no event to wait for
                await asyncio.sleep(0.05)
        return text

    async def settled(self) -> str:
        """Scrape once each source has been read three times from now: rates need two reads, and reads may be early."""
        before = reads(await self.text())
        return await self.until(
            lambda text: bool(now := reads(text)) and all(now[key] >= before.get(key, 0) + 3 for key in now)
        )


def reads(text: str) -> dict[str, int]:
    """Return how often each source was read."""
    return {key: int(value) for key, value in re.findall(r"^fabric_source_reads_total(\S+) (\d+)", text, re.MULTILINE)}


@asynccontextmanager
async def scraped(config: Path, **paths: Path) -> AsyncIterator[Scraper]:
    """Run a daemon in this process; its flags are as on the command line."""
    daemon = Daemon(Settings(config_file=config, listen_addresses=("127.0.0.1:0",), **paths))
    await daemon.start()
    try:
        host, port = daemon.web.addresses[0]
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
            yield Scraper(client)
    finally:
        await daemon.stop()
