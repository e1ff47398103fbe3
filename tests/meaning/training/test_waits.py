"""Who waits for whom in a job that hangs, by numbers of collectives begun and ended, given by hand."""

import pytest

from exporter.meaning.training.alignment import Collectives
from exporter.meaning.training.records import Stream, Timing
from exporter.meaning.training.waits import Hang, find_hang

BEGIN = 1000.0


class Reports:
    """Ranks of hosts of four that report what they began and ended, each second, as long as nothing is lost."""

    def __init__(self):
        self.known, self.counts, self.groups, self.silent = Collectives(), {}, {}, set()
        self.now = BEGIN

    def group(self, name, members, kind="AllReduce", done=10):
        """Add a communicator whose members have begun and ended the same number of collectives."""
        self.groups[name] = tuple(members)
        for rank in members:
            self.counts[name, kind, rank] = [done, done]

    def begin(self, name, ranks, kind="AllReduce", number=1):
        for rank in ranks:
            self.counts.setdefault((name, kind, rank), [0, 0])[0] += number

    def end(self, name, ranks, kind="AllReduce"):
        for rank in ranks:
            self.counts[name, kind, rank][1] += 1

    def wait(self, seconds, step=5.0, pause=0.0, doing=None):
        """Report for some seconds; return what is found, without repetitions."""
        found = []
        until = self.now + seconds
        while self.now < until:
            if doing is not None:
                doing()
            for (name, kind, rank), (begun, ended) in self.counts.items():
                if rank not in self.silent:
                    size = len(self.groups[name])
                    stream = Stream("j", name, kind, str(rank), size, 2, f"h{rank // 4}", size)
                    self.known.add(stream, (), self.now, (begun, ended))
            hang = find_hang(self.known.jobs["j"], pause, self.now)
            found += [hang] if hang not in found[-1:] else []
            self.now += step
        return found


def test_all_began_and_nothing_ends_is_a_hang_of_that_communicator_and_of_no_rank():
    reports = Reports()
    reports.group("all", range(8))
    reports.begin("all", range(8))
    assert reports.wait(120) == [None]
    assert reports.wait(10) == [Hang((), ("all",))]


def test_a_communicator_that_is_idle_does_not_hang():
    reports = Reports()
    reports.group("all", range(8))
    assert reports.wait(1000) == [None]


def test_collectives_that_ended_on_one_rank_are_not_waited_in():
    """The others have not checked."""
    reports = Reports()
    reports.group("all", range(8))
    reports.begin("all", range(8))
    reports.end("all", [3])
    assert reports.wait(1000) == [None]


def parts():
    """Two parts of a job, the second of which goes on."""
    reports = Reports()
    reports.group("a", range(4))
    reports.group("b", range(4, 8))

    def doing():
        reports.begin("b", range(4, 8))
        reports.end("b", range(4, 8))

    return reports, doing


def test_a_part_of_a_job_hangs_while_another_goes_on():
    reports, doing = parts()
    reports.begin("a", (0, 1, 3))
    assert reports.wait(200, doing=doing) == [None, Hang(("2",))]
    reports, doing = parts()
    reports.begin("a", range(4))
    assert reports.wait(200, doing=doing) == [None, Hang((), ("a",))]


def test_a_part_that_pauses_does_not_hang():
    reports, doing = parts()
    assert reports.wait(1000, doing=doing) == [None]


@pytest.mark.parametrize("working", [(4, 5), (4, 0)], ids=["those waited for", "one that waits, in the background"])
def test_ranks_that_wait_for_one_that_works_do_not_hang(working):
    """Actors wait for the parameters of learners; one rank evaluates; a checkpoint is written in the background."""
    reports = Reports()
    reports.group("all", range(6))
    reports.group("own", working)
    reports.begin("all", range(4))

    def doing():
        reports.begin("own", working)
        reports.end("own", working)

    assert reports.wait(1000, doing=doing) == [None]
    assert reports.wait(200)[-1] == Hang(
        (
            "4",
            "5",
        )
    )  # it stopped


