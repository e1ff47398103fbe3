"""The command `estimate`: its tables, JSON, and wrong flags."""

import json
import re
import shlex

import pytest

from exporter import cli
from exporter.commands.estimate import PRECISIONS
from exporter.meaning.training.step_budget import BYTES
from tests.helpers.paths import ROOT

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
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert first[:2] == second[:2] == ["fabric-exporter", "estimate"]
    assert estimated(capsys, *first[2:]) == shown
    assert "leaves" in estimated(capsys, *second[2:])


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
        ([], "one of the arguments --parameters --bytes is required"),
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
