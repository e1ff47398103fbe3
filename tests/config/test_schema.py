"""The configuration file: the error of each kind of mistake names place, value and remedy."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass

import msgspec
import pytest

from exporter.config import yaml_reader
from exporter.config.errors import ConfigError
from exporter.config.schema import (
    Config,
    Expect,
    Expected,
    HostClass,
    default,
    load,
    parse,
)
from exporter.config.units import Duration
from exporter.config.yaml_document import MAX_SIZE
from exporter.sources.rdma import source as rdma
from exporter.sources.rdma.options import RdmaOptions
from tests.helpers.paths import FIXTURES, ROOT

FOLDER = FIXTURES / "config"


class Snmp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    community: str | None = None
    communities: tuple[str, ...] = ()


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    address: str
    snmp: Snmp | None = None


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    interval: Duration = Duration(60.0)


class Switches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    targets: tuple[Target, ...] = ()
    profiles: dict[str, Profile] = {}


@dataclass
class Part:
    name: str
    options: type[msgspec.Struct]
    section: str = ""


PARTS = [rdma.DEFINITION, Part("switch", Switches, "switches")]

MISTAKES: dict[str, str] = json.loads((FOLDER / "expected.json").read_text("utf-8"))
"""By the file's stem, what follows its path in the error."""


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_errors_name_place_value_and_remedy(name):
    path = FOLDER / f"{name}.yml"
    with pytest.raises(ConfigError) as caught:
        load(path, PARTS)
    assert str(caught.value) == f"{path}{MISTAKES[name]}"
    assert "831042" not in str(caught.value)  # the secret in these files


def test_each_invalid_file_has_an_expected_error():
    assert {path.stem for path in FOLDER.glob("*.yml")} == MISTAKES.keys()


def test_there_is_one_reader_of_yaml():
    form = re.compile(r"^\s*(?:import|from) yaml\b", re.MULTILINE)
    package = ROOT / "exporter"
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if form.search(path.read_text())}
    # The second one is the demo's, which changes the shipped configuration of Alertmanager.
    assert found == {"config/yaml_loader.py", "simulator/monitoring/files.py"}


def test_an_unknown_key_is_an_error():
    with pytest.raises(ConfigError, match="unknown key"):
        parse(b"expectt: {rdma_speed: 400G}", "c.yml", PARTS)


def test_nested_aliases_are_rejected_without_expanding_them():
    """In a process of its own, to limit its memory."""
    program = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (512 << 20,) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from pathlib import Path
from exporter.config.schema import load
from exporter.config.errors import ConfigError
for path in sys.argv[1:]:
    try:
        load(Path(path), [])
    except ConfigError as error:
        print(error)
"""
    bombs = [str(path) for path in sorted(FOLDER.glob("bomb_*.yml"))]
    done = subprocess.run(
        [sys.executable, "-c", program, *bombs], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.count("more than 100000 values") == len(bombs) == 3


def test_deep_nesting_is_an_error():
    for levels in (65, 100_000):
        with pytest.raises(ConfigError, match=r"^c\.yml: is nested more than 64 levels deep; check brackets"):
            parse(b"[" * levels + b"]" * levels, "c.yml", PARTS)
    with pytest.raises(ConfigError, match=r"^c\.yml:1: expected a mapping, got a list"):
        parse(b"[" * 64 + b"]" * 64, "c.yml", PARTS)


def test_a_missing_file_or_a_folder_cannot_be_read(tmp_path):
    missing = tmp_path / "none.yml"
    with pytest.raises(ConfigError) as caught:
        load(missing, PARTS)
    remedy = "check --config.file and its permissions"
    assert str(caught.value) == f"{missing}: cannot be read: No such file or directory; {remedy}"
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, PARTS)
    assert str(caught.value) == f"{tmp_path}: cannot be read: Is a directory; {remedy}"


def test_a_file_without_permission(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(yaml_reader, "read_regular", refuse)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "c.yml", PARTS)
    assert str(caught.value).endswith(
        "c.yml: cannot be read: Permission denied; check --config.file and its permissions"
    )


def test_a_pipe_is_rejected(tmp_path):
    os.mkfifo(tmp_path / "c.yml")
    with pytest.raises(ConfigError, match=r"c\.yml: cannot be read: it is not a regular file; check --config\.file"):
        load(tmp_path / "c.yml", PARTS)


def test_a_file_above_the_size_limit_is_rejected(tmp_path):
    path = tmp_path / "c.yml"
    path.write_bytes(b"#" * (MAX_SIZE + 1))
    with pytest.raises(ConfigError) as caught:
        load(path, PARTS)
    assert (
        str(caught.value)
        == f"{path}: cannot be read: it is larger than 4194304 bytes; check --config.file and its permissions"
    )
    path.write_bytes(b"#" * MAX_SIZE)
    assert load(path, PARTS) == default(PARTS)


@pytest.mark.parametrize("raw", [b"", b"\n  \n", b"# only words\n", b"---\n", b"{}", b"\xef\xbb\xbf{}"])
def test_an_empty_file_is_the_default(raw):
    assert parse(raw, "c.yml", PARTS) == default(PARTS)
    assert default(PARTS) == Config(None, Expect(), {"rdma": RdmaOptions(), "switch": Switches()})


def test_all_keys():
    raw = b"""
