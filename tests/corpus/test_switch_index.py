"""The recordings of switches as a whole: which test reads which, and what public MIBs say of profiles' columns."""

import re

import pytest
import yaml

from tests.helpers.paths import ROOT

READ_BY = {
    "eos": "corpus/test_switch_eos_nxos.py",
    "junos": "corpus/test_switch_eos_nxos.py",
    "nvue": "corpus/test_switch_rest.py",
    "nxos": "corpus/test_switch_eos_nxos.py",
    "onyx": "corpus/test_switch_rest.py",
    "snmprec": "corpus/test_switch_snmp.py",
    "sonic": "corpus/test_switch_sonic.py",
    "sonic/mgmt-common": "corpus/test_switch_rest.py",
    "oids.tsv": "corpus/test_switch_index.py",
}
"""Each of these tests lists the files of its folder one by one, with a reason for those that are not read."""

NOT_READ = {
    "gnmi": "one answer of gNMI, which is no way to ask a switch here",
    "INDEX.md": "says where the others are from",
}

DIRECTIONS = {
    "receive": re.compile(r"In(?!dex|t)|Rx|Indications"),
    "transmit": re.compile(r"Out|Tx|Egress|QoSTCPkts|QoSTCBytes|QosGroupStatsValue|Requests"),
}
"""Words in the names of MIB objects. Tables of egress queues do not all say so in each name."""

TABLES = [
    pytest.param(profile, name, table, id=f"{profile}-{name}")
    for profile, tables in (
        (path.stem, yaml.safe_load(path.read_text()).get("tables", {}))
        for path in sorted((ROOT / "exporter" / "sources" / "switch" / "readers" / "snmp" / "profiles").glob("*.yml"))
    )
    for name, table in tables.items()
]


@pytest.fixture
def folder(corpus):
    if not (corpus / "switch").is_dir():
        pytest.skip("needs the corpus of switches")
    return corpus / "switch"


@pytest.fixture
def objects(folder):
    """Give name, syntax, units and index of MIB objects by OID."""
    rows = [line.split("\t") for line in (folder / "oids.tsv").read_text().splitlines()[1:]]
    return {oid: (name, syntax, units, index) for oid, name, syntax, units, index, _ in rows}


def test_every_folder_of_recordings_is_some_tests_or_there_is_a_reason(folder):
    assert {path.name for path in folder.iterdir()} == {name for name in READ_BY if "/" not in name} | NOT_READ.keys()
    for name, test in READ_BY.items():
        text = (ROOT / "tests" / test).read_text()
        assert (folder / name).exists(), name
        assert all(f'"{part}"' in text or f"{part}/" in text for part in name.split("/")), (name, test)


@pytest.mark.parametrize(("profile", "name", "table"), TABLES)
def test_columns_are_what_the_mibs_say(objects, profile, name, table):
    index = table.get("index", ["port"])
    told = objects.get(table["root"], ("", "", "", ""))[3]
    assert not told or len(told.split(",")) == len(index), (profile, name)
    for column in table["columns"]:
        called, syntax, units, _ = objects[f"{table['root']}.{column['column']}"]
        assert syntax == ("Counter32" if column.get("width") == 32 else syntax), called
        assert syntax in ("Counter64", "Unsigned64") or column.get("width") == 32, called
        way = re.search("receive|transmit", column["metric"])
        assert way is None or DIRECTIONS[way[0]].search(called), (called, column["metric"])
        assert ("bytes" in column["metric"]) == bool(re.search("Octets|Bytes", called)) or "statistic" in index, called
        if units == "micro-seconds":
            assert column["divisor"] == 10**6, called
        if "at" in column:
            assert called.endswith(f"Pfc{column['at']}Pkt")
