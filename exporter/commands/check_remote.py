"""`check --remote`: exporters of many hosts compared with each other, and the checks that fail on each."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from exporter.commands.judging import OWN_FAULT
from exporter.commands.scrapes import Scrape, lines_of, read_exporters
from exporter.commands.terminal import print_output
from exporter.preflight.fleet import COUNTS, LABELS, VALUES, Odd, Sample, odd_ones, properties_of

CHECK_LABELS = frozenset({"check", "object", "result", "evidence"})

CHECK_INFO = "fabric_check_info"

HOST_METRICS = frozenset({"fabric_rdma_info", "fabric_nic_info", "fabric_pci_info"})
"""Metrics whose label `host` is the name of the exporter's own host."""

COMPARED = (b"fabric_check_", *lines_of([*LABELS, *VALUES, *COUNTS, *HOST_METRICS]))
"""Beginnings of the lines that are parsed."""


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
    answers = _distinct([_answer(one) for one in read_exporters(urls, COMPARED)])
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


def _answer(scrape: Scrape) -> _Answer:
    """Return the answer of an exporter, by the name of its host; by its address where no metric has that."""
    name = scrape.address
    hosts = (one.labels.get("host", "") for one in scrape.samples if one.name in HOST_METRICS)
    return _Answer(next(filter(None, hosts), name), scrape.samples, scrape.error, name)


def _distinct(answers: Sequence[_Answer]) -> list[_Answer]:
    """Add the address to names of hosts that several exporters have, so that none hides another."""
    counted = Counter(one.host for one in answers)
    return [one if counted[one.host] == 1 else one._replace(host=f"{one.host} ({one.address})") for one in answers]


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