host: gpu-017
expect:
  rdma_ports: 8
  rdma_speed: 400Gb/s
  nic_speed: 100G
  classes: [{hosts: ["login-*", head], rdma_ports: 0}]
sources:
  rdma:
    enabled: false
    interval: 1m30s
    include: ["mlx5_*"]
    exclude: [mlx5_bond_0]
    drop: ["*_ticks_total"]
    keep: ["fabric_rdma_cnp_*"]
    rails: {mlx5_0: "3"}
switches:
  targets: [{name: leaf-1, address: "192.0.2.1:161", snmp: {community: s}}]
  profiles: {fast: {interval: 500ms}}
"""
    found = parse(raw, "c.yml", PARTS)
    classes = (HostClass(hosts=("login-*", "head"), rdma_ports=0),)
    expect = Expect(rdma_ports=8, rdma_speed=50e9, nic_speed=12.5e9, classes=classes)
    assert (found.host, found.expect) == ("gpu-017", expect)
    options = found.sources["rdma"]
    assert (options.enabled, options.interval, options.include) == (False, 90.0, ("mlx5_*",))
    assert (options.exclude, options.rails) == (("mlx5_bond_0",), {"mlx5_0": "3"})
    assert (options.drop, options.keep) == (("*_ticks_total",), ("fabric_rdma_cnp_*",))
    assert found.sources["switch"].targets == (Target("leaf-1", "192.0.2.1:161", Snmp("s")),)
    assert found.sources["switch"].profiles["fast"].interval == 0.5


def test_aliases_and_merge_keys_are_expanded():
    raw = b"""
switches:
  targets:
    - &leaf {name: leaf-1, address: a, snmp: &snmp {community: s}}
    - {<<: *leaf, name: leaf-2, snmp: *snmp}
"""
    assert [one.name for one in parse(raw, "c.yml", PARTS).sources["switch"].targets] == ["leaf-1", "leaf-2"]


FLEET = b"""
expect:
  rdma_ports: 8
  rdma_speed: 400Gb/s
  classes:
    - {hosts: ["gpu-old-*"], rdma_speed: 200Gb/s}
    - {hosts: ["login-*", "head"], rdma_ports: 0}
    - {hosts: ["gpu-*"], rdma_ports: 9, nic_speed: 100Gb/s}
    - {hosts: ["no-such-host"], rdma_ports: 1}
"""


@pytest.mark.parametrize(
    ("host", "ports", "rdma", "nic"),
    [
        ("gpu-old-7", 8, 25e9, None),  # the first class that matches applies, completed by the general keys
        ("gpu-7", 9, 50e9, 12.5e9),
        ("login-1", 0, 50e9, None),
        ("head", 0, 50e9, None),
        ("header", 8, 50e9, None),
        ("GPU-7", 8, 50e9, None),  # names are case-sensitive
        ("", 8, 50e9, None),
    ],
)
def test_expectations_by_class_of_host(host, ports, rdma, nic):
    expect = parse(FLEET, "c.yml", []).expect
    assert expect.for_host(host) == Expected(rdma_ports=ports, rdma_speed=rdma, nic_speed=nic)


def test_a_host_of_no_class_has_no_expectations():
    expect = parse(b"expect: {classes: [{hosts: [a], rdma_ports: 1}]}", "c.yml", []).expect
    assert (expect.for_host("a"), expect.for_host("b")) == (Expected(rdma_ports=1), Expected())


@pytest.mark.parametrize(
    ("host", "name", "path"),
    [
        ("gpu-7", "rdma_ports", ("classes", 2, "rdma_ports")),
        ("gpu-7", "rdma_speed", ("rdma_speed",)),
        ("gpu-old-7", "rdma_ports", ("rdma_ports",)),
        ("header", "rdma_ports", ("rdma_ports",)),
    ],
)
def test_path_of_the_expectation_that_applies_to_a_host(host, name, path):
    assert parse(FLEET, "c.yml", []).expect.path_of(name, host) == path


@pytest.mark.parametrize("share", ["0", "-0.1", "1.01", ".nan"])
def test_a_share_of_the_links_is_above_0_and_up_to_1(share):
    with pytest.raises(ConfigError, match=r"c\.yml.*expect.*bandwidth_share is .*; give a share above 0, up to 1"):
        parse(f"expect: {{bandwidth_share: {share}}}".encode(), "c.yml", PARTS)
    assert parse(b"expect: {bandwidth_share: 1}", "c.yml", PARTS).expect.bandwidth_share == 1.0
    assert parse(b"", "c.yml", PARTS).expect.bandwidth_share == 0.8


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("kernel: '6.8.[0-9'", r"expect\.kernel"),
        ("nvidia_driver: '570[1'", r"expect\.nvidia_driver"),
        ("firmware: {MT_0000000838: '28.[4'}", r"expect\.firmware\.MT_0000000838"),
        ("firmware: {'MT_[0': '28.43.*'}", r"expect\.firmware"),
        ("classes: [{hosts: [a], kernel: '6.[8'}]", r"expect\.classes\[0\]\.kernel"),
    ],
)
def test_a_version_with_an_unclosed_bracket_is_rejected_with_its_place(text, place):
    with pytest.raises(ConfigError, match=rf"^c\.yml:1.*{place}: the pattern '.*' has an unclosed \["):
        parse(f"expect: {{{text}}}".encode(), "c.yml", [])
