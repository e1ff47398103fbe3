"""`check --remote` against HTTP servers that return metrics as hosts' exporters do."""

import json
from time import process_time

import pytest

from exporter import cli
from tests.helpers.served_pages import serving


def page(host, mtu="9000", checks=""):
    return (
        'fabric_exporter_build_info{version="1"} 1\n'
        f'fabric_nic_info{{device="eth5",host="{host}",driver="mlx5_core"}} 1\n'
        f'fabric_nic_mtu_bytes{{device="eth5"}} {mtu}\n{checks}'
    ).encode()


def run(capsys, *arguments):
    status = cli.main(["check", *arguments])
    return status, capsys.readouterr().out


def test_the_host_that_differs_is_named(capsys):
    with serving(page("gpu-001"), page("gpu-002"), page("gpu-003", "1500"), page("gpu-004")) as urls:
        status, out = run(capsys, "--remote", *urls)
    assert status == 0
    assert out.splitlines() == [
        "4 hosts compared, 1 differ, 0 have checks that fail, 0 could not be read",
        "gpu-003  differs  device eth5 MTU  1500; 3 of 4 hosts have 9000",
    ]


def test_settings_of_the_checks_are_compared_too(capsys):
    def kernel(release):
        labels = f'class="MT_1, GPUs",setting="kernel",value="{release}",host="h"'
        return f"fabric_check_setting_info{{{labels}}} 1\n"

    pages = [page(f"gpu-00{number}", checks=kernel("5.15.0" if number == 2 else "6.8.0")) for number in range(1, 4)]
    with serving(*pages) as urls:
        _, out = run(capsys, "--remote", *urls)
    assert out.splitlines()[1:] == ["gpu-002  differs  MT_1, GPUs kernel  5.15.0; 2 of 3 hosts have 6.8.0"]


def test_a_difference_is_an_exit_status_only_if_strict(capsys):
    with serving(page("gpu-001"), page("gpu-002"), page("gpu-003", "1500")) as urls:
        assert run(capsys, "--strict", "--remote", *urls)[0] == 1
        assert run(capsys, "--strict", "--remote", *urls[:2])[0] == 0


def test_a_check_that_fails_on_a_host_is_shown_and_is_exit_status_1(capsys):
    failed = 'fabric_check_info{check="roce_gid",object="mlx5_0:1",result="fail",evidence="NCCL picks GID 0"} 1\n'
    with serving(page("gpu-001", checks=failed), page("gpu-002")) as urls:
        status, out = run(capsys, "--remote", *urls)
        found = json.loads(run(capsys, "--json", "--remote", *urls)[1])
    assert status == 1
    assert "gpu-001  fail  roce_gid: mlx5_0:1  NCCL picks GID 0" in out.splitlines()
    assert found["checks"][0]["host"] == "gpu-001"


@pytest.mark.parametrize(
    "broken", [b"", b"{{{ 1\n", b"node_load1 1\n"], ids=["HTTP 503", "no metrics", "another exporter"]
)
def test_a_host_that_cannot_be_read_is_shown_and_hides_no_other(capsys, broken):
    with serving(page("gpu-001"), page("gpu-002"), broken, page("gpu-004", "1500"), page("gpu-005")) as urls:
        status, out = run(capsys, "--remote", *urls, "http://127.0.0.1:9/metrics")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "4 hosts compared, 1 differ, 0 have checks that fail, 2 could not be read"
    assert len([line for line in lines if "unknown" in line]) == 2


def test_hosts_of_one_name_do_not_hide_each_other(capsys):
    pages = [page("gpu-001"), page("gpu-001", "1500"), page("gpu-002"), page("gpu-003")]
    with serving(*pages) as urls:
        _, out = run(capsys, "--remote", *urls)
    assert out.splitlines()[0].startswith("4 hosts compared, 1 differ")
    assert out.splitlines()[1].startswith("gpu-001 (127.0.0.1:")


def test_a_check_without_its_labels_and_text_for_terminals_do_no_harm(capsys):
    odd = 'fabric_check_info{result="fail"} 1\n'
    odd += 'fabric_check_info{check="c",object="o",result="warn",evidence="a\\nFAIL \x1b[2J"} 1\n'
    with serving(page("gpu-001", checks=odd)) as urls:
        status, out = run(capsys, "--remote", *urls)
    assert (status, len(out.splitlines())) == (0, 2)
    assert "\x1b" not in out


def test_nothing_to_compare_is_no_success(capsys):
    assert run(capsys, "--remote", "http://127.0.0.1:9/metrics")[0] == 2


def test_a_response_without_an_end_is_given_up(capsys, monkeypatch):
    monkeypatch.setattr("exporter.commands.scrapes.DEADLINE", 0.0)
    with serving(page("gpu-001")) as urls:
        assert run(capsys, "--remote", *urls)[0] == 2


def test_a_password_in_a_url_is_never_shown(capsys):
    status, out = run(capsys, "--remote", "http://user:secret@127.0.0.1:9/metrics")
    assert status == 2
    assert "secret" not in out


def test_what_is_not_compared_is_not_parsed(capsys):
    """Series that are not compared are most of a response; 200,000 took the parser nine seconds."""
    more = b'fabric_rdma_receive_bytes_total{device="mlx5_0",port="1"} 1\nfabric_nic_{{ broken\n' * 100_000
    began = process_time()
    with serving(page("gpu-001") + more, page("gpu-002"), page("gpu-003", "1500"), page("gpu-004")) as urls:
        _, out = run(capsys, "--remote", *urls)
    assert process_time() - began < 3
    assert out.startswith("4 hosts compared, 1 differ")


@pytest.mark.parametrize(
    "more",
    [
        b'fabric_nic_mtu_bytes{device="eth5"} 1\n' * 20_000,
        b'fabric_nic_mtu_bytes{device="' + b"x" * 20_000 + b'"} 1\n',
    ],
    ids=["samples", "label"],
)
def test_more_than_a_host_has_is_not_compared(capsys, more):
    with serving(page("gpu-001") + more, page("gpu-002"), page("gpu-003"), page("gpu-004")) as urls:
        _, out = run(capsys, "--remote", *urls)
    assert out.startswith("3 hosts compared, 0 differ, 0 have checks that fail, 1 could not be read")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://gpu-001/",
        "http://",
        "http:///metrics",
        "gpu-001:65536",
        "gpu-001:0",
        "gpu-001:port",
        "gpu 001",
        "gpu-001\n:10315",
        "http://[::1",
        "http://gpu-001/m\u00e9trics",
    ],
)
def test_a_wrong_url_is_a_usage_error(capsys, url):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["check", "--remote", url])
    assert stopped.value.code == 2
    assert "expected a URL" in capsys.readouterr().err
