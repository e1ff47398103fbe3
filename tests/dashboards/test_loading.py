"""How Grafana gets the boards: provisioning from files, and copies with inputs for import by hand."""

import json
import subprocess
import sys

import pytest
import yaml

from tests.helpers.paths import ROOT

FOLDER = ROOT / "dashboards"
PROVISIONING = FOLDER / "provisioning"
NAMES = sorted(path.name for path in FOLDER.glob("fabric-*.json"))


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """The exported boards by file name."""
    folder = tmp_path_factory.mktemp("boards") / "new"
    command = [sys.executable, FOLDER / "export.py", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(folder / name) for name in NAMES]
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_asks_for_its_data_source_once(copies, name):
    """As Grafana's own export for sharing does: __inputs, and ${DS_…} wherever the data source is named."""
    copied, board = json.loads(copies[name]), json.loads((FOLDER / name).read_text())
    (wanted,) = copied["__inputs"]
    assert (wanted["name"], wanted["type"], wanted["pluginId"]) == ("DS_PROMETHEUS", "datasource", "prometheus")
    assert "datasource}" not in copies[name].replace("${DS_PROMETHEUS}", "")
    assert "${datasource" not in copies[name]
    assert {one["datasource"]["uid"] for one in copied["panels"] if one["type"] != "row"} == {"${DS_PROMETHEUS}"}
    assert [one["name"] for one in copied["templating"]["list"]] == [
        one["name"] for one in board["templating"]["list"] if one["name"] != "datasource"
    ]
    assert len(copied["panels"]) == len(board["panels"])
    kinds = {one["id"] for one in copied["__requires"] if one["type"] == "panel"}
    assert kinds == {
        panel["type"] for one in board["panels"] for panel in (one, *one.get("panels", ())) if panel["type"] != "row"
    }


def test_a_directory_that_cannot_be_written_is_one_error(tmp_path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, FOLDER / "export.py", tmp_path / "file"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [f"{tmp_path / 'file'}: File exists; name a directory that can be written"]


def test_provisioning_names_the_folder_that_the_readme_fills():
    """Keys are those of Grafana's documentation of provisioning, apiVersion 1."""
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "fabric.yml").read_text())["providers"]
    assert (provider["type"], provider["folder"]) == ("file", "Fabric")
    assert f"-t {provider['options']['path']} dashboards/fabric-*.json" in (FOLDER / "README.md").read_text()
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "fabric.yml").read_text())["datasources"]
    assert (source["type"], source["access"]) == ("prometheus", "proxy")
    for kind in ("dashboards", "datasources"):
        found = yaml.safe_load((PROVISIONING / kind / "fabric.yml").read_text())
        assert found["apiVersion"] == 1
        assert (
            f"/etc/grafana/provisioning/{kind} dashboards/provisioning/{kind}/fabric.yml"
            in (FOLDER / "README.md").read_text()
        )
