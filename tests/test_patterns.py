"""Regular expressions: on no input does any of them take more than three times as long for a text twice as long."""

import re
from pathlib import Path
from time import process_time

import pytest

from exporter.nccl.debug_log_rules import RULES
from exporter.sources.common import driver_statistics
from tests.helpers.paths import ROOT
from tests.helpers.patterns import hostile_texts, imports_of_names, patterns_of

pytestmark = pytest.mark.slow

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "exporter").rglob("*.py"))
    if path.name != "__main__.py"
}

FOUND = patterns_of(MODULES)

MADE = {
    "exporter.simulator.monitoring.programs._responds": "patterns of this program, over the logs of its own demo",
    "exporter.nccl.log_rule.log_rule": "each is in RULES, which is found",
    "exporter.snmp.anonymise._name_pattern": "names without anything that repeats",
    "exporter.sources.common.driver_statistics.queue_pattern": "declared names with numbers between them, as below",
    "exporter.sources.switch.port_kinds._words": "each is a constant of its module, which is found",
}
"""Functions that make patterns from their arguments, and why these are linear."""

SHORT_LENGTHS = (((10, 12), 60.0), ((64, 128), 20.0))
"""Characters of short texts, and how much more twice as many may cost at both of two lengths: a pattern that takes
exponential time, or time by a high power of the length, would never end on longer ones. One that needs as many
characters as one of the lengths costs next to nothing below."""

LENGTH, CONFIRMED_LENGTHS = 512, (2048, 4096)
"""Characters of the shorter text at the first try, and of one that looks bad: a pattern may repeat something up to a
number that is much smaller. Other work on the machine disturbs one length, hardly all of them."""

RESOLUTION_SECONDS = 1e-6
MEASURED_SECONDS = 0.002
"""What is shorter is repeated."""

RATIO = 3.0
"""Most that twice the length may cost; what is proportional to the length costs twice as much."""


def cost(match, text, times):
    began = process_time()
    for _ in range(times):
        match(text)
    return process_time() - began


def ratio_of(pattern, method, parts, length, tries):
    """Return how much more twice the length costs: the best of so many tries of each, in turns."""
    start, unit, end = parts
    texts = [(start + unit * (size // len(unit) + 1))[:size] + end for size in (length, 2 * length)]
    if isinstance(pattern.pattern, bytes):
        texts = [text.encode("utf-8", "replace") for text in texts]
    match = getattr(pattern, method)
    times = 1 if length == LENGTH else max(1, int(MEASURED_SECONDS / max(cost(match, texts[0], 1), RESOLUTION_SECONDS)))
    short, long = map(min, zip(*([cost(match, text, times) for text in texts] for _ in range(tries)), strict=True))
    return long / max(short, RESOLUTION_SECONDS)


def worst_ratio(pattern, texts):
    """Return how much more twice the length costs at most, and on what."""
    worst, on = 0.0, None
    for parts in texts:
        for method in ("search", "fullmatch"):
            for lengths, most in SHORT_LENGTHS:
                if all((ratio := ratio_of(pattern, method, parts, length, 3)) > most for length in lengths):
                    return ratio, (method, *parts)
            ratio = ratio_of(pattern, method, parts, LENGTH, 1)
            if ratio > RATIO:
                ratio = ratio_of(pattern, method, parts, LENGTH, 3)
            if ratio > RATIO:
                ratio = min(ratio_of(pattern, method, parts, length, 3) for length in CONFIRMED_LENGTHS)
            if ratio > worst:
                worst, on = ratio, (method, *parts)
            if worst > RATIO:
                return worst, on
    return worst, on


@pytest.mark.parametrize("place", sorted(FOUND.patterns))
def test_twice_the_text_costs_at_most_three_times_as_much(place):
    pattern = FOUND.patterns[place]
    ratio, on = worst_ratio(pattern, hostile_texts(pattern))
    assert ratio <= RATIO, on


def test_every_pattern_is_found():
    assert FOUND.made == MADE.keys(), "give each function that makes patterns a reason, and remove the others"
    assert [f"{name}:{line}" for name, path in MODULES.items() for line in imports_of_names(path.read_text())] == []
    names = {place.split()[0] for place in FOUND.patterns}
    for expected in (
        "exporter.sources.switch.port_names._NAME",  # of a module
        "exporter.nccl.debug_log.RULES",  # in objects
        "exporter.sources.nccl.identity._PODS",  # in a tuple
        "exporter.linux.cgroup._SLURM",  # from a comprehension
        "exporter.sources.switch.registry._host",  # in a function
    ):
        assert expected in names
    assert {rule.pattern.pattern for rule in RULES} <= {one.pattern for one in FOUND.patterns.values()}


def test_names_of_queues_make_linear_patterns():
    pattern = driver_statistics.queue_pattern(["rx#_drops", "rx_queue_#_drops", "tx#_tx_timeouts"])
    assert pattern.fullmatch("rx_queue_12_drops")
    ratio, on = worst_ratio(pattern, hostile_texts(pattern))
    assert ratio <= RATIO, on


@pytest.mark.parametrize("bad", [r"\s*$", r"(a+)+b", r"\d+x", r"(\s*[a-z]*?[\s-]?[0-9].*?)\s*", r"(.+)-[0-9]+"])
def test_a_quadratic_pattern_is_detected(bad):
    pattern = re.compile(bad)
    assert worst_ratio(pattern, hostile_texts(pattern))[0] > RATIO


def test_calls_that_are_imported_by_name_are_detected(tmp_path: Path):
    assert imports_of_names("import re\nfrom re import compile\nimport re as other\n") == [2, 3]
