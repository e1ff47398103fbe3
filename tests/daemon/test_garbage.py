"""The garbage collector of a daemon: it still frees cycles, and runs less often than by default."""

import gc
import subprocess
import sys

COLLECTIONS = """
import gc, sys
from exporter.daemon import runtime
if sys.argv[1] == "daemon":
    runtime.spend_less_on_garbage()
before = sum(one["collections"] for one in gc.get_stats())
kept = [(number,) for number in range(100_000)]
print(sum(one["collections"] for one in gc.get_stats()) - before)
for _ in range(50_000):
    cycle = []
    cycle.append(cycle)
del cycle
print(sum(1 for one in gc.get_objects() if isinstance(one, list) and one[:1] == [one]))
"""


def run(what):
    done = subprocess.run([sys.executable, "-c", COLLECTIONS, what], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_a_daemon_collects_garbage_less_often_than_python_does_and_still_frees_cycles():
    (by_default, _), (collections, left) = run("python"), run("daemon")
    assert 0 < collections * 5 < by_default
    assert left <= 10_000
    assert gc.isenabled()
