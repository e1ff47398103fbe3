"""alerts/README.md: its commands run, and its examples are what Prometheus and build.py accept."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.helpers.paths import ROOT

PAGE = (ROOT / "alerts" / "README.md").read_text()
COMMANDS = [block for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "make" not in block]
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def checkout(tmp_path):
    """Return a folder with the parts of the project that the commands use, and the file that the page writes."""
    shutil.copytree(ROOT / "alerts", tmp_path / "alerts", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "exporter").symlink_to(ROOT / "exporter")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (own,) = (one for one in EXAMPLES if one.startswith("# own.yml"))
    (tmp_path / "own.yml").write_text(own)
    return tmp_path


def test_commands_run_in_their_order(program, checkout):
    program("promtool")
    program("amtool")
    places = {"RULES": "rules", "ALERTMANAGER": "alertmanager"}
    env = {**os.environ, "PYTHONPATH": str(checkout), **{key: str(checkout / name) for key, name in places.items()}}
    assert len(COMMANDS) == 5
    for block in COMMANDS:
        done = subprocess.run(
            ["sh", "-eu", "-c", block], cwd=checkout, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if "routes test" in block:
            assert done.stdout.splitlines()[-1] == "pager"
    urls = re.findall("runbook_url: (.*)", (checkout / "rules" / "fabric.yml").read_text())
    assert urls
    assert all(url.startswith("https://github.com/OWNER/REPOSITORY/blob/main/docs/runbooks/Fabric") for url in urls)
    assert "> 0.3" in (checkout / "tuned" / "fabric.yml").read_text()


def test_the_configuration_of_prometheus_is_accepted(program, tmp_path):
    """Of one server, and of one that federates."""
    (own,) = (one for one in EXAMPLES if "rule_files" in one)
    (federated,) = (one for one in EXAMPLES if "federate" in one)
    (tmp_path / "rules").mkdir()
    for name in ("fabric.yml", "fabric-records.yml", "fabric-joins.yml"):
        shutil.copy(ROOT / "alerts" / name, tmp_path / "rules")
    for text in (own, federated):
        (tmp_path / "prometheus.yml").write_text(text)
        command = [program("promtool"), "check", "config", tmp_path / "prometheus.yml"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_federation_takes_every_record():
    (federated,) = (yaml.safe_load(one) for one in EXAMPLES if "federate" in one)
    (match,) = federated["scrape_configs"][0]["params"]["match[]"]
    pattern = re.search('"(.*)"', match)[1]
    groups = yaml.safe_load((ROOT / "alerts" / "fabric-records.yml").read_text())["groups"]
    names = [rule["record"] for group in groups for rule in group["rules"]]
    assert names
    assert [name for name in names if not re.fullmatch(pattern, name)] == []


def test_the_table_of_secrets_is_that_of_the_configuration():
    used = re.findall("/etc/alertmanager/secrets/(.*)", (ROOT / "alerts" / "alertmanager.yml").read_text())
    assert sorted(re.findall(r"^\| `([a-z]+-[a-z]+)` \|", PAGE, re.MULTILINE)) == sorted(used)
