"""The corpus of switches as a whole: the test that reads each folder, and the columns of profiles in public MIBs."""

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
"""Each of these tests lists the files of its folder, with a reason for those that are not read."""

NOT_READ = {
    "gnmi": "one response of gNMI, which is not a supported protocol",
    "INDEX.md": "the origins of the other files",
}

DIRECTIONS = {
    "receive": re.compile(r"In(?!dex|t)|Rx|Indications"),
    "transmit": re.compile(r"Out|Tx|Egress|QoSTCPkts|QoSTCBytes|QosGroupStatsValue|Requests"),
}
"""Words in the names of MIB objects. Not all objects of egress queues have one."""

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
    """Return name, syntax, units and index of MIB objects by OID."""
    rows = [line.split("\t") for line in (folder / "oids.tsv").read_text().splitlines()[1:]]
    return {oid: (name, syntax, units, index) for oid, name, syntax, units, index, _ in rows}


def test_every_folder_of_recordings_is_read_by_a_test_or_excluded(folder):
    assert {path.name for path in folder.iterdir()} == {name for name in READ_BY if "/" not in name} | NOT_READ.keys()
    for name, test in READ_BY.items():
        text = (ROOT / "tests" / test).read_text()
        assert (folder / name).exists(), name
        assert all(f'"{part}"' in text or f"{part}/" in text for part in name.split("/")), (name, test)


@pytest.mark.parametrize(("profile", "name", "table"), TABLES)
def test_columns_match_the_mibs(objects, profile, name, table):
    index = table.get("index", ["port"])
    mib_index = objects.get(table["root"], ("", "", "", ""))[3]
    assert not mib_index or len(mib_index.split(",")) == len(index), (profile, name)
    for column in table["columns"]:
        name_in_mib, syntax, units, _ = objects[f"{table['root']}.{column['column']}"]
        assert syntax == ("Counter32" if column.get("width") == 32 else syntax), name_in_mib
        assert syntax in ("Counter64", "Unsigned64") or column.get("width") == 32, name_in_mib
        direction = re.search("receive|transmit", column["metric"])
        assert direction is None or DIRECTIONS[direction[0]].search(name_in_mib), (name_in_mib, column["metric"])
        assert ("bytes" in column["metric"]) == bool(re.search("Octets|Bytes", name_in_mib)) or "statistic" in index, (
            name_in_mib
        )
        if units == "micro-seconds":
            assert column["divisor"] == 10**6, name_in_mib
        if "at" in column:
            assert name_in_mib.endswith(f"Pfc{column['at']}Pkt")
