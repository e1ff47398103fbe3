"""Scrapes of running exporters, for commands that compare hosts or take a job's figures."""

import argparse
import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib import parse

from exporter.commands.terminal import show_progress
from exporter.core.printable import printable
from exporter.preflight.fleet import Sample

if TYPE_CHECKING:
    import httpx

AT_ONCE = 16
"""Exporters that are read at the same time, which bounds the memory for their responses."""

TIMEOUT = 10.0
"""Seconds without data after which an exporter is given up, …"""

DEADLINE = 30.0
"""… and seconds for the whole response."""

MAX_BYTES = 16 << 20
"""Bytes of a response: several times those of a host with all sources."""

MAX_SAMPLES = 20_000
"""Samples of one exporter that are read, …"""

MAX_LINE = 16 << 10
"""… and bytes of the line of each; both bound the time of the parser."""

MAX_LABEL = 256
"""Characters of a label value that are kept."""

BUILD_INFO = "fabric_exporter_build_info"
"""The metric that each exporter has."""

_NOT_IN_URLS = re.compile(r"[^\x21-\x7e]")


class Scrape(NamedTuple):
    """What one exporter returned: its samples, or why there are none.

    Attributes:
        address: Host, port and path of its URL, without a password.
        samples: The samples that were asked for.
        error: Why there are none; empty if the exporter was read.
    """

    address: str
    samples: Sequence[Sample] = ()
    error: str = ""


def url_type(text: str) -> str:
    """Return the URL of an exporter's metrics, as a type of a flag.

    Raises:
        ArgumentTypeError: The text is not a URL.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = parse.urlsplit(url)
        is_right = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is not a number, or is above 65535
        is_right = False
    if not is_right or _NOT_IN_URLS.search(text):
        raise argparse.ArgumentTypeError(f"{text[:80]!r}: expected a URL, such as http://gpu-001:10315/metrics")
    return url if parts.path.strip("/") else f"{url.rstrip('/')}/metrics"


def lines_of(metrics: Iterable[str]) -> tuple[bytes, ...]:
    """Return the beginnings of the lines of metrics, with or without labels."""
    return tuple(f"{name}{end}".encode() for name in sorted({*metrics, BUILD_INFO}) for end in "{ ")


def read_exporters(urls: Sequence[str], wanted: tuple[bytes, ...]) -> list[Scrape]:
    """Read exporters, and show the progress on a terminal.

    Args:
        urls: URLs of their metrics.
        wanted: Beginnings of the lines that are parsed: a scrape has many more.

    Returns:
        A scrape for each URL; what does not belong to an exporter of this kind is an error.
    """
    return asyncio.run(_read_all(urls, wanted))


async def _read_all(urls: Sequence[str], wanted: tuple[bytes, ...]) -> list[Scrape]:
    import httpx

    done = 0
    limit = asyncio.Semaphore(AT_ONCE)

    async def read(client: httpx.AsyncClient, url: str) -> Scrape:
        nonlocal done
        async with limit:
            try:
                async with asyncio.timeout(DEADLINE):
                    scrape = await _read(client, url, wanted)
            except TimeoutError:
                scrape = Scrape(_address(url), error=f"no complete response within {DEADLINE:.0f} s")
        done += 1
        show_progress(f"{done} of {len(urls)} exporters" if done < len(urls) else "")
        return scrape

    async with httpx.AsyncClient(timeout=TIMEOUT, follow_redirects=False) as client:
        return await asyncio.gather(*(read(client, url) for url in urls))


async def _read(client: "httpx.AsyncClient", url: str, wanted: tuple[bytes, ...]) -> Scrape:
    """Read one exporter; an error is its result, without the password that a URL may have."""
    import httpx

    address = _address(url)
    try:
        data = bytearray()
        async with client.stream("GET", url) as response:
            response.raise_for_status()
            async for part in response.aiter_bytes():
                data += part
                if len(data) > MAX_BYTES:
                    return Scrape(address, error=f"the response is larger than {MAX_BYTES >> 20} MiB")
        samples = await asyncio.to_thread(_parse, bytes(data), wanted)
    except httpx.HTTPStatusError as error:
        return Scrape(address, error=f"HTTP {error.response.status_code}")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Scrape(address, error=str(error) or type(error).__name__)
    except ValueError:
        return Scrape(address, error="the response is not in Prometheus's text format, or has more than hosts have")
    return Scrape(address, samples) if samples else Scrape(address, error="no fabric-exporter")


def _address(url: str) -> str:
    parts = parse.urlsplit(url)
    path = "" if parts.path == "/metrics" else parts.path
    return printable(parts.netloc.rpartition("@")[2] + path, "?")


def _parse(data: bytes, wanted: tuple[bytes, ...]) -> list[Sample]:
    """Parse the wanted samples, of Prometheus's text format; label values are made printable.

    Raises:
        ValueError: One is not in that format, or there are too many.
    """
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in data.split(b"\n") if line.startswith(wanted)]
    if len(lines) > MAX_SAMPLES or max(map(len, lines), default=0) > MAX_LINE:
        raise ValueError("too many samples, or too long ones")
    families = text_string_to_metric_families(b"\n".join([*lines, b""]).decode("utf-8", "replace"))
    return [
        Sample(one.name, {name: printable(value, "?")[:MAX_LABEL] for name, value in one.labels.items()}, one.value)
        for family in families
        for one in family.samples
    ]
