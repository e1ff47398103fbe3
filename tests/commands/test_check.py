"""The command `check`: its table, its JSON, and its exit statuses."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from exporter import cli
from exporter.preflight.checks import CHECKS
from tests.helpers.checked_host import CheckedHost
from tests.helpers.closed_pipe import without_reader
from tests.helpers.paths import ROOT
from tests.helpers.unprivileged import status_without_rights


@pytest.fixture
def host(tmp_path):
    return CheckedHost(tmp_path)


def narrow(host):
    """Break the PCIe link of one adapter: one failure, and one warning that its port is faster."""
    host.write_sys(f"{host.function('0000:17:00.0')}/current_link_width", "8")


def run(capsys, host, *flags):
    status = cli.main(["check", *host.arguments, *flags])
    return status, capsys.readouterr().out


def test_a_good_host_has_exit_status_0_and_a_line_for_each_check(capsys, host, monkeypatch):
    monkeypatch.setenv("NODE_NAME", "gpu-001")
    status, out = run(capsys, host, "--strict")
    assert status == 0
    assert out.startswith("gpu-001: ")
    assert "FAIL" not in out
    assert "ok       roce_mtu                   MTU 9000: RDMA uses 4096 bytes (4 objects)" in out.splitlines()
    assert all(check.name in out for check in CHECKS)


def test_a_failure_has_exit_status_1_and_comes_first_with_its_remedy(capsys, host):
    narrow(host)
    status, out = run(capsys, host)
    lines = out.splitlines()
    assert status == 1
    assert lines[2:4] == [
        "FAIL     pcie_link: 0000:17:00.0 (mlx5_0,rail0)",
        "         PCIe link 32 GT/s x8; card and slot support 32 GT/s x16",
    ]
    assert lines[4].startswith("         -> Drain the host, reseat the card")
    assert [line for line in lines if line.startswith("WARN")] == [
        "WARN     pcie_bandwidth: 0000:17:00.0 (mlx5_0,rail0)"
    ]


@pytest.mark.parametrize(("flags", "status"), [((), 0), (("--strict",), 1)])
def test_a_warning_is_exit_status_1_only_if_strict(capsys, host, flags, status):
    narrow(host)
    assert run(capsys, host, "--only", "pcie_bandwidth", *flags)[0] == status


def test_unknown_results_are_no_failure(capsys, host):
    (host.procfs / "4242/environ").unlink()
    (host.sysfs / "module/nvidia_peermem/version").unlink()
    (host.sysfs / "module/nvidia_peermem").rmdir()
    host.write_proc("modules", "mlx5_core 1 0 - Live 0x0")
    status, out = run(capsys, host, "--strict", "--only", "gpudirect_interface")
    assert (status, out.count("unknown")) == (0, 2)


def test_json_has_each_result_with_evidence(capsys, host):
    narrow(host)
    status, out = run(capsys, host, "--json")
    found = json.loads(out)
    assert status == 1
    assert found["counts"]["fail"] == 1
    (failed,) = [row for row in found["results"] if row["result"] == "fail"]
    assert (failed["check"], failed["object"]) == ("pcie_link", "0000:17:00.0 (mlx5_0,rail0)")
    assert {"title", "evidence", "remedy"} <= failed.keys()
    assert {row["check"] for row in found["results"]} == {check.name for check in CHECKS}


def test_only_selected_checks_are_shown_and_all_are_listed(capsys, host):
    assert run(capsys, host, "--only", "roce_mtu", "--only", "iommu", "--json")[1].count('"check": "iommu"') == 4
    listed = run(capsys, host, "--list")[1].splitlines()
    assert [line.split()[0] for line in listed] == [check.name for check in CHECKS]


def test_an_unknown_check_is_a_usage_error(capsys, host):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["check", *host.arguments, "--only", "nothing"])
    assert stopped.value.code == 2
    assert "'nothing' is not a check" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--path.sysfs", "--path.procfs"])
def test_a_host_that_is_not_mounted_is_no_good_host(capsys, host, flag):
    assert cli.main(["check", *host.arguments, flag, "/nothing/here"]) == 2
    assert f"{flag}: /nothing/here: no such directory" in capsys.readouterr().err


def test_a_fault_of_the_program_is_not_the_exit_status_of_a_failed_check(capsys, host, monkeypatch):
    monkeypatch.setattr("exporter.preflight.results.evaluate", lambda *_: 1 / 0)
    assert run(capsys, host)[0] == 2


def test_what_cannot_be_read_is_on_standard_error(capsys, host):
    (host.recordings / "rail0.json").write_text("{")
    status = cli.main(["check", *host.arguments, "--only", "roce_mtu"])
    captured = capsys.readouterr()
    assert status == 0
    assert "rail0" in captured.err


@pytest.mark.parametrize(("environment", "colours"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_there_are_colours_on_a_terminal_only(host, environment, colours):
    narrow(host)
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "exporter", "check", *host.arguments]
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    done = subprocess.run(command, stdout=follower, stderr=subprocess.PIPE, env=kept | environment, check=False)
    os.close(follower)
    text = os.read(leader, 65536)
    os.close(leader)
    assert done.returncode == 1
    assert (b"\x1b[31mFAIL" in text) is colours
    piped = subprocess.run(command, capture_output=True, check=False)
    assert b"\x1b" not in piped.stdout + piped.stderr


@pytest.mark.parametrize("flags", [(), ("--json",), ("--list",)], ids=" ".join)
@pytest.mark.parametrize("is_good", [True, False], ids=["good", "failure"])
def test_a_reader_that_ended_changes_no_exit_status(host, is_good, flags):
    """As `check | head -1`: with `set -o pipefail` a good host would be a failure."""
    if not is_good:
        narrow(host)
    done = without_reader("check", *host.arguments, *flags)
    assert (done.returncode, done.stderr) == (0 if is_good or "--list" in flags else 1, "")


def test_an_output_that_cannot_be_written_is_not_the_exit_status_of_a_failed_check(host):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "exporter", "check", *host.arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "the output cannot be written" in done.stderr


def test_lines_fit_a_narrow_terminal(host):
    narrow(host)
    (host.lldp / "2").unlink()
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 72, 0, 0))
    command = [sys.executable, "-m", "exporter", "check", *host.arguments]
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    subprocess.run(command, stdout=follower, stderr=subprocess.DEVNULL, env=kept | {"NO_COLOR": "1"}, check=False)
    os.close(follower)
    lines = os.read(leader, 65536).decode().splitlines()
    os.close(leader)
    assert max(map(len, lines)) <= 72
    assert "systemd-networkd receive LLDP" in " ".join(" ".join(lines).split()), "no text is lost"


def test_this_host_is_checked_without_rights_and_without_an_error(capfd):
    cli.main(["check", "--list"])
    cli.main(["check", "--json"])
    capfd.readouterr()
    status = status_without_rights(lambda: cli.main(["check", "--json"]))
    captured = capfd.readouterr()
    assert status in {0, 1}, captured.err
    assert {row["check"] for row in json.loads(captured.out)["results"]} == {check.name for check in CHECKS}


PAGE = (ROOT / "docs" / "check.md").read_text()


def test_the_document_lists_each_check_once_in_their_order():
    table = PAGE.partition("## Checks")[2].partition("## Metrics")[0]
    assert re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE) == [check.name for check in CHECKS]


def test_the_example_of_the_document_is_what_the_command_prints(capsys, host, monkeypatch):
    monkeypatch.setenv("NODE_NAME", "gpu-001")
    narrow(host)
    _, out = run(capsys, host)
    example = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)[1].splitlines()
    assert [line for line in example if line != "…" and line not in out.splitlines()] == []
    assert len(example) > 10


@pytest.mark.parametrize(
    ("change", "status"),
    [(None, 0), ("width", 1), ("memlock", 0), ("gpus", 1), ("invalid", 0)],
    ids=["good", "listed check", "other check", "expectation", "invalid expectation"],
)
def test_the_prolog_drains_a_node_for_a_listed_check_only(host, tmp_path, change, status):
    if change == "width":
        narrow(host)
    elif change == "memlock":
        host.process(4242, memlock="65536", RANK="0", WORLD_SIZE="8")
    config = tmp_path / "config.yml"
    config.write_text(
        {"gpus": "expect: {gpus: 8}", "invalid": "expect: {gpus: eight}"}.get(change, "expect: {gpus: 2}")
    )
    program = tmp_path / "fabric-exporter"
    flags = " ".join(host.arguments)
    program.write_text(f'#!/bin/sh\nshift\nexec "{sys.executable}" -m exporter check {flags} "$@"\n')
    program.chmod(0o755)
    script = ROOT / "deploy" / "slurm" / "check-prolog.sh"
    environment = {**os.environ, "FABRIC_EXPORTER": str(program), "FABRIC_EXPECT": str(config)}
    done = subprocess.run([script], env=environment, cwd=ROOT, check=False)
    assert done.returncode == status


def test_the_prolog_drains_no_node_without_the_program():
    script = ROOT / "deploy" / "slurm" / "check-prolog.sh"
    assert subprocess.run([script], env={"FABRIC_EXPORTER": "/nothing"}, check=False).returncode == 0
