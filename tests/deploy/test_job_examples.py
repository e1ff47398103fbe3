"""The examples of jobs are valid, and name only folders and variables that exist."""

import importlib
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from exporter.sources.common.job_files import FOLDER, INSPECTOR_FOLDER, LOG_FOLDER, TIMING_SOCKET
from exporter.sources.nccl.identity import READ_VARIABLES
from tests.helpers.paths import ROOT
from tests.helpers.training_bench import bench, line

SLURM = ROOT / "deploy" / "slurm"
SCRIPTS = sorted(SLURM.iterdir())
BATCH = (SLURM / "train.sbatch").read_text()
JOBSET = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "training-jobset.yaml").read_text())
JOBS = (ROOT / "docs" / "jobs.md").read_text()

NCCL = {
    "NCCL_PROFILER_PLUGIN",  # NCCL 2.23 and later
    "NCCL_INSPECTOR_ENABLE",  # these four: plugins/profiler/inspector/README.md of NCCL
    "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS",
    "NCCL_INSPECTOR_DUMP_DIR",
    "NCCL_INSPECTOR_PROM_DUMP",
    "NCCL_DEBUG",  # these three: NCCL's user guide, Environment Variables
    "NCCL_DEBUG_SUBSYS",
    "NCCL_DEBUG_FILE",
}

Program = Callable[[str], str]


def hook_variables() -> set[str]:
    """Return the variables that fabric_timing.py reads."""
    module = importlib.import_module("exporter.hook.fabric_timing")
    named = set(re.findall(r"\bFABRIC_TIMING[A-Z_]*", Path(module.__file__).read_text()))
    return {*named, *module.REPORTED_VARIABLES}


KNOWN = NCCL | hook_variables() | READ_VARIABLES


def pod() -> dict[str, Any]:
    (replicated,) = JOBSET["spec"]["replicatedJobs"]
    return dict(replicated["template"]["spec"]["template"]["spec"])


def environment() -> dict[str, Any]:
    """Return the environment of the example on Kubernetes: values, or where they come from."""
    (container,) = pod()["containers"]
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def exported() -> dict[str, str]:
    """Return the environment of the example for Slurm."""
    return dict(re.findall(r"^export (\w+)=(.*)$", BATCH, re.MULTILINE))


