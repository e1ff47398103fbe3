"""`check --remote`: exporters of many hosts compared with each other, and the checks that fail on each."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib import parse

import httpx
from prometheus_client.parser import text_string_to_metric_families

from exporter.commands.judging import OWN_FAULT
from exporter.commands.terminal import print_output, show_progress
from exporter.core.printable import printable
from exporter.preflight.fleet import COUNTS, LABELS, VALUES, Odd, Sample, odd_ones, properties_of

AT_ONCE = 16
"""Exporters that are read at the same time, which bounds the memory for their responses."""

TIMEOUT = 10.0
"""Seconds without data after which an exporter is given up, …"""

DEADLINE = 30.0
"""… and seconds for the whole response."""

MAX_BYTES = 16 << 20
"""Bytes of a response: several times those of a host with all sources."""

MAX_SAMPLES = 20_000
"""Samples of one exporter that are compared, …"""

MAX_LINE = 16 << 10
"""… and bytes of the line of each; both bound the time of the parser."""

MAX_LABEL = 256
"""Characters of a label value that are kept."""

CHECK_LABELS = frozenset({"check", "object", "result", "evidence"})

CHECK_INFO = "fabric_check_info"

HOST_METRICS = frozenset({"fabric_rdma_info", "fabric_nic_info", "fabric_pci_info"})
"""Metrics whose label `host` is the name of the exporter's own host."""


BUILD_INFO = "fabric_exporter_build_info"
"""The metric that each exporter has."""

COMPARED = (
    b"fabric_check_",
    *(
        f"{name}{end}".encode()
        for name in sorted({*LABELS, *VALUES, *COUNTS, *HOST_METRICS, BUILD_INFO})
        for end in "{ "
    ),
)
"""Beginnings of the lines that are parsed: a scrape has many more."""


class _Answer(NamedTuple):
    """What one exporter returned: its host, its samples, why there are none, and its address."""

    host: str
    samples: Sequence[Sample]
    error: str = ""
    address: str = ""


def run(urls: Sequence[str], *, as_json: bool, is_strict: bool) -> int:
    """Print what differs and what fails.

    Returns:
        1 if a check fails, with `is_strict` also if something differs; 2 if no exporter could be read; else 0.
    """
    answers = _distinct(asyncio.run(_read_all(urls)))
    hosts = {one.host: properties_of(one.samples) for one in answers if not one.error}
    odd = list(odd_ones(hosts))
    failed = [
        (one.host, sample)
        for one in answers
        for sample in one.samples
        if sample.name == CHECK_INFO
        and sample.labels.keys() >= CHECK_LABELS
        and sample.labels["result"] in {"fail", "warn"}
    ]
    if as_json:
        print_output([json.dumps(_as_json(answers, odd, failed), indent=1)])
    else:
        print_output(_as_text(answers, odd, failed))
    if not hosts:
        return OWN_FAULT  # nothing was compared
    results = {sample.labels["result"] for _, sample in failed}
    return int("fail" in results or (is_strict and bool(odd or results)))


def _address(url: str) -> str:
    """Return host, port and path of a URL, without a password."""
    parts = parse.urlsplit(url)
    path = "" if parts.path == "/metrics" else parts.path
    return printable(parts.netloc.rpartition("@")[2] + path, "?")


def _parse(data: bytes) -> list[Sample]:
    """Parse the samples that are compared, of Prometheus's text format; label values are made printable.

    Raises:
        ValueError: One is not in that format, or there are too many.
    """
    lines = [line for line in data.split(b"\n") if line.startswith(COMPARED)]
    if len(lines) > MAX_SAMPLES or max(map(len, lines), default=0) > MAX_LINE:
        raise ValueError("too many samples, or too long ones")
    families = text_string_to_metric_families(b"\n".join([*lines, b""]).decode("utf-8", "replace"))
    return [
        Sample(one.name, {name: printable(value, "?")[:MAX_LABEL] for name, value in one.labels.items()}, one.value)
        for family in families
        for one in family.samples
    ]


