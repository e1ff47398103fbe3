"""Files of records by other programs: what is wrong has one error that names its place, the value and the remedy."""

import json

import pytest

from benchmarks.verdicts import Replay, main, read_records
from exporter.meaning.training.verdicts import Verdict

RANKS, STEP, TRANSFER, LATE = 8, 0.5, 0.02, 3


def lines(job="llm", begin=0.0, late=LATE, **more):
    """Return two hundred steps of one AllReduce each; one rank computes 30 % longer."""
    found = []
    for step in range(200):
        end = begin + (step + 1) * (STEP * 1.3 + TRANSFER)
        for rank in range(RANKS):
            took = TRANSFER + (0.0 if rank == late else 0.3 * STEP + 0.001 * ((step + rank) % 3))
            found.append(
                {
                    "arrived": round(end + 0.2, 6),
                    "host": f"gpu-{rank // 4}",
                    "job": job,
                    "communicator": "world",
                    "ranks": RANKS,
                    "nodes": 2,
                    "rank": rank,
                    "kind": "AllReduce",
                    "sequence": step,
                    "bytes": 1 << 26,
                    "microseconds": round(took * 1e6, 1),
                    **more,
                }
            )
    return found


def written(tmp_path, values):
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in values))
    return str(path)


def named(path):
    """Return time, job, verdict and ranks of the last verdict on each job."""
    given = list(Replay().judgements(read_records(path)))
    return {one.job: (one.time, one.judgement.verdict, [rank.rank for rank in one.judgement.ranks]) for one in given}


@pytest.mark.parametrize("begin", [0.0, 1_790_000_000.0], ids=["seconds of the file", "seconds since 1970"])
@pytest.mark.parametrize("nodes", [2, 0], ids=["nodes", "unknown nodes"])
def test_times_may_begin_anywhere_and_nodes_be_unknown(tmp_path, begin, nodes):
    time, verdict, ranks = named(written(tmp_path, lines(begin=begin, nodes=nodes)))["llm"]
    assert (verdict, ranks) == (Verdict.STRAGGLER, [str(LATE)])
    assert begin < time < begin + 140


def test_jobs_may_use_the_same_names_of_communicators(tmp_path):
    both = sorted(lines() + lines(job="other", late=5, sequence=7), key=lambda one: one["arrived"])
    assert named(written(tmp_path, both))["llm"][1:] == (Verdict.STRAGGLER, [str(LATE)])
    records = list(read_records(written(tmp_path, both)))
    (first, *_) = Replay().tables(records)
    progress = {key[0]: value for key, value in zip(first.rows.keys, first.values("ended"), strict=True)}
    assert progress["other"] == 8
    assert progress["llm"] < 8


WRONG = {
    "no ranks": ({"ranks": 0}, "`$.ranks`"),
    "a negative time": ({"microseconds": -1}, "`$.microseconds`"),
    "a time without end": ({"microseconds": 1e18}, "`$.microseconds`"),
    "a negative number": ({"sequence": -1}, "`$.sequence`"),
    "a number beyond 63 bits": ({"sequence": 1 << 63}, "`$.sequence`"),
    "an empty name": ({"job": ""}, "`$.job`"),
    "a host that is no name": ({"host": "gpu 1"}, "`$.host`"),
    "a text for a number": ({"rank": "3"}, "`$.rank`"),
    "a rank without end": ({"rank": 1 << 40}, "`$.rank`"),
    "too many bytes": ({"bytes": 1 << 60}, "`$.bytes`"),
    "too many bytes of all ranks": ({"kind": "AllGather", "bytes": 1 << 50}, "petabyte"),
    "a negative count": ({"begun": -1, "microseconds": None}, "`$.begun`"),
    "a field that does not exist": ({"gpu": 1}, "`gpu`"),
    "a line before the others": ({"arrived": 1.0}, "sort the lines"),
    "milliseconds": ({"arrived": 5e6}, "times are in seconds"),
    "a time beyond all clocks": ({"arrived": 1e12}, "`$.arrived`"),
}


@pytest.mark.parametrize(("changes", "text"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_is_named(tmp_path, capsys, changes, text):
    records = lines()
    records[100].update(changes)
    path = written(tmp_path, records)
    assert main(["--records", path]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"{path}:101: ")
    assert text in error
    assert error.count("\n") == 1
