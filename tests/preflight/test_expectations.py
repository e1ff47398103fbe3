"""What the configuration expects of a host, against a written host, by the command that a prolog runs."""

import json

import pytest

from exporter import cli
from tests.helpers.checked_host import CheckedHost

ALL = """
expect:
  rdma_ports: 4
  rdma_speed: 400Gb/s
  nic_speed: 400Gb/s
  gpus: 2
  mtu: 9000
  pfc: [3]
  trust: dscp
  firmware: {MT_0000000838: "28.*"}
  kernel: "6.8.0-*"
  nvidia_driver: "550.90.*"
"""

NVIDIA = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build\n"
"""As `/proc/driver/nvidia/version` of the open kernel module begins."""


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setenv("NODE_NAME", "gpu-001")
    one = CheckedHost(tmp_path)
    one.write_proc("driver/nvidia/version", NVIDIA)
    return one


@pytest.fixture
def check(host, tmp_path, capsys):
    """Return a function that returns the exit status, and the results by check and object."""

    def run(text, *flags):
        file = tmp_path / "expect.yml"
        file.write_text(text)
        status = cli.main(["check", *host.arguments, "--json", "--expect", str(file), *flags])
        found = json.loads(capsys.readouterr().out)["results"]
        return status, {(one["check"], one["object"]): one for one in found if one["check"].startswith("expected_")}

    return run


def results(found):
    """Return the results that are not ok, by check and object."""
    return {key: one["result"] for key, one in found.items() if one["result"] != "ok"}


def test_a_host_that_has_what_is_expected_passes(check):
    status, found = check(ALL, "--strict")
    assert (status, results(found)) == (0, {})
    assert {name for name, _ in found} == {
        "expected_rdma_ports",
        "expected_gpus",
        "expected_speed",
        "expected_settings",
        "expected_versions",
    }
    assert found["expected_versions", "NVIDIA driver"]["evidence"] == "version 550.90.07, as expected"
    assert len([one for one in found if one[0] == "expected_speed"]) == 8  # four RDMA ports, four network devices


@pytest.mark.parametrize(
    ("text", "wrong", "evidence"),
    [
        (
            "rdma_ports: 5",
            ("expected_rdma_ports", "gpu-001"),
            "4 RDMA ports are ready, 5 are expected; the kernel has 4",
        ),
        ("gpus: 8", ("expected_gpus", "gpu-001"), "2 GPUs on the PCI bus, 8 are expected"),
        ("rdma_speed: 800G", ("expected_speed", "mlx5_0:1"), "400 Gb/s; 800 Gb/s are expected"),
        ("nic_speed: 800G", ("expected_speed", "rail0"), "400 Gb/s; 800 Gb/s are expected"),
        ("mtu: 4200", ("expected_settings", "rail0"), "MTU 9000, expected 4200"),
        ("pfc: []", ("expected_settings", "rail0"), "PFC 3, expected off"),
        ("pfc: [4, 3]", ("expected_settings", "rail0"), "PFC 3, expected 3,4"),
        ("trust: pcp", ("expected_settings", "rail0"), "trust dscp, expected pcp"),
        ("kernel: '6.5.*'", ("expected_versions", "kernel"), "release 6.8.0-45-generic; 6.5.* is expected"),
        ("nvidia_driver: '535.*'", ("expected_versions", "NVIDIA driver"), "version 550.90.07; 535.* is expected"),
        (
            "firmware: {'MT_*': '20.*'}",
            ("expected_versions", "mlx5_0:1"),
            "firmware of board MT_0000000838: 28.39.1002; 20.* is expected",
        ),
    ],
)
def test_what_differs_fails_with_both_values(check, text, wrong, evidence):
    status, found = check(f"expect: {{{text}}}")
    assert status == 1
    assert found[wrong]["result"] == "fail"
    assert evidence in found[wrong]["evidence"]
    assert found[wrong]["remedy"]
    assert {name for (name, _), word in results(found).items() if word == "fail"} == {wrong[0]}


def test_a_port_that_is_down_or_slow_is_not_ready_and_is_named(check, host):
    host.port("mlx5_1", state="1: DOWN")
    host.port("mlx5_2", rate="100 Gb/sec (4X EDR)")
    _, found = check("expect: {rdma_ports: 4, rdma_speed: 400G}")
    assert found["expected_rdma_ports", "gpu-001"]["evidence"] == (
        "2 RDMA ports are ready, 4 are expected; not ready: mlx5_1:1 (link down), mlx5_2:1 (100 Gb/s)"
    )
    assert found["expected_speed", "mlx5_1:1"]["result"] == "unknown"
    assert found["expected_speed", "mlx5_2:1"]["result"] == "fail"


def test_more_than_is_expected_is_no_fault(check):
    assert check("expect: {rdma_ports: 0, rdma_speed: 100G, gpus: 1}")[0] == 0


def test_excluded_devices_are_not_counted_and_nothing_is_expected_of_them(check):
    text = "sources: {rdma: {exclude: [mlx5_3]}}\nexpect: {rdma_ports: 4, rdma_speed: 800G, mtu: 1500}"
    _, found = check(text)
    assert found["expected_rdma_ports", "gpu-001"]["evidence"].startswith("0 RDMA ports are ready")
    assert ("expected_speed", "mlx5_2:1") in found
    assert ("expected_speed", "mlx5_3:1") not in found
    assert ("expected_settings", "rail3") not in found


def test_what_cannot_be_read_is_unknown(check, host):
    (host.procfs / "driver/nvidia/version").unlink()
    host.record("rail0", dcb=None)
    status, found = check("expect: {pfc: [3], nvidia_driver: '550.*'}")
    assert status == 0
    assert found["expected_versions", "NVIDIA driver"]["result"] == "unknown"
    assert found["expected_settings", "rail0"]["result"] == "unknown"


def test_the_class_of_the_host_applies(check):
    text = "expect: {gpus: 8, classes: [{hosts: ['gpu-0*'], gpus: 2}]}"
    assert check(text)[0] == 0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("host: gpu-001\n", "expects nothing of gpu-001; give its section `expect`"),
        ("expect: {gpus: -1}", "gpus is -1; give a number of GPUs, 0 for none"),
        ("expect: {mtu: 9}", "mtu is 9; give 68 to 65535 bytes"),
        ("expect: {pfc: [8]}", "pfc has 8; give priorities from 0 to 7"),
        ("expect: {trust: l2}", "dscp, pcp"),
        ("expect: {gpu: 8}", "did you mean 'gpus'?"),
    ],
)
def test_a_wrong_file_is_one_error_and_status_2(host, tmp_path, capsys, text, error):
    file = tmp_path / "expect.yml"
    file.write_text(text)
    assert cli.main(["check", *host.arguments, "--expect", str(file)]) == 2
    assert error in capsys.readouterr().err