def test_a_pause_is_no_longer_than_the_longest_so_far_and_two_minutes():
    reports = Reports()
    reports.group("all", range(8))
    reports.wait(5)
    for at in (0.0, 60.0):  # times of an operation of all ranks
        for rank in range(8):
            stream = Stream("j", "all", "AllReduce", str(rank), 8, 2, f"h{rank // 4}", 8)
            reports.known.add(stream, [Timing(int(at), 1 << 20, 1000.0)], reports.now + at)
        reports.known.settle(reports.now + at)
    reports.now += 60
    reports.begin("all", range(7))
    assert reports.wait(180) == [None]
    assert reports.wait(10) == [Hang(("7",))]


def test_a_rank_whose_reports_were_lost_is_unknown_and_no_rank_is_named():
    reports = Reports()
    reports.group("all", range(8))
    reports.counts["all", "AllReduce", 5] = [9, 9]  # the tenth ended on the others
    reports.begin("all", (0, 1, 2, 3, 4, 6, 7))
    assert reports.wait(200) == [None, Hang()]


def test_a_rank_of_a_host_of_which_nothing_arrives_is_not_named():
    reports = Reports()
    reports.group("all", range(8))
    reports.wait(5)
    reports.begin("all", (0, 1, 2, 3, 4))
    reports.silent = {5, 6, 7}
    assert reports.wait(200) == [
        None,
        Hang(
            (
                "5",
                "6",
                "7",
            )
        ),
    ]  # rank 4 of their host reports
    reports.silent = {4, 5, 6, 7}
    assert reports.wait(200)[-1] == Hang()


def test_a_gap_in_the_reports_does_not_restart_the_wait():
    reports = Reports()
    reports.group("all", range(8))
    reports.begin("all", range(7))
    reports.wait(60)
    reports.now += 55  # nothing arrives
    assert reports.wait(20) == [None, Hang(("7",))]


def test_a_rank_without_fresh_reports_that_waited_is_not_named():
    """It waits in another group, as far as is known, while others wait for it."""
    reports = Reports()
    reports.group("tensor", range(4))
    reports.group("data", (0, 4))
    reports.begin("tensor", (0, 1, 2))
    reports.begin("data", [4])
    reports.wait(100)
    reports.silent = {0}
    assert reports.wait(200) == [None, Hang(("3",))]


def pipeline(kinds):
    """Rank 1 of stage 0 (0 to 3) stops; stage 1 (4 to 7) waits for it; so does another replica (8 to 15)."""
    reports = Reports()
    for stage in range(4):
        reports.group(f"tensor {stage}", range(4 * stage, 4 * stage + 4))
    for rank in range(8):
        reports.group(f"data {rank}", (rank, rank + 8))
        if "SendRecv" in kinds:
            reports.group(f"pair {rank}", (rank % 4, rank % 4 + 4), "SendRecv")
    reports.begin("tensor 0", (0, 2, 3))
    for rank in range(8):
        reports.begin(f"data {rank}", [rank + 8])
    if "SendRecv" in kinds:
        for rank in range(4, 8):
            reports.begin(f"pair {rank}", [rank], "SendRecv")
    return reports


def test_a_stage_that_waits_for_another_is_not_named():
    reports = pipeline({"SendRecv"})
    assert reports.wait(200) == [None, Hang(("1",))]


def test_in_a_pipeline_whose_sends_are_not_reported_no_rank_is_named():
    reports = pipeline(set())
    assert reports.wait(200) == [None, Hang()]


def test_a_pipeline_in_which_all_wait_for_another_stage_hangs():
    reports = Reports()
    reports.group("all", range(4))
    reports.wait(5)
    for rank in range(3):
        reports.group(f"pair {rank}", (rank, rank + 1), "SendRecv")
        reports.begin(f"pair {rank}", (rank, rank + 1), "SendRecv")
    assert reports.wait(200, pause=20.0) == [None, Hang()]


def test_a_few_ranks_that_do_more_than_the_others_do_not_hang():
    reports = Reports()
    reports.group("all", range(8))
    reports.begin("all", [5])
    assert reports.wait(500) == [None]


def test_processes_that_are_ahead_of_their_gpus_by_different_numbers_name_no_rank():
    reports = Reports()
    reports.group("all", range(8))
    reports.begin("all", range(8))
    reports.begin("all", (0, 2, 4, 6, 7), number=2)
    assert reports.wait(200) == [None, Hang((), ("all",))]
