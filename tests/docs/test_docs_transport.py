"""docs/transport.md: its numbers equal those of the code, and its metrics exist."""

import re

import promql_parser as promql
import pytest

from exporter.meaning.training import transport
from tests.helpers.paths import ROOT
from tests.helpers.promql import exported, faults

PAGE = (ROOT / "docs" / "transport.md").read_text()
QUERIES = re.findall(r"^```promql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

NUMBERS = {
    "added up over {} seconds": transport.WINDOW_SECONDS,
    "from {} seconds earlier": transport.LEAD_SECONDS,
    "to {} seconds later": transport.SETTLE_SECONDS,
    "below {}: not RDMA": transport.RDMA_SHARE,
    "less than {} GiB per minute": transport.MIN_BYTES / (1 << 30) * transport.WINDOW_SECONDS / 60,
}


@pytest.mark.parametrize(("sentence", "number"), NUMBERS.items(), ids=NUMBERS)
def test_documented_numbers_equal_the_code(sentence, number):
    before, after = sentence.split("{}")
    (documented,) = re.findall(rf"{re.escape(before)}([0-9.]+){re.escape(after)}", PAGE)
    assert float(documented) == pytest.approx(number)


def test_its_metrics_exist_and_its_queries_are_right():
    assert set(re.findall(r"\bfabric_(?:nccl|job|rdma)_[a-z_]+\b", PAGE)) <= exported().keys()
    assert len(QUERIES) == 2
    assert [found for query in QUERIES for found in faults(promql.parse(query), exported())] == []
