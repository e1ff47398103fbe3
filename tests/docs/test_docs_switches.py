"""The guide to switches: its examples are loaded, its commands parsed, and its PromQL queries evaluated."""

import re
import subprocess
from importlib.util import find_spec

import promql_parser as promql
import pytest
import yaml

from exporter import cli
from exporter.daemon.loading import load_config
from exporter.sources.switch.merge import Support
from exporter.sources.switch.readers.snmp import profile as snmp_profiles
from exporter.sources.switch.source import READERS
from exporter.sources.switch.targets import resolve_targets
from tests.helpers import promtool
from tests.helpers.paths import ROOT
from tests.helpers.promql import exported, faults

PAGE = (ROOT / "docs" / "switches.md").read_text()

FILES = dict(re.findall(r"^```yaml\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
"""Each example by the file name in its first line."""

COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
QUERIES = re.findall(r"^```promql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path):
    """Write the examples to files, and return their folder."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_every_example_has_a_name():
    assert PAGE.count("```yaml\n") == len(FILES)
    assert len(QUERIES) == PAGE.count("```promql\n") > 2
    assert len(COMMANDS) > 2


def test_the_configuration_is_read_with_all_its_files(folder):
    options = load_config(folder / "fabric.yml").sources["switch"]
    found = {target.name: (target, group) for target, group in resolve_targets(options)}
    assert sorted(found) == ["leaf-01", "leaf-02", "leaf-201", "leaf-202", "old-leaf", "spine-01"]
    leaf, group = found["leaf-01"]
    assert (group, leaf.role, list(leaf.protocols())) == ("leaves", "leaf", ["snmp"])
    assert leaf.snmp.is_v3
    assert leaf.snmp.priv == "aes"
    spine, group = found["spine-01"]
    assert (group, spine.role, list(spine.protocols()), spine.interval) == ("onyx", "spine", ["snmp", "onyx"], 60.0)
    assert not spine.snmp.is_v3, "a protocol is configured as a whole"
    old, group = found["old-leaf"]
    assert (group, old.poll, old.snmp.any_source) == ("", False, True)
    assert found["leaf-201"][0].snmp.is_v3


def test_the_profile_in_the_guide_is_valid(folder):
    profiles = load_config(folder / "fabric.yml").sources["switch"].profiles_or_builtin()
    profile = profiles.match((1, 3, 6, 1, 4, 1, 99999, 7))
    assert profile is profiles.match((), "AcmeOS 4.2")
    assert (profile.name, profile.interval, profile.refresh, profile.optics) == ("acme", 30.0, 10.0, "entity")
    tables = {table.name: table for table in profile.tables}
    assert "pause" not in tables
    assert "traffic" in tables, "it extends the generic one"
    assert [counter.divisor for counter in tables["pfc"].counters] == [1, 1, 1000]
    assert tables["queues"].label == (2, 1), "queues count from 1"
    assert tables["queues"].every == 60.0


def test_the_prometheus_configuration_is_valid(folder, program):
    command = [program("promtool"), "check", "config", folder / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_relabelling_uses_labels_of_service_discovery():
    """The labels used by relabelling are labels of /sd."""
    job = yaml.safe_load(FILES["prometheus.yml"])["scrape_configs"][1]
    used = {label for rule in job["relabel_configs"] for label in rule.get("source_labels", ())}
    documented = set(re.findall(r"`(?:__meta_fabric)?(_\w+)`", PAGE.partition("`/sd` lists")[2].partition("\n\n")[0]))
    assert {label.removeprefix("__meta_fabric") for label in used} - {"__param_target"} <= documented
    kept = next(rule for rule in job["relabel_configs"] if rule.get("action") == "keep")
    assert re.fullmatch(kept["regex"], "false;configuration")
    assert not re.fullmatch(kept["regex"], "true;configuration")
    assert not re.fullmatch(kept["regex"], "false;lldp")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_valid(command):
    program, *words = command.split()
    assert program == "fabric-exporter"
    cli.parser().parse_args(words)


@pytest.mark.parametrize("query", QUERIES)
def test_queries_use_existing_metrics(query):
    assert faults(promql.parse(query), exported()) == []


NIC = 'fabric_nic_info{job="node", instance="n1", host="gpu-001", device="eth2", mac="a0:88:c2:00:10:08"}'
RANK = 'fabric_nccl_rank_info{job="node", instance="n1", train_job="demo", rank="0", host="gpu-001"}'
HOST_LINK = 'fabric_link_info{job="sw", instance="p", switch="leaf-01", port="e1", peer_mac="a0:88:c2:00:10:08"}'
SPINE_LINK = 'fabric_link_info{job="sw", instance="p", switch="leaf-01", port="e49", peer="spine-01", peer_port="e1"}'
SETTINGS = 'fabric_nic_settings_info{job="node", instance="n1", device="%s", pfc="%s"}'
PEER_SETTINGS = (
    'fabric_link_peer_settings_info{job="node", instance="n1", host="gpu-001", device="%s", peer="leaf-01", pfc="%s"}'
)
DROPS = 'fabric_switch_transmit_discards_total{job="sw", instance="p", switch="leaf-01", port="%s"}'


def test_queries_lead_from_a_job_to_its_switch_port(tmp_path, program):
    """Evaluated by promtool with one host at port e1, which drops two packets per second, and an uplink.

    Of the NICs with PFC on priority 3, the neighbour of eth2 announces priority 4, that of eth3 the same, and that of
    eth4 nothing about PFC.
    """
    host_labels = 'host="gpu-001", device="eth2"'
    mac_label = 'mac="a0:88:c2:00:10:08"'
    link = f"{{{HOST_LINK.partition('{')[2].removesuffix('}')}, {host_labels}, {mac_label}}}"
    dropped = f'{{job="sw", instance="p", switch="leaf-01", port="e1", {host_labels}}}'
    different_pfc = SETTINGS % ("eth2", "3")
    answers = [(different_pfc, 1), (link, 1), (link, 1), (dropped, 2)]
    series = {
        NIC: "1x20",
        RANK: "1x20",
        HOST_LINK: "1x20",
        SPINE_LINK: "1x20",
        DROPS % "e1": "0+60x20",
        DROPS % "e49": "0+90x20",
        **{SETTINGS % (device, "3"): "1x20" for device in ("eth2", "eth3", "eth4")},
        **{PEER_SETTINGS % (device, pfc): "1x20" for device, pfc in (("eth2", "4"), ("eth3", "3"), ("eth4", ""))},
    }
    promtool.answers(program("promtool"), tmp_path, series, zip(QUERIES, answers, strict=True))


def test_the_tables_match_the_readers_profiles_and_states():
    below = PAGE.partition("## Protocols\n")[2].partition("### Several")[0]
    first, second = below.split("\nWhat each provides")
    listed = re.findall(r"^\| `(\w+)` \|", first, re.MULTILINE)
    protocols = {protocol for protocol, (module, _) in READERS.items() if find_spec(module)}
    assert set(listed) == protocols
    assert set(re.findall(r"^\| `(\w+)`", second, re.MULTILINE)) == protocols
    states = re.findall(r"^\| `(\w+)` \|", PAGE.partition("| state |")[2].partition("\n\n")[0], re.MULTILINE)
    assert states == [one.value for one in Support]
    profiles = PAGE.partition("Built-in profiles are ")[2].partition(";")[0]
    assert sorted(re.findall(r"`(\w+)`", profiles)) == snmp_profiles.builtin().names


MAKERS = {
    "Arista": "arista",
    "NX-OS": "nxos",
    "IOS": "ios",
    "Onyx": "onyx",
    "Cumulus": "cumulus",
    "SONiC": "sonic",
    "Junos": "junos",
    "any other": "generic",
}

OPTICS = {
    "entity": "ENTITY-SENSOR-MIB",
    "sonic": "ENTITY-SENSOR-MIB",
    "cisco": "CISCO-ENTITY-SENSOR-MIB",
    "junos": "JUNIPER-DOM-MIB",
}
"""The MIB that the table names, by the optics of a profile."""

COLUMN_METRICS = {
    1: {"receive_bytes_total"},
    2: {"receive_pfc_frames_total"},
    3: {"receive_pfc_paused_seconds_total"},
    4: {"queue_ecn_marked_packets_total"},
    5: {"queue_full_discards_total", "congestion_discards_total"},
    6: {"priority_group_discards_total"},
}
"""Column of the table of each protocol's data, to the metrics of which a profile with this data has one."""


@pytest.mark.parametrize("maker", MAKERS)
def test_the_table_of_snmp_matches_the_profiles(maker):
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `snmp`, {maker} |"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    counters = {one.ending for table in snmp_profiles.builtin().by_name(MAKERS[maker]).tables for one in table.counters}
    if maker == "Junos":
        counters -= {"receive_pfc_frames_total"}  # of the table for any switch; no MIB of Junos has it
    assert {column: bool(cells[column]) for column in COLUMN_METRICS} == {
        column: bool(counters & endings) for column, endings in COLUMN_METRICS.items()
    }


@pytest.mark.parametrize("maker", MAKERS)
def test_the_table_names_the_mib_of_optics_and_neighbours(maker):
    """A profile reads optics from one MIB; where that depends on the switch, the table says so, and never `yes`."""
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `snmp`, {maker} |"))
    optics, neighbours = [cell.strip() for cell in row.split("|")[1:-1]][7:9]
    known = snmp_profiles.builtin().by_name(MAKERS[maker]).optics
    assert optics == OPTICS[known] or (known == "entity" and optics.startswith("if ")), optics
    assert neighbours == "LLDP-MIB" or neighbours.startswith("if "), neighbours


def test_no_switch_has_optics_or_neighbours_by_snmp_without_a_condition_or_a_mib():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `snmp`, ")]
    assert len(rows) == len(MAKERS)
    assert [row for row in rows if "yes" in row.split("|")[8:10]] == []
    assert rows[-1].startswith("| `snmp`, any other |")
    assert [cell.strip()[:3] for cell in rows[-1].split("|")[8:10]] == ["if ", "if "]


def test_the_configuration_in_the_readme_is_valid(tmp_path):
    collector, switches = re.findall(
        r"^```yaml\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "fabric.yml").write_text(collector)
    assert load_config(tmp_path / "fabric.yml").sources["mqtt"].broker == "mqtt.example.net"
    (tmp_path / "fabric.yml").write_text(switches)
    options = load_config(tmp_path / "fabric.yml").sources["switch"]
    assert [(target.name, target.snmp.is_v3) for target, _ in resolve_targets(options)] == [
        ("leaf-01", True),
        ("leaf-02", True),
    ]
