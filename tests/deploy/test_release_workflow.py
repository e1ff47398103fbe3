"""The workflow that publishes a release: valid, with the fewest permissions, and of files and targets that exist."""

import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.helpers.paths import ROOT
from tests.helpers.schemas import validate

PATH = ROOT / ".github" / "workflows" / "release.yml"
TEXT = PATH.read_text()
WORKFLOW = yaml.load(TEXT, yaml.BaseLoader)  # YAML 1.1 reads the key `on` as true
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
STEPS = [(name, step) for name, job in JOBS.items() for step in job["steps"]]
SCRIPTS = [pytest.param(step["run"], id=f"{name}-{i}") for i, (name, step) in enumerate(STEPS) if "run" in step]


def test_the_workflow_is_valid() -> None:
    validate("vendor.github-workflows", PATH)


def test_only_the_job_that_publishes_may_write() -> None:
    assert WORKFLOW["permissions"] == {}
    assert WORKFLOW["on"] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+*"]}}
    rights = {
        name: {key for key, value in job["permissions"].items() if value == "write"} for name, job in JOBS.items()
    }
    assert rights == {"test": set(), "build": set(), "publish": {"contents", "id-token", "attestations"}}
    assert [name for name, job in JOBS.items() if "secrets." in str(job)] == ["publish"]
    assert re.findall(r"secrets\.(\w+)", TEXT) == ["REGISTRY_PASSWORD"]
    assert JOBS["publish"]["environment"] == "release"
    assert (JOBS["build"]["needs"], JOBS["publish"]["needs"]) == ("test", "build")


def test_actions_have_a_version_and_do_not_keep_the_token() -> None:
    used = [step["uses"] for _, step in STEPS if "uses" in step]
    assert len(used) >= 6
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@(v\d+(\.\d+)*|[0-9a-f]{40})", one)] == []
    checkouts = [step for _, step in STEPS if step.get("uses", "").startswith("actions/checkout@")]
    assert [step["with"]["persist-credentials"] for step in checkouts] == ["false", "false"]


def test_no_registry_is_named() -> None:
    hosts = set(re.findall(r"\b(?:[a-z0-9-]+\.)+(?:io|com|net|org|dev)\b", TEXT))
    assert hosts == {"registry.example.net"}, "of the comment alone"


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_clean(script: str, program: Callable[[str], str]) -> None:
    command = [program("shellcheck"), "--shell=bash", "-"]
    result = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_expression_is_in_a_script(script: str) -> None:
    """The shell would run what an expression has, such as the name of a tag; variables are data."""
    assert "${{" not in script


def test_the_version_is_read_from_where_it_is() -> None:
    version = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    chart = re.findall(
        r"^version: (.*)$", (ROOT / "deploy" / "helm" / "fabric-exporter" / "Chart.yaml").read_text(), re.MULTILINE
    )
    assert len(version) == 1
    assert chart == version


def test_targets_and_files_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {
        word for _, step in STEPS for line in re.findall(r"make (.*)", step.get("run", "")) for word in line.split()
    }
    assert called == {"lint", "types", "test"}
    assert called <= targets
    files = set(re.findall(r"\bdeploy/[\w./-]+", TEXT))
    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []
