"""The command `validate`: tables, JSON, exit statuses, baselines, and files that cannot be judged."""

import json
import re
import shlex
import time
from itertools import combinations
from pathlib import Path

import pytest

from exporter import cli
from exporter.commands import validate_files
from exporter.commands.validate import LINKS
from exporter.meaning.training.estimates import TECHNOLOGIES
from exporter.sources.nccl.baseline import load_baselines
from tests.helpers.benchmark_outputs import GIB, MIB, bandwidth_table, latency_table, nccl_json, nccl_table
from tests.helpers.closed_pipe import without_reader
from tests.helpers.paths import ROOT

FINE = {64 * MIB: 400.0, GIB: 470.0, 8 * GIB: 478.0}
SLOW = {64 * MIB: 390.0, GIB: 380.0, 8 * GIB: 382.0}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes a file and returns its name; the working directory is that of the files."""
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        Path(name).write_text(text)
        return name

    return write


def validated(capsys, *words, status=0):
    assert cli.main(["validate", *words]) == status
    return capsys.readouterr()


def found(capsys, *words, status=0):
    return json.loads(validated(capsys, "--json", *words, status=status).out)


def odd(findings):
    """Return verdict, check and nodes of all findings that are not fine."""
    return [(one["verdict"], one["check"], one["nodes"]) for one in findings["findings"] if one["verdict"] != "ok"]


def eight_nodes(write, slow=SLOW):
    return [
        write(f"gpu-{number}.txt", nccl_table([f"gpu-{number}"], slow if number == 3 else FINE)) for number in range(8)
    ]


def pairs_of(write, names, slow_nodes=(), slow_pairs=()):
    """Write a result of each pair; those with a slow node are slow."""
    files = []
    for one, other in combinations(names, 2):
        is_slow = {one, other} & set(slow_nodes) or (one, other) in slow_pairs
        files.append(write(f"{one}-{other}.txt", nccl_table([one, other], SLOW if is_slow else FINE)))
    return files


# --- one run a node


def test_the_odd_node_of_eight_is_first_with_median_and_remedy(capsys, write):
    lines = validated(capsys, *eight_nodes(write), status=1).out.splitlines()
    assert lines[0] == "8 runs; nodes, pairs or files: 1 fail, 0 warn, 0 unknown, 7 ok"
    assert lines[2].split() == ["verdict", "node", "test", "size", "result", "compared", "with", "share"]
    assert re.split(r" {2,}", lines[3]) == [
        *("fail", "gpu-3", "AllReduce", "8 GiB in place", "382 GB/s", "478 GB/s, median of 8 nodes", "80%")
    ]
    assert lines[4].strip() == "below 90% of the median; below pass mark of Azure's node health checks from 8 GiB"
    assert lines[5].strip().startswith("→ run it again")
    assert [line.split()[1] for line in lines if line.startswith("ok")] == [f"gpu-{n}" for n in range(8) if n != 3]
    assert "no NIC" in lines[-1]


def test_json_has_base_units_and_the_origin_of_names(capsys, write):
    result = found(capsys, *eight_nodes(write), status=1)
    assert result["verdict"] == "fail"
    assert result["counts"] == {"fail": 1, "warn": 0, "unknown": 0, "ok": 7}
    first = result["findings"][0]
    assert (first["nodes"], first["nodes_from"], first["files"]) == (["gpu-3"], "output", ["gpu-3.txt"])
    assert (first["size_bytes"], first["bytes_per_second"], first["compared_bytes_per_second"]) == (
        8 * GIB,
        pytest.approx(382e9),
        pytest.approx(478e9),
    )
    assert first["ratio"] == pytest.approx(382 / 478)
    assert (first["test"], first["n_ranks"], first["model"]) == ("AllReduce", 8, "NVIDIA H100 80GB HBM3")
    (group,) = result["groups"]
    assert (group["units"], group["unit"], group["judged_bytes"]) == (8, "node", [GIB, 8 * GIB])
    assert "hunter2" not in json.dumps(result)


def test_json_of_nccl_tests_gives_the_same_node(capsys, write):
    files = [
        write(f"{number}.json", nccl_json([f"gpu-{number}"], SLOW if number == 5 else FINE)) for number in range(8)
    ]
    result = found(capsys, *files, status=1)
    assert ("fail", "median", ["gpu-5"]) in odd(result)
    assert {tuple(nodes) for _, _, nodes in odd(result)} == {("gpu-5",)}


def test_a_fleet_that_is_slow_everywhere_does_not_pass(capsys, write):
    files = [write(f"{number}.txt", nccl_table([f"gpu-{number}"], SLOW)) for number in range(6)]
    result = found(capsys, *files, status=1)
    assert {(verdict, check) for verdict, check, _ in odd(result)} == {("fail", "mark")}
    assert len(odd(result)) == 6
    assert result["findings"][0]["compared_bytes_per_second"] == 460e9


def test_colours_are_for_terminals_only(capsys, write, monkeypatch):
    files = eight_nodes(write)
    assert "\033" not in validated(capsys, *files, status=1).out
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert "\033[31mfail\033[0m     gpu-3" in validated(capsys, *files, status=1).out


def test_of_many_fine_nodes_the_first_are_printed(capsys, write):
    files = [write(f"{number}.txt", nccl_table([f"gpu-{number}"], FINE)) for number in range(30)]
    assert "… and 10 more ok; --all prints them" in validated(capsys, *files).out
    every = validated(capsys, "--all", *files).out
    assert sum(line.startswith("ok") for line in every.splitlines()) == 30


# --- pairs and more


def test_the_odd_node_of_all_pairs_is_named_and_no_partner(capsys, write):
    names = [f"gpu-{number}" for number in range(6)]
    result = found(capsys, *pairs_of(write, names, slow_nodes=["gpu-2"]), status=1)
    bad = odd(result)
    assert [one for one in bad if one[0] == "fail"] == [("fail", "node", ["gpu-2"])]
    assert {verdict for verdict, _, nodes in bad if len(nodes) == 2} == {"warn"}
    assert sum(len(nodes) == 2 for _, _, nodes in bad) == 5
    assert "slow in all of its 5 pairs" in result["findings"][0]["reason"]
    assert "a partner that is fast elsewhere" in result["findings"][0]["remedy"]


def test_one_slow_pair_convicts_neither_end(capsys, write):
    files = [
        write(f"{number}.txt", nccl_table([f"a{number}", f"b{number}"], SLOW if number == 4 else FINE))
        for number in range(6)
    ]
    result = found(capsys, *files, status=1)
    assert odd(result) == [("fail", "median", ["a4", "b4"])]
    first = result["findings"][0]
    assert "convicts none of its ends" in first["reason"]
    assert re.search(r"test each with a known-good partner, such as [ab]\d$", first["remedy"])


def test_a_slow_pair_of_nodes_that_are_fast_elsewhere_is_a_path(capsys, write):
    names = [f"gpu-{number}" for number in range(4)]
    result = found(capsys, *pairs_of(write, names, slow_pairs=[("gpu-0", "gpu-1")]), status=1)
    assert odd(result) == [("fail", "median", ["gpu-0", "gpu-1"])]
    assert "the path between them is suspect" in result["findings"][0]["reason"]


def test_a_single_run_over_many_nodes_names_no_node(capsys, write):
    name = write("all.txt", nccl_table([f"gpu-{number}" for number in range(16)], SLOW))
    result = found(capsys, name)
    ((verdict, check, nodes),) = odd(result)
    assert (verdict, check, len(nodes)) == ("unknown", "median", 16)
    assert "that of the slowest of its nodes, which it does not name" in result["findings"][0]["reason"]
    assert result["findings"][0]["remedy"] == "run pairs of nodes"
    assert validated(capsys, "--strict", name, status=1)


def test_what_the_links_allow_judges_a_single_run(capsys, write):
    hosts = [f"gpu-{number}" for number in range(16)]
    name = write("all.txt", nccl_table(hosts, {8 * GIB: 187.0}))
    fast, slow = found(capsys, "--technology", "hdr", name), found(capsys, "--technology", "ndr", name, status=1)
    assert odd(fast) == []
    limit = 0.8 * 8 * 25e9  # less the time of the steps
    assert 0.98 * limit < fast["findings"][0]["compared_bytes_per_second"] < limit
    assert slow["findings"][0]["compared_with"] == "what 8 links of a node allow"
    assert 0.96 * 2 * limit < slow["findings"][0]["compared_bytes_per_second"] < 2 * limit
    assert odd(found(capsys, "--link-speed", "400Gb/s", "--links", "4", name)) == []
    assert odd(found(capsys, "--mark", "185GB/s", name)) == []
    assert odd(found(capsys, "--mark", "188GB/s", name, status=1))[0][:2] == ("fail", "mark")


# --- results that are wrong, cliffs, files that cannot be judged


def test_wrong_results_fail_whatever_the_speed(capsys, write):
    files = [
        write(f"{number}.txt", nccl_table([f"gpu-{number}"], FINE, wrong=7 if number == 2 else 0))
        for number in range(8)
    ]
    result = found(capsys, *files, status=1)
    assert odd(result) == [("fail", "result", ["gpu-2"])]
    assert result["findings"][0]["reason"] == "7 values were wrong"


def test_a_cliff_by_size(capsys, write):
    cliff = {16 * MIB: 24.1, 32 * MIB: 29.5, 64 * MIB: 5.27, 128 * MIB: 5.22, GIB: 5.3}
    files = [write(f"{n}.txt", nccl_table([f"a{n}", f"b{n}"], cliff)) for n in range(5)]
    bad = odd(found(capsys, *files, status=1))
    assert bad == [("fail", "cliff", [f"a{n}", f"b{n}"]) for n in range(5)]
    assert "bandwidth falls to 18% from 32 MiB to 64 MiB" in validated(capsys, *files, status=1).out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no row with a size"),
        ("Mon Nov 30: a log of something else\n", "no row with a size"),
        ("{", "truncated"),
        (nccl_table(["a"], FINE, gpus=1), "one rank alone"),
        (nccl_table(["a", "b"], FINE, gpus=1).replace("Rank  1", "Rank  0"), "ranks are listed twice"),
        ("#  size(B) count(elems) type time:avg(us) algbw(GB/s)\n", "nccom-test"),
        ('{"test_info": {"test": "RDMA_Write_Latency_Test"}}', "JSON of perftest"),
        (" #bytes #iterations    t_min[usec]\n 2 1000 1.0\n", "without its title"),
    ],
)
def test_what_cannot_be_judged_is_listed_and_loses_no_other(capsys, write, text, reason):
    bad = write("bad.txt", text)
    result = found(capsys, *eight_nodes(write, slow=FINE), bad)
    (one,) = (one for one in result["findings"] if one["verdict"] == "unknown")
    assert one["files"] == ["bad.txt"]
    assert reason in one["reason"]
    assert result["counts"]["ok"] == 8


def test_files_that_cannot_be_read_are_listed(capsys, write, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    result = found(capsys, *eight_nodes(write, slow=FINE), "missing.txt", "folder", "loop")
    reasons = {one["files"][0]: one["reason"] for one in result["findings"] if one["verdict"] == "unknown"}
    assert reasons.keys() == {"missing.txt", "folder", "loop"}
    assert reasons["missing.txt"] == "cannot be read: No such file or directory"
    assert reasons["folder"] == "cannot be read: not a regular file"


def test_if_nothing_can_be_judged_the_command_fails(capsys, write):
    name = write("bad.txt", "no table\n")
    shown = validated(capsys, name, status=2)
    assert shown.err == (
        "fabric-exporter: none of the files can be judged; give outputs of nccl-tests, rccl-tests or perftest\n"
    )
    assert "no row with a size" in shown.out


def test_a_run_that_ended_early_is_not_compared(capsys, write):
    short = {size: FINE[size] for size in (64 * MIB, GIB)}
    files = [*eight_nodes(write, slow=FINE), write("short.txt", nccl_table(["short"], short))]
    result = found(capsys, *files)
    assert odd(result) == [("unknown", "file", ["short"])]
    assert "from 8 GiB: the test ended early" in result["findings"][0]["reason"]


def test_outputs_without_ranks_are_named_by_their_files(capsys, write):
    files = [
        write(f"node-{number}", nccl_table(None, SLOW if number == 1 else FINE, test=None, factor=1.75))
        for number in range(5)
    ]
    result = found(capsys, *files, status=1)
    assert odd(result) == [("fail", "median", ["node-1"])]
    assert (result["findings"][0]["nodes_from"], result["findings"][0]["test"]) == ("file", "AllReduce")


def test_a_name_of_a_file_breaks_no_line(capsys, write):
    name = write("a\033[2J\nb.txt", "nothing")
    shown = validated(capsys, name, status=2)
    assert "\033" not in shown.out
    assert "a [2J b.txt" in shown.out


def test_a_file_with_several_runs_has_a_result_for_each(capsys, write):
    text = "".join(
        nccl_table([f"gpu-{number}"], SLOW if number == 4 else FINE).replace(
            "# Collective", "# nccl-tests version 2.17.9\n# Collective"
        )
        for number in range(6)
    )
    result = found(capsys, write("all.txt", text), status=1)
    assert ("fail", "median", ["gpu-4"]) in odd(result)
    assert result["findings"][0]["files"] == ["all.txt (run 5)"]


# --- perftest


def test_latency_of_pairs(capsys, write):
    pairs = list(combinations(range(1, 6), 2))
    files = [write(f"{a}-{b}.txt", latency_table((a, b), 2.4 if 3 in (a, b) else 0.95)) for a, b in pairs]
    result = found(capsys, *files, status=1)
    failed = [one for one in result["findings"] if one["verdict"] == "fail"]
    assert [(one["check"], one["nodes"]) for one in failed] == [("node", ["LID 3"])]
    assert failed[0]["seconds"] == pytest.approx(2.4e-6)
    assert failed[0]["compared_seconds"] == pytest.approx(0.95e-6)
    assert {one["nodes"][0] for one in result["findings"] if one["check"] == "mark"} <= {"LID 1", "LID 2", "LID 3"}


def test_latency_above_the_pass_mark_fails_without_others(capsys, write):
    name = write("a.txt", latency_table(("192.0.2.1", "192.0.2.2"), 9.5, link="Ethernet"))
    result = found(capsys, name, status=1)
    assert odd(result)[0] == ("fail", "mark", ["192.0.2.1", "192.0.2.2"])
    table = validated(capsys, name, status=1).out
    assert "9.5 µs" in table


def test_bandwidth_of_a_link(capsys, write):
    fine = write("fine.txt", bandwidth_table((1, 2), 392.0))
    slow = write("slow.txt", bandwidth_table((3, 4), 240.0))
    result = found(capsys, "--link-speed", "400Gb/s", fine, slow, status=1)
    assert odd(result) == [("fail", "mark", ["LID 3", "LID 4"])]
    assert result["findings"][0]["compared_bytes_per_second"] == pytest.approx(384e9 / 8)
    assert [one["nodes"] for one in result["findings"] if one["verdict"] == "ok"] == [["LID 1", "LID 2"]]


# --- baseline


def test_the_baseline_is_read_by_the_judge_of_jobs(capsys, write, tmp_path):
    names = [f"gpu-{number}" for number in range(4)]
    files = pairs_of(write, names)
    gather = write("gather.txt", nccl_table(names[:2], {GIB: 361.25}, test="all_gather_perf", factor=15 / 16))
    shown = validated(capsys, "--baseline", "baseline.json", *files, gather)
    assert shown.err == "baseline of AllGather, AllReduce, 4 sizes, written to baseline.json\n"
    (loaded,) = load_baselines(["baseline.json"], tmp_path)
    expected = {("AllReduce", size): value * 1e9 for size, value in FINE.items()} | {("AllGather", GIB): 361.25e9}
    assert loaded == pytest.approx(expected, rel=1e-9)


def test_the_baseline_leaves_out_what_fails_and_keeps_the_old_file_without_results(capsys, write, tmp_path):
    names = [f"gpu-{number}" for number in range(6)]
    files = pairs_of(write, names, slow_nodes=["gpu-5"])
    assert validated(capsys, "--baseline", "baseline.json", *files, status=1)
    (loaded,) = load_baselines(["baseline.json"], tmp_path)
    assert loaded["AllReduce", 8 * GIB] == pytest.approx(478e9)
    before = (tmp_path / "baseline.json").read_bytes()
    shown = validated(capsys, "--baseline", "baseline.json", *eight_nodes(write, slow=FINE), status=2)
    assert "--baseline: no run over two nodes or more" in shown.err
    assert (tmp_path / "baseline.json").read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")]


@pytest.mark.parametrize("path", ["missing/baseline.json", "", "/", "folder"])
def test_a_baseline_that_cannot_be_written_is_an_error(capsys, write, tmp_path, path):
    (tmp_path / "folder").mkdir()
    files = pairs_of(write, ["a", "b", "c"])
    shown = validated(capsys, "--baseline", path, *files, status=2)
    assert shown.err.startswith(f"fabric-exporter: --baseline: {path or '.'}")
    assert "Traceback" not in shown.err
    assert not [found for found in tmp_path.iterdir() if found.name.startswith(".")]


# --- flags


def test_strict_makes_a_warning_fail(capsys, write):
    files = [write(f"{n}.txt", nccl_table([f"a{n}", f"b{n}"], SLOW if n == 1 else FINE)) for n in range(4)]
    result = found(capsys, *files)
    assert odd(result) == [("warn", "median", ["a1", "b1"])]
    assert "a median of fewer than 5 does not convict" in result["findings"][0]["reason"]
    validated(capsys, "--strict", *files, status=1)


def test_the_threshold_is_a_flag(capsys, write):
    slow = {size: 0.95 * value for size, value in FINE.items()}
    files = [
        write(f"{n}.txt", nccl_table([f"a{n}", f"b{n}"], slow if n == 1 else FINE, model="unknown")) for n in range(5)
    ]
    validated(capsys, *files)
    validated(capsys, "--threshold", "0.97", *files, status=1)


def test_links_are_those_of_estimates():
    assert set(LINKS.values()) == set(TECHNOLOGIES)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ([], "the following arguments are required: FILE"),
        (["--threshold", "90", "a"], "argument --threshold: '90': expected a share between 0 and 1, such as 0.9"),
        (["--threshold", "nan", "a"], "argument --threshold: 'nan': expected a share"),
        (["--link-speed", "fast", "a"], "argument --link-speed: 'fast': expected a link speed in bits"),
        (["--links", "0", "a"], "argument --links: '0': expected a whole number above zero"),
        (["--mark", "x", "a"], "argument --mark: 'x': expected a rate"),
        (["--technology", "ndr", "--link-speed", "1G", "a"], "not allowed with argument --technology"),
    ],
)
def test_wrong_flags_are_one_error(capsys, flags, error):
    with pytest.raises(SystemExit) as ended:
        cli.main(["validate", *flags])
    assert ended.value.code == 2
    assert error in capsys.readouterr().err


def test_a_fault_of_the_program_is_not_taken_for_a_slow_node(capsys, write, monkeypatch):
    def broken(_):
        raise ZeroDivisionError("of the test")

    monkeypatch.setattr(validate_files, "read_runs", broken)
    assert "ZeroDivisionError: of the test" in validated(capsys, write("a.txt", ""), status=2).err


@pytest.mark.parametrize("make", [lambda n: [f"gpu-{n}"], lambda n: [f"gpu-{n}", f"gpu-{n + 1}"]])
def test_five_times_as_many_files_take_about_five_times_as_long(capsys, write, make):
    files = [
        write(f"{number}.txt", nccl_table(make(number), SLOW if number % 3 == 0 else FINE, gpus=1))
        for number in range(1000)
    ]
    seconds = []
    for some in (files[:200], files):
        began = time.process_time()
        cli.main(["validate", "--json", *some])
        seconds.append(time.process_time() - began)
    assert seconds[1] < 3 * 5 * seconds[0]


def test_progress_is_shown_on_a_terminal_only(capsys, write, monkeypatch):
    files = [write(f"{number}.txt", nccl_table([f"gpu-{number}"], FINE)) for number in range(150)]
    assert validated(capsys, *files).err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert validated(capsys, *files).err == "\r100 of 150 files\r\033[K"


# --- the document


def test_the_commands_of_the_document_work(capsys, write):
    page = (ROOT / "docs" / "validate.md").read_text()
    found_blocks = re.findall(r"^```sh\n(fabric-exporter .*?)^```$", page, re.MULTILINE | re.DOTALL)
    blocks = [shlex.split(block) for block in found_blocks]
    assert len(blocks) == 3
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    Path("nodes").mkdir()
    Path("pairs").mkdir()
    Path("latency").mkdir()
    nodes = [write(f"nodes/gpu-{n:03}.txt", nccl_table([f"gpu-{n:03}"], SLOW if n == 3 else FINE)) for n in range(1, 6)]
    pairs = [
        write(f"pairs/{n}.txt", nccl_table([f"gpu-{n:03}", f"gpu-{n + 1:03}"], {8 * GIB: 441.0})) for n in range(1, 6)
    ]
    latency = [write(f"latency/{n}.txt", latency_table((n, n + 1), 0.95)) for n in range(1, 6)]
    given = {"nodes/*.txt": nodes, "pairs/*.txt": pairs, "latency/*.txt": latency}
    for block, status in zip(blocks, (1, 0, 0), strict=True):
        assert block[:2] == ["fabric-exporter", "validate"]
        words = [name for word in block[2:] for name in given.get(word, [word])]
        out = validated(capsys, *words, status=status).out
        if block is blocks[0]:
            assert out == shown
    assert Path("baseline.json").exists()


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=" ".join)
@pytest.mark.parametrize(("mark", "status"), [("1MB/s", 0), ("900GB/s", 1)], ids=["good", "slow"])
def test_a_reader_that_ended_changes_no_exit_status(write, mark, status, flags):
    """As `validate | head -1`."""
    names = [write(f"n{number}.txt", nccl_table([f"gpu-{number}"], FINE)) for number in range(3)]
    done = without_reader("validate", *names, "--mark", mark, *flags)
    assert (done.returncode, done.stderr) == (status, "")
