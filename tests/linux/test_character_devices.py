"""Character devices of RDMA devices, in a copy of sysfs as ib_uverbs, ib_umad and rdma_ucm make it."""

import os
import stat
from pathlib import Path

import pytest

from exporter.linux.character_devices import CharacterDevice, CharacterDevices, is_listed, read_character_devices

UVERBS, UMAD = CharacterDevice("uverbs", "mlx5_0"), CharacterDevice("umad", "mlx5_0", 1)
MAJOR = 231
"""Of uverbs and umad: IB_UVERBS_MAJOR and IB_UMAD_MAJOR of Linux."""


def add(sysfs, class_name, name, *, dev="231:192", **attributes):
    folder = sysfs / "class" / class_name / name
    folder.mkdir(parents=True)
    for attribute, value in {"dev": dev, **attributes}.items():
        (folder / attribute).write_text(f"{value}\n")
    return folder


@pytest.fixture
def sysfs(tmp_path):
    root = tmp_path / "sys"
    add(root, "infiniband_verbs", "uverbs0", ibdev="mlx5_0")
    (root / "class" / "infiniband_verbs" / "abi_version").write_text("6\n")
    add(root, "infiniband_mad", "umad0", ibdev="mlx5_0", port=1, dev="231:0")
    add(root, "infiniband_mad", "issm0", ibdev="mlx5_0", port=1, dev="231:64")
    add(root, "misc", "rdma_cm", dev="10:122")
    add(root, "misc", "kvm", dev="10:232")
    return root


class Nodes:
    """A /dev of tests: character devices need root, so os.stat shows them."""

    def __init__(self, monkeypatch, dev, nodes):
        self.dev, self.nodes = dev, nodes
        real = os.stat

        def stat_of(path, *arguments, **options):
            if not Path(path).is_relative_to(dev):
                return real(path, *arguments, **options)
            found = nodes.get(Path(path).name, FileNotFoundError())
            if isinstance(found, Exception):
                raise found
            mode, major, minor = found
            return os.stat_result((mode, *[0] * 9), {"st_rdev": os.makedev(major, minor)})

        monkeypatch.setattr(os, "stat", stat_of)


def test_all_kinds_of_sysfs_are_found(sysfs):
    assert is_listed(sysfs)
    nodes = {
        CharacterDevice("uverbs", "mlx5_0"): "uverbs0",
        CharacterDevice("umad", "mlx5_0", 1): "umad0",
        CharacterDevice("issm", "mlx5_0", 1): "issm0",
        CharacterDevice("rdma_cm"): "rdma_cm",
    }
    assert read_character_devices(sysfs) == CharacterDevices(dict.fromkeys(nodes, True), nodes=nodes)


def test_without_the_modules_there_are_none(tmp_path):
    """ib_uverbs, ib_umad and rdma_ucm are not loaded: their classes are not there."""
    (tmp_path / "class" / "infiniband").mkdir(parents=True)
    assert not is_listed(tmp_path)
    found = read_character_devices(tmp_path)
    assert [found.has(one) for one in (UVERBS, UMAD, CharacterDevice("rdma_cm"))] == [False, False, False]


@pytest.mark.parametrize("port", ["", "x", "-1", "1" * 9])
def test_an_entry_that_cannot_be_read_makes_the_others_of_its_kind_unknown(sysfs, port):
    (sysfs / "class" / "infiniband_mad" / "umad0" / "port").write_text(port)
    found = read_character_devices(sysfs)
    assert found.has(UMAD) is None
    assert found.has(UVERBS) is True
    assert found.has(CharacterDevice("uverbs", "mlx5_1")) is False


def test_a_class_that_cannot_be_listed_is_an_error(sysfs):
    folder = sysfs / "class" / "infiniband_mad"
    folder.rename(folder.with_name("elsewhere"))
    folder.write_text("")
    with pytest.raises(NotADirectoryError):
        read_character_devices(sysfs)


def test_nodes_are_character_devices_with_the_number_of_sysfs(sysfs, tmp_path, monkeypatch):
    nodes = {
        "uverbs0": (stat.S_IFCHR | 0o666, MAJOR, 192),
        "umad0": (stat.S_IFCHR | 0o600, MAJOR, 1),  # of another port
        "issm0": (stat.S_IFREG | 0o600, MAJOR, 64),
        "rdma_cm": PermissionError(),
    }
    Nodes(monkeypatch, tmp_path / "dev", nodes)
    found = read_character_devices(sysfs, tmp_path / "dev")
    assert {device.kind: there for device, there in found.found.items()} == {
        "uverbs": True,
        "umad": False,
        "issm": False,
        "rdma_cm": None,
    }
    del nodes["uverbs0"]
    assert read_character_devices(sysfs, tmp_path / "dev").has(UVERBS) is False


def test_a_real_node_is_found_by_its_number(sysfs, tmp_path):
    """/dev/null in the place of a node: its number is that of sysfs here."""
    (sysfs / "class" / "infiniband_verbs" / "uverbs0" / "dev").write_text("1:3\n")
    (tmp_path / "infiniband").mkdir()
    (tmp_path / "infiniband" / "uverbs0").symlink_to("/dev/null")
    assert read_character_devices(sysfs, tmp_path).has(UVERBS) is True
    (sysfs / "class" / "infiniband_verbs" / "uverbs0" / "dev").write_text("1:5\n")
    assert read_character_devices(sysfs, tmp_path).has(UVERBS) is False
