"""The values of the Helm chart: all are described, and wrong ones are refused by name."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.helpers.charts import CHART, DEFAULTS, builder, engine, texts
from tests.helpers.paths import ROOT

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
FREE = {"config", "resources", "nodeSelector", "affinity", "tolerations"}
"""Mappings of others than the chart's: their keys are not values of their own."""


def leaves(values: dict[str, Any], *above: str) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in FREE | {"labels"}:
            yield from leaves(value, *above, key)
        else:
            yield (*above, key)


def properties(schema: dict[str, Any], *above: str) -> Iterator[tuple[str, ...]]:
    """Return the paths of all values that the schema knows."""
    for key, one in schema["properties"].items():
        target = SCHEMA["definitions"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one
        if "properties" in target and key not in FREE:
            assert target["additionalProperties"] is False, key
            yield from properties(target, *above, key)
        else:
            yield (*above, key)


def test_generated_files_are_current() -> None:
    assert [path.name for path, text in builder().pages().items() if path.read_text() != text] == [], "run `make docs`"


def test_every_value_is_described_once() -> None:
    table = builder().values_table
    described = [path for path, _ in table.descriptions((CHART / "values.yaml").read_text())]
    assert described == list(leaves(DEFAULTS))


def test_the_schema_has_the_values_and_no_others() -> None:
    assert SCHEMA["additionalProperties"] is False
    assert set(properties(SCHEMA)) - {("global",)} == set(leaves(DEFAULTS))


def test_the_schema_has_the_keys_of_the_configuration() -> None:
    example = yaml.safe_load((ROOT / "docs" / "example.yml").read_text())  # which sets every key, as a test shows
    assert set(SCHEMA["definitions"]["config"]["properties"]) == set(example)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"nodes": {"enabled": True}}, "nodes"),
        ({"node": {"enable": True}}, "enable"),
        ({"node": {"config": {"source": {}}}}, "source"),
        ({"node": {"resources": {"limit": {}}}}, "limit"),
        ({"switches": {"podDisruptionBudget": {"minAvailable": 1}}}, "minAvailable"),
        ({"switches": {"shards": 0}}, "shards"),
        ({"switches": {"shards": "2"}}, "shards"),
        ({"collector": {"shards": 257}}, "shards"),
        ({"collector": {"config": {"collector": {"slots": "00-7f"}}}}, "collector/config/collector"),
        ({"web": {"scheme": "HTTP"}}, "scheme"),
        ({"web": {"port": 80}}, "port"),
        ({"image": {"repository": ""}}, "repository"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"node": {"extraArgs": ["run"]}}, "extraArgs"),
        ({"node": {"podLabels": {"a": 1}}}, "podLabels"),
        ({"podMonitor": {"interval": "15"}}, "interval"),
        ({"imagePullSecrets": ["images"]}, "imagePullSecrets"),
        ({"alertmanagerConfig": {"receivers": [{"webhookConfigs": []}]}}, "receivers"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(engine().HelmError) as error:
        texts(values)
    assert named in str(error.value)


def test_defaults_and_values_of_a_parent_chart_are_accepted() -> None:
    texts({"global": {"anything": 1}})


def test_descriptions_belong_to_the_value_below_them() -> None:
    text = """\
# A file.
# -- First, in
# two lines.
a: 1
b:
  # -- Second.
  c: {x: 1}
  # Not a description.
  d: []
# -- Third.
e: ""
"""
    table = builder().values_table
    assert list(table.descriptions(text)) == [
        (("a",), "First, in two lines."),
        (("b", "c"), "Second."),
        (("e",), "Third."),
    ]
    assert table.table(text).splitlines()[2:] == [
        "| `a` | whole number | `1` | First, in two lines. |",
        '| `b.c` | mapping | `{"x": 1}` | Second. |',
        '| `e` | text | `""` | Third. |',
    ]
