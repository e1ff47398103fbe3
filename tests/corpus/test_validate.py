"""The command `validate` on published outputs of nccl-tests: which node is odd, and why some cannot be judged."""

import json
import re
from pathlib import Path

import pytest

from exporter import cli

JUDGED = (
    "2020-allgather-no-redop-column.txt",
    "2024-allgather-bf16-2gpu.txt",
    "2024-tagged-split-lines-cliff-at-64MB.txt",
    "aws-batch-allreduce-full.txt",
    "aws-p5-2node-allreduce-mpi-tagged.txt",
    "aws-p5en-topology-aware-allreduce.txt",
    "cloudai-conftest-sample.txt",
    "oci-h100-2node-allreduce-nvls-464.txt",
    "rccl-tests-ainic-tail.txt",
    "rccl-tests-mi300x-8gpu-version-line.txt",
)

REFUSED = {
    "2.19.6-b200-2node-allreduce-head.txt": "no row with a size",
    "2.20.0-gb10-2node-allreduce.txt": "no size in common that is large enough",
    "2022-errorcol-nompi-duplicate-rank0.txt": "ranks are listed twice",
    "2022-errorcol-p4d-efa-scaling.txt": "a column before the sizes",
    "2025-alltoall-single-rank-na.txt": "one rank alone",
    "2025-reduce_scatter-zero-size-rows.txt": "no size in common that is large enough",
    "aws-neuron-nccom-test.txt": "nccom-test",
    "failure-lines.txt": "the test failed",
    "meta-fork-json-pr318.txt": "JSON of a fork",
}

BANDWIDTHS = re.compile(r"(?<![-\d.])(\d+(?:\.\d+)? +)(\d+\.\d\d)( +)(\d+\.\d\d)(?= )")
"""Time, algorithm bandwidth and bus bandwidth of a half of a row."""


def halved(text):
    """Return an output with half of each bandwidth."""
    return BANDWIDTHS.sub(lambda one: f"{one[1]}{float(one[2]) / 2:.2f}{one[3]}{float(one[4]) / 2:.2f}", text)


def sample(corpus, name):
    lines = (corpus / "nccl" / "nccl-tests" / name).read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("## "))


def validated(capsys, *files):
    status = cli.main(["validate", "--json", *map(str, files)])
    return status, json.loads(capsys.readouterr().out)


def test_each_published_output_has_a_row(corpus):
    assert {path.name for path in (corpus / "nccl" / "nccl-tests").iterdir()} == {*JUDGED, *REFUSED}


@pytest.mark.parametrize("name", JUDGED)
def test_the_odd_one_of_six_is_found(corpus, capsys, tmp_path, name):
    text = sample(corpus, name)
    for number in range(6):
        own = re.sub(r"\bnode([AB12])\b", rf"host{number}\1", text)
        (tmp_path / f"{number}-{name}").write_text(halved(own) if number == 4 else own)
    status, found = validated(capsys, *sorted(tmp_path.iterdir()))
    odd = [one for one in found["findings"] if one["check"] == "median" and one["verdict"] != "ok"]
    assert (status, [(one["verdict"], Path(one["files"][0]).name) for one in odd]) == (1, [("fail", f"4-{name}")])
    assert odd[0]["ratio"] == pytest.approx(0.5, rel=0.01)
    assert all(node.startswith("host4") for node in odd[0]["nodes"] if "host" in node)


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_what_cannot_be_judged_has_its_reason(corpus, capsys, tmp_path, name, reason):
    (tmp_path / name).write_text(sample(corpus, name))
    _, found = validated(capsys, tmp_path / name)
    assert [one["verdict"] for one in found["findings"]] == ["fail" if name.startswith("failure") else "unknown"]
    assert reason in found["findings"][0]["reason"]


def test_the_published_cliff_is_found(corpus, capsys, tmp_path):
    (tmp_path / "a.txt").write_text(sample(corpus, "2024-tagged-split-lines-cliff-at-64MB.txt"))
    status, found = validated(capsys, tmp_path / "a.txt")
    cliff = found["findings"][0]
    assert (status, cliff["check"], cliff["size_bytes"], cliff["place"]) == (1, "cliff", 64 << 20, "in place")
    assert (cliff["bytes_per_second"], cliff["compared_bytes_per_second"]) == (5.27e9, 28.14e9)


@pytest.mark.parametrize("name", sorted({*JUDGED} - {"2024-tagged-split-lines-cliff-at-64MB.txt"}))
def test_other_published_outputs_have_no_cliff_and_do_not_fail(corpus, capsys, tmp_path, name):
    (tmp_path / name).write_text(sample(corpus, name))
    status, found = validated(capsys, tmp_path / name)
    assert (status, [one["check"] for one in found["findings"] if one["check"] == "cliff"]) == (0, [])
