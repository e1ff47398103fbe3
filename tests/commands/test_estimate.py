"""The command `estimate`: its tables, JSON, and wrong flags."""

import json
import re
import shlex

import pytest

from exporter import cli
from exporter.commands.estimate import PRECISIONS
from exporter.meaning.training.step_budget import BYTES
from tests.helpers.paths import ROOT
from tests.helpers.served_pages import serving

BERT = ["--bytes", "440MB", "--model", "payload", "--rate", "110MB/s", "--rate", "11GB/s", "--compute", "150ms"]


def estimated(capsys, *flags):
    assert cli.main(["estimate", *flags]) == 0
    return capsys.readouterr().out


def test_a_table_for_some_rates(capsys):
    assert estimated(capsys, *BERT, "--steps", "100000").splitlines() == [
        "gradients            440 MB",
        "each GPU sends       440 MB a step (payload, 8 GPUs)",
        "",
        "link      a GPU gets  network of a step    step  GPUs compute  training",
        "110 MB/s    110 MB/s                4 s  4.15 s          3.6%     115 h",
        "11 GB/s      11 GB/s              40 ms  190 ms         78.9%    5.28 h",
    ]


def test_the_commands_of_the_document_print_what_it_shows(capsys):
    page = (ROOT / "docs" / "estimate.md").read_text()
    first, second = (shlex.split(block) for block in re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    shown, measured = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert first[:2] == second[:2] == ["fabric-exporter", "estimate"]
    assert estimated(capsys, *first[2:]) == shown
    assert "leaves" in estimated(capsys, *second[2:])
    with serving(metrics_of_job()) as urls:
        assert estimated(capsys, "--measured", *urls, "--rate", "50GB/s", "--steps", "7200") == measured


def test_columns_without_a_value_are_left_out_and_usual_links_are_compared(capsys):
    lines = estimated(capsys, "--parameters", "7B", "--ranks", "100000", "--step", "1s").splitlines()
    assert "each GPU needs       28 GB/s, if all of it is hidden behind computing" in lines
    table = lines[lines.index("") + 1 :]
    assert table[0].split("  ")[0] == "link"
    assert "GPUs compute" not in table[0]
    assert table[1].split() == ["1", "GbE", "TCP", "110", "MB/s", "255", "s"]
    assert len(table) == 9


def test_precisions_are_those_of_the_budget():
    assert set(PRECISIONS) == set(BYTES)


def test_switches_and_oversubscription(capsys):
    flags = ["--parameters", "7B", "--ranks", "4096", "--radix", "64", "--rails", "8", "--rate", "50GB/s"]
    assert "switches             192: 16 leaves + 8 spines, 8 times" in estimated(capsys, *flags)
    halved = estimated(capsys, *flags, "--oversubscription", "2")
    assert "25 GB/s" in halved
    assert "13 leaves" in halved


def test_json_has_base_units_and_no_value_that_is_not_known(capsys):
    found = json.loads(estimated(capsys, *BERT, "--json"))
    assert found["gradient_bytes"] == found["traffic_bytes"] == 440e6
    assert found.keys() == {"gradient_bytes", "traffic_bytes", "estimates"}
    assert [one["link"] for one in found["estimates"]] == ["110 MB/s", "11 GB/s"]
    assert found["estimates"][0]["network_seconds"] == pytest.approx(4.0)
    assert found["estimates"][0].keys() == {
        *("link", "bytes_per_second", "network_seconds", "step_seconds", "compute_ratio")
    }


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ([], "one of the arguments --parameters --bytes --measured is required"),
        (["--bytes", "440"], None),
        (["--bytes", "440XB"], "argument --bytes: '440XB': expected a number of bytes such as 440MB, 14GB or 1500"),
        (["--bytes", "0"], "argument --bytes: '0': expected a number of bytes such as 440MB, 14GB or 1500"),
        (["--parameters", "many"], "argument --parameters: 'many': expected a number above zero, such as 70B"),
        (
            ["--bytes", "1", "--rate", "fast"],
            "argument --rate: 'fast': expected a rate such as 110MB/s (bytes) or 400Gb/s (bits)",
        ),
        (["--bytes", "1", "--ranks", "0"], "argument --ranks: '0': expected a whole number above zero"),
        (["--bytes", "1", "--ranks", "٣"], "argument --ranks: '٣': expected a whole number above zero"),
        (["--bytes", "1", "--ranks", "9" * 5000], "9': expected a whole number above zero, of 12 digits at most"),
        (["--bytes", "1", "--radix", "1"], "argument --radix: '1': expected two ports at least"),
        (
            ["--bytes", "1", "--oversubscription", "nan"],
            "argument --oversubscription: 'nan': expected a ratio of 1 to 1000, such as 2 for 2:1",
        ),
        (["--bytes", "1", "--precision", "int4"], "argument --precision: invalid choice"),
    ],
)
def test_wrong_flags_are_one_error(capsys, flags, error):
    if error is None:
        assert cli.main(["estimate", *flags]) == 0
        return
    with pytest.raises(SystemExit) as ended:
        cli.main(["estimate", *flags])
    assert ended.value.code == 2
    assert error in capsys.readouterr().err


