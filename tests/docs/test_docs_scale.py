"""docs/scale.md: its sizes are those of the program, its limits those of the code, and its commands work."""

import re
import shlex
import subprocess
import sys

import pytest

from benchmarks import scale_sizes
from benchmarks.scale_sizes import table
from exporter.meaning.training import alignment
from exporter.meaning.training import jobs as verdicts
from exporter.mqtt import dedup, subscriber
from exporter.mqtt.topics import slot_of
from exporter.sources.collector import source as collector
from tests.daemon import test_series_budget as budget
from tests.helpers.paths import ROOT

PAGE = (ROOT / "docs" / "scale.md").read_text()
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]

SMALL = {
    "collectors": "--nodes 8 --job-nodes 4 --collectors 2 --step 4 --settling 12 --seconds 16",
    "pollers": "--switches 8 --pollers 2 --seconds 16",
    "prometheus": "--series 10000 --divide 15 --scrapes 24",
}
"""Flags with which a part is measured in a minute; the last one counts."""


def found(pattern: str, text: str) -> list[float]:
    """Return the numbers that a pattern finds in a text, one for each of its groups."""
    match = re.search(pattern, text)
    assert match, text
    return [float(number.replace(",", "")) for number in match.groups()]


def run(command: str) -> str:
    """Run a command of the page with this interpreter, and return what it prints."""
    words = shlex.split(command.replace(".venv/bin/python", sys.executable))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- numbers


def test_the_sizes_are_those_that_the_program_prints():
    (command,) = (line for line in COMMANDS if "scale.py sizes" in line)
    printed = run(command).strip()
    (shown,) = re.findall(
        r"^<!-- made by python benchmarks/scale\.py sizes -->\n\n(.*?)\n\n<!-- end -->$", PAGE, re.MULTILINE | re.DOTALL
    )
    assert shown == printed == table([100, 1000, 10_000]).strip()


HOST_COST = 8 * (5 * 5 + 5 * collector.PROGRESS_COST)
"""Of a batch: eight ranks with 25 operations and five streams, each with a row of progress."""

LIMITS = {
    "operations between two reads": f"{collector.MAX_OPERATIONS:,};"
    f" a row of progress counts as {collector.PROGRESS_COST}",
    "ranks of a communicator": f"{alignment.MAX_MEMBERS:,}",
    "ranks that are exported": f"{verdicts.MAX_RANKS:,}",
    "jobs": f"{dedup.MAX_JOBS:,}",
    "hosts of all jobs": f"{dedup.MAX_ALL_HOSTS:,}",
    "streams": f"{dedup.MAX_ALL_STREAMS:,}",
    "queue": f"{subscriber.MAX_QUEUED_BYTES >> 20} MiB",
}


def test_limits_of_a_collector_are_the_constants():
    section = PAGE.partition("| what | limit | reached by |\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines()[1:]]
    assert {name: limit for name, limit, _ in rows} == LIMITS


NUMBERS = {
    "batches of {} hosts like those above": collector.MAX_OPERATIONS / 2 * scale_sizes.PUBLISH / HOST_COST,
    "tests allow {} and": budget.NODE,
    "and {} for each rank": budget.RANK,
    "enough for {} switches of 64 ports": (512 - scale_sizes.POLLER_MIB) / scale_sizes.SWITCH_MIB,
    "an evaluation costs {} ms of CPU": scale_sizes.RULES_CPU * 1000,
    "So a server has at most {} nodes": scale_sizes.SERVER_NODES,
    "for one node they are {} kbit/s of scrapes": scale_sizes.NODE_BYTES * 8 / scale_sizes.SCRAPE / 1000,
    "kbit/s of scrapes and {} kbit/s of batches": scale_sizes.BATCH_BYTES * 8 / scale_sizes.PUBLISH / 1000,
    "among them | {}; tests allow": scale_sizes.NODE_SERIES,
    "kB, {} kB compressed": scale_sizes.NODE_BYTES / 1000,
}
"""Numbers of the text, by what is around them; rounded to some percent."""


@pytest.mark.parametrize(("sentence", "number"), NUMBERS.items(), ids=NUMBERS)
def test_numbers_of_the_text_are_those_of_the_code(sentence, number):
    before, after = map(re.escape, sentence.split("{}"))
    text = " ".join(PAGE.split())
    assert found(rf"{before}([\d.,]+){after}", text) == [pytest.approx(number, rel=0.05)]


def test_series_of_the_table_are_within_the_budgets():
    assert scale_sizes.NODE_SERIES <= budget.NODE + scale_sizes.RAILS * budget.RANK
    assert scale_sizes.PORT_SERIES <= budget.SWITCH_PORT
    assert scale_sizes.RANK_SERIES <= budget.RANK


# --- commands


def test_every_command_is_run():
    parts = {re.match(r"\.venv/bin/python benchmarks/scale\.py (\w+)|printf", line)[1] for line in COMMANDS}
    assert parts == {*SMALL, "sizes", None}


def small(part: str) -> str:
    """Run the first command of a part in a small size."""
    command = next(line for line in COMMANDS if f"scale.py {part} " in line)
    return run(f"{command} {SMALL[part]}")


def test_the_slot_of_a_job_is_printed():
    (command,) = (line for line in COMMANDS if line.startswith("printf"))
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == slot_of("JOB")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_collectors_receive_all_that_is_published(program):
    program("mosquitto")
    printed = small("collectors")
    operations, batches = found(r"2 collectors: ([\d,]+) operations and ([\d,.]+) batches", printed)
    assert operations == pytest.approx(8 * 8 * 20 / 4, rel=0.3)  # ranks, and operations of each in a second
    assert batches == pytest.approx(8 / 5, rel=0.5)  # a batch of each host in five seconds
    assert found(r"lost: (\d+)", printed) == [0]
    assert found(r"verdicts on (\d) jobs", printed) == [2]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_pollers_share_the_switches():
    pytest.importorskip("gufo.snmp", reason="needs gufo_snmp")
    printed = small("pollers")
    assert sum(found(r"2 pollers \((\d) \+ (\d) switches\)", printed)) == 8
    assert found(r"switches\): (\d) are read", printed) == [8]
    assert found(r"([\d.]+) a port", printed) == [pytest.approx(scale_sizes.PORT_SERIES, rel=0.02)]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_prometheus_evaluates_the_rules_on_copies_of_the_fabric(program):
    program("prometheus")
    printed = small("prometheus")
    hosts, ranks, scraped, stored = found(
        r"(\d+) hosts, \d+ switches, (\d+) ranks: ([\d,]+) series scraped, ([\d,]+) with", printed
    )
    assert (hosts, ranks) == (8, 64)
    assert 10_000 <= scraped < stored
    assert found(r"failed (\d+)", printed) == [0]
