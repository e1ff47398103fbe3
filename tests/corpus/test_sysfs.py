"""Trees of /sys/class/infiniband from real hosts: how many ports, which columns, and values read off the raw files."""

import json
from pathlib import Path

import pytest

from exporter.core.definition import Context
from exporter.core.source import Host
from exporter.core.table import Kind
from exporter.sources.rdma.options import RdmaOptions
from exporter.sources.rdma.source import DEFINITION

EXPECTATIONS = json.loads((Path(__file__).parent / "sysfs_expectations.json").read_text("utf-8"))


def root_of(corpus: Path, tree: str, scratch: Path) -> Path:
    """Return the root of a tree; one that was recorded as the bare class folder gets a root around it."""
    folder = corpus / "host" / "sysfs" / tree
    if (folder / "class").is_dir():
        return folder
    (scratch / "class").mkdir()
    (scratch / "class" / "infiniband").symlink_to(folder)
    return scratch


def trees(folder: Path) -> set[str]:
    """List the trees below a folder: the roots of `class/infiniband`, and bare class folders, found by their ports."""
    roots = {path.parent.parent for path in folder.rglob("class/infiniband")}
    bare = {path.parent.parent for path in folder.rglob("ports") if path.parent.parent.name != "infiniband"}
    return {str(path.relative_to(folder)) for path in roots | bare}


def test_every_tree_has_expectations(corpus):
    assert trees(corpus / "host" / "sysfs") == EXPECTATIONS.keys()


@pytest.mark.parametrize("tree", EXPECTATIONS)
async def test_recorded_tree_is_read_completely(corpus, tmp_path, tree):
    expected = EXPECTATIONS[tree]
    root = root_of(corpus, tree, tmp_path)
    (source,) = DEFINITION.build(
        RdmaOptions(keep=("*",)), Context(Host("gpu-1", root, root / "proc", tmp_path / "no-recordings"))
    )
    try:
        reading = await source.read()
    finally:
        await source.close()
    ports, columns = {}, set()
    for table in reading.tables:
        for ending, column in table.columns.items():
            for key, value in zip(table.rows.keys, column.values, strict=True):
                if value is not None:
                    columns.add(ending)
                    scaled = value * column.factor if column.metric.kind is Kind.COUNTER else value
                    ports.setdefault(" ".join(key), {})[ending] = scaled
    assert reading.failures == []
    assert len(ports) == expected["ports"]
    assert sorted(columns) == expected["columns"]
    for port, values in expected["values"].items():
        for ending, value in values.items():
            assert ports[port].get(ending) == value, (port, ending)