def test_a_network_that_is_too_large_is_an_error_with_its_remedy(capsys):
    assert cli.main(["estimate", "--bytes", "1", "--ranks", "4096", "--radix", "8"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "fabric-exporter: --radix: 4096 ports need more than three levels of switches of 8 ports; give switches of more"
        " ports, or more --rails"
    )


# --- a running job's own figures


def metrics_of_job(job="4711", host="gpu-1", *, network=True):
    """Return the metrics of a job of 16 ranks on 2 hosts, whose ranks send 5 GB in steps of 0.5 s."""
    lines = [
        'fabric_exporter_build_info{version="1"} 1',
        f'fabric_nccl_job_info{{train_job="{job}",job_kind="",ranks="16",nodes="2"}} 1',
        f'fabric_job_network_bytes_per_second{{train_job="{job}",host="{host}"}} 160e9',
        f'fabric_nccl_step_interval_seconds{{train_job="{job}"}} 0.5',
        f'fabric_nccl_step_network_seconds{{train_job="{job}"}} 0.2' if network else "",
    ]
    return "\n".join([*lines, ""]).encode()


def test_a_running_job_is_compared_with_other_links(capsys):
    with serving(metrics_of_job()) as urls:
        lines = estimated(capsys, "--measured", *urls, "--rate", "50GB/s", "--steps", "7200").splitlines()
    assert lines == [
        "each GPU sends       5 GB a step (measured, 16 GPUs)",
        "",
        "link      a GPU gets  network of a step    step  GPUs compute  training",
        "measured     25 GB/s             200 ms  500 ms         60.0%       1 h",
        "50 GB/s      50 GB/s             100 ms  400 ms         75.0%     0.8 h",
    ]


def test_without_the_time_of_its_network_computing_is_not_known(capsys):
    with serving(metrics_of_job(network=False)) as urls:
        found = json.loads(estimated(capsys, "--measured", *urls, "--rate", "50GB/s", "--json"))
        given = json.loads(estimated(capsys, "--measured", *urls, "--rate", "50GB/s", "--compute", "300ms", "--json"))
    assert found["traffic_bytes"] == 5e9
    assert found["estimates"] == [{"link": "50 GB/s", "bytes_per_second": 50e9, "network_seconds": 0.1}]
    assert "gradient_bytes" not in found
    assert given["estimates"][0]["compute_ratio"] == pytest.approx(0.75)


def test_figures_of_hosts_and_collector_are_put_together_and_one_that_fails_is_reported(capsys):
    host, collector = (b"".join(metrics_of_job().splitlines(keepends=True)[part]) for part in (slice(3), slice(3, 5)))
    with serving(host, b"fabric_exporter_build_info 1\n" + collector, None) as urls:
        assert cli.main(["estimate", "--measured", *urls]) == 0
    out, err = capsys.readouterr()
    assert "measured" in out
    assert "HTTP 503" in err


@pytest.mark.parametrize(
    ("pages", "flags", "error"),
    [
        ([metrics_of_job("a") + metrics_of_job("b")], (), "have 2 jobs: a, b; choose one by --train-job"),
        ([metrics_of_job("a")], ("--train-job", "c"), "no exporter has the job 'c'; they have a"),
        ([b"fabric_exporter_build_info 1\n"], (), "have no job"),
        ([b'fabric_nccl_job_info{train_job="a",ranks="16",nodes="2"} 1\n'], (), "no exporter has fabric_job_network_"),
        ([None], (), "have no job"),
    ],
)
def test_a_job_that_is_not_known_is_one_error(capsys, pages, flags, error):
    with serving(*pages) as urls:
        assert cli.main(["estimate", "--measured", *urls, *flags]) == 1
    assert error in capsys.readouterr().err


def test_one_of_several_jobs_can_be_chosen(capsys):
    with serving(metrics_of_job("a") + metrics_of_job("b")) as urls:
        assert "measured" in estimated(capsys, "--measured", *urls, "--train-job", "b")