def _distinct(answers: Sequence[_Answer]) -> list[_Answer]:
    """Add the address to names of hosts that several exporters have, so that none hides another."""
    counted = Counter(one.host for one in answers)
    return [one if counted[one.host] == 1 else one._replace(host=f"{one.host} ({one.address})") for one in answers]


async def _read_all(urls: Sequence[str]) -> list[_Answer]:
    done = 0
    limit = asyncio.Semaphore(AT_ONCE)

    async def read(client: httpx.AsyncClient, url: str) -> _Answer:
        nonlocal done
        async with limit:
            try:
                async with asyncio.timeout(DEADLINE):
                    answer = await _read(client, url)
            except TimeoutError:
                answer = _Answer(_address(url), (), f"no complete response within {DEADLINE:.0f} s")
        done += 1
        show_progress(f"{done} of {len(urls)} exporters" if done < len(urls) else "")
        return answer

    async with httpx.AsyncClient(timeout=TIMEOUT, follow_redirects=False) as client:
        return await asyncio.gather(*(read(client, url) for url in urls))


async def _read(client: httpx.AsyncClient, url: str) -> _Answer:
    """Read one exporter; an error is its answer, without the password that a URL may have."""
    name = _address(url)
    try:
        data = bytearray()
        async with client.stream("GET", url) as response:
            response.raise_for_status()
            async for part in response.aiter_bytes():
                data += part
                if len(data) > MAX_BYTES:
                    return _Answer(name, (), f"the response is larger than {MAX_BYTES >> 20} MiB")
        samples = await asyncio.to_thread(_parse, bytes(data))
    except httpx.HTTPStatusError as error:
        return _Answer(name, (), f"HTTP {error.response.status_code}")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return _Answer(name, (), str(error) or type(error).__name__)
    except ValueError:
        return _Answer(name, (), "the response is not in Prometheus's text format, or has more than hosts have")
    host = next((one.labels["host"] for one in samples if one.name in HOST_METRICS and one.labels.get("host")), name)
    return (
        _Answer(host, samples, address=name)
        if host != name or _is_exporter(samples)
        else _Answer(name, (), "no fabric-exporter")
    )


def _is_exporter(samples: Sequence[Sample]) -> bool:
    return any(one.name == BUILD_INFO for one in samples)


def _as_json(answers: Sequence[_Answer], odd: Sequence[Odd], failed: Sequence[tuple[str, Sample]]) -> dict[str, Any]:
    return {
        "hosts": sorted(one.host for one in answers if not one.error),
        "unreadable": {one.host: one.error for one in answers if one.error},
        "different": [
            {
                "host": one.host,
                "place": str(one.what.place),
                "property": one.what.name,
                "value": one.value,
                "usual": one.usual,
                "usual_hosts": one.number,
                "hosts": one.of,
            }
            for one in odd
        ],
        "checks": [{"host": host, **sample.labels} for host, sample in failed],
    }


def _as_text(answers: Sequence[_Answer], odd: Sequence[Odd], failed: Sequence[tuple[str, Sample]]) -> list[str]:
    unreadable = [one for one in answers if one.error]
    failing = {host for host, sample in failed if sample.labels["result"] == "fail"}
    differing = {one.host for one in odd}
    head = f"{len(answers) - len(unreadable)} hosts compared, {len(differing)} differ, {len(failing)} have checks that"
    lines = [f"{head} fail, {len(unreadable)} could not be read"]
    rows = [(one.host, "differs", f"{one.what.place} {one.what.name}".strip(), _difference(one)) for one in odd]
    for host, sample in sorted(failed, key=lambda item: (item[1].labels["result"] != "fail", item[0])):
        labels = sample.labels
        rows.append((host, labels["result"], f"{labels['check']}: {labels['object']}", labels["evidence"]))
    rows += [(one.host, "unknown", "", one.error) for one in unreadable]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[3]]).rstrip())
    return lines


def _difference(one: Odd) -> str:
    return f"{one.value}; {one.number} of {one.of} hosts have {one.usual}"