@pytest.mark.parametrize("version", ["1.29", kubernetes_validate.latest_version().rpartition(".")[0]])
def test_the_job_in_the_jobset_has_the_shape_that_kubernetes_wants(version: str) -> None:
    (replicated,) = JOBSET["spec"]["replicatedJobs"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": JOBSET["metadata"], **replicated["template"]}
    assert kubernetes_validate.validate(job, version, strict=True) == version
    assert (JOBSET["apiVersion"], JOBSET["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")


def test_the_endpoint_in_the_jobset_is_its_first_pod() -> None:
    """JobSet names pods by JobSet, replicated job, and numbers of job and pod, below a service of its own name."""
    (container,) = pod()["containers"]
    name, (replicated,) = JOBSET["metadata"]["name"], JOBSET["spec"]["replicatedJobs"]
    assert f"--rdzv-endpoint={name}-{replicated['name']}-0-0.{name}:" in container["args"][0]
    spec = replicated["template"]["spec"]
    assert f"--nnodes={spec['completions']} " in container["args"][0]
    assert spec["parallelism"] == spec["completions"]


def test_the_pod_mounts_the_shared_folder() -> None:
    (container,) = pod()["containers"]
    (volume,) = (one["name"] for one in pod()["volumes"] if one.get("hostPath", {}).get("path") == FOLDER)
    assert {"name": volume, "mountPath": FOLDER} in container["volumeMounts"]


@pytest.mark.parametrize("found", [environment(), exported()], ids=["JobSet", "Slurm"])
def test_examples_name_known_variables_and_the_default_folders(found: dict[str, Any]) -> None:
    assert found
    assert found.keys() <= KNOWN
    assert NCCL - {"NCCL_INSPECTOR_PROM_DUMP"} <= found.keys()
    inspector, log = Path(found["NCCL_INSPECTOR_DUMP_DIR"]), Path(found["NCCL_DEBUG_FILE"])
    assert (str(inspector.parent), str(log.parent.parent)) == (INSPECTOR_FOLDER, LOG_FOLDER)
    assert inspector.name == log.parent.name, "both are of the same job"
    assert found["FABRIC_TIMING_SOCKET"] == TIMING_SOCKET
    if "FABRIC_TIMING_JOB" in found:
        assert inspector.name == "$(FABRIC_TIMING_JOB)", "timings by the hook have the same job name"
    else:
        assert inspector.name == "$SLURM_JOB_ID", "as that of the control group"


def test_the_page_on_jobs_names_known_variables_only_and_those_of_the_examples() -> None:
    words = set(re.findall(r"\b(?:NCCL|FABRIC_TIMING)_?[A-Z_]*\b", JOBS)) - {"NCCL"}
    assert words <= KNOWN
    assert words >= {name for name in environment() if name.startswith(("NCCL", "FABRIC"))}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_are_correct(script: Path, program: Program) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run([program("bash"), "-n", script], check=True)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_are_clean(script: Path, program: Program) -> None:
    done = subprocess.run([program("shellcheck"), script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def give_back(text: str, folder: Path) -> None:
    """Run the loop of an example once, with limits in KiB instead of MiB."""
    (loop,) = re.findall(r"^ *find .*?^ *done$", text, re.MULTILINE | re.DOTALL)
    assert "-size +16M" in loop
    assert "size - 8388608" in loop
    variables = {
        **os.environ,
        "NCCL_INSPECTOR_DUMP_DIR": str(folder),
        "HOSTNAME": "gpu-001",
        "POD_NAME": "gpu-001-x7k2p",
    }
    command = loop.replace("+16M", "+16k").replace("8388608", "8192")
    done = subprocess.run(["sh", "-c", command], env=variables, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("text", [pod()["containers"][0]["args"][0], BATCH], ids=["JobSet", "Slurm"])
async def test_memory_of_long_files_is_given_back_and_nothing_lost(text: str, tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        await made.read()
        path = tmp_path / "inspector" / "j" / "gpu-001-pid7.log"
        path.parent.mkdir()
        with path.open("wb") as file:
            for count in (100, 2, 100, 3):
                file.write(line() * count)
                file.flush()
                if count < 100:  # written after the last read
                    before = path.stat()
                    give_back(text, path.parent)
                    assert path.stat().st_size == before.st_size
                    assert path.stat().st_blocks * 512 <= 16384 < before.st_blocks * 512
                await made.read()
        assert sum(made.collectives().values()) == 205
        assert made.failures() == set()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("nccl", "nccl-logs"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o1777)
    return tmp_path


def run(script: str, folder: Path, **environment: str) -> None:
    """Run a script, which must never fail: Slurm drains a node whose prolog or epilog does."""
    variables = {**os.environ, "FABRIC_EXPORTER_FOLDER": str(folder), "FABRIC_EXPORTER_WAIT": "0", **environment}
    done = subprocess.run(["bash", SLURM / script], env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_prolog_and_epilog_create_and_remove_the_folders_of_a_job(folder: Path) -> None:
    user = 4101 if os.geteuid() == 0 else os.geteuid()
    for _ in range(2):
        run("prolog.sh", folder, SLURM_JOB_ID="77", SLURM_JOB_UID=str(user))
    for name in ("nccl", "nccl-logs"):
        status = (folder / name / "77").stat()
        assert (status.st_uid, status.st_mode & 0o7777) == (user, 0o755)
        (folder / name / "77" / "a.log").touch()
        (folder / name / "78").mkdir()
    run("epilog.sh", folder, SLURM_JOB_ID="77")
    assert sorted(path.name for path in folder.glob("*/*")) == ["78", "78"]


@pytest.mark.parametrize("number", ["", "..", "7 8", "../nccl-logs"])
def test_prolog_and_epilog_do_nothing_for_what_is_no_job(folder: Path, number: str) -> None:
    (folder / "nccl" / "7").mkdir()
    run("prolog.sh", folder, SLURM_JOB_ID=number, SLURM_JOB_UID=str(os.geteuid()))
    run("epilog.sh", folder, SLURM_JOB_ID=number)
    assert [path.name for path in folder.glob("*/*")] == ["7"]


def test_prolog_and_epilog_do_not_follow_links(folder: Path) -> None:
    """Every user may put a link in place of the folder of a job to come, which root must not change or empty."""
    target = folder / "target"
    target.mkdir(mode=0o700)
    (target / "file").touch()
    (folder / "nccl" / "77").symlink_to(target)
    before = target.stat()
    user = 4101 if os.geteuid() == 0 else os.geteuid()
    run("prolog.sh", folder, SLURM_JOB_ID="77", SLURM_JOB_UID=str(user))
    run("epilog.sh", folder, SLURM_JOB_ID="77")
    assert (target.stat().st_uid, target.stat().st_mode) == (before.st_uid, before.st_mode)
    assert (target / "file").exists()
    assert list((folder / "nccl").iterdir()) == []
