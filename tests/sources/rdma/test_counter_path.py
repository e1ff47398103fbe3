"""The way of one RDMA counter, from its file to the page of metrics: which modules it passes, and that they are few."""

import dataclasses
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import exporter
from exporter.core.poller import Poller
from exporter.core.source import Reading
from exporter.core.table import Table
from exporter.meaning.ports import rates
from exporter.outputs.text import Renderer
from exporter.sources.rdma.counter_files import PMA
from tests.helpers.rdma_trees import make, opened, port_file

PACKAGE = Path(exporter.__file__).parent

DECLARED_IN = "sources/rdma/counter_files.py"
"""Declares the file of a counter, its metric, width and unit."""

PATH = [
    "linux/cached_file.py",  # reads and parses the file
    "sources/rdma/counters.py",  # the counters of a port
    "sources/rdma/device.py",  # the ports of a device
    "sources/rdma/source.py",  # the devices of a host
    "sources/rdma/tables.py",  # columns and rows
    "core/poller.py",  # reads the source at its interval
    "meaning/ports/rates.py",  # rates
    "meaning/ports/counters.py",  # bytes, wraps and resets
    "outputs/text.py",  # prints
]
"""The modules that a value passes, in this order."""

CARRIERS = {"core/blocking.py", "core/table.py"}
"""Modules that hold the result of any call, or any table, and do not read the value: the thread, and the container."""

FIRST, SECOND = 123_456_789_012, 223_456_789_012
"""Words of four octets; no other number of a test is the same."""


def contains(thing, needles, depth=0):
    """Return whether a value is among the contents of a thing: of containers, tables and readings only."""
    if isinstance(thing, int | bytes | str):
        return type(thing) is not bool and thing in needles
    if depth > 12:
        return False
    if isinstance(thing, dict):
        thing = thing.values()
    elif isinstance(thing, Table | Reading):
        thing = [getattr(thing, one.name) for one in dataclasses.fields(thing)]
    elif not isinstance(thing, list | tuple):
        return False
    return any(contains(one, needles, depth + 1) for one in thing)


@contextmanager
def modules_touching(*values):
    """Yield a list of the modules, in order, whose functions have one of the values as a variable or result."""
    texts = [f"{value}\n".encode() for value in values]
    needles = {*values, *(4 * value for value in values), *texts}
    touched = []

    def profile(frame, event, result):
        if event not in {"call", "return"} or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        module = str(Path(frame.f_code.co_filename).relative_to(PACKAGE))
        if module not in touched and (
            contains(frame.f_locals, needles) or (event == "return" and contains(result, needles))
        ):
            touched.append(module)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield touched
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def test_a_counter_passes_at_most_nine_modules_from_its_file_to_the_page(tmp_path):
    make(tmp_path, "mlx5_0", pma={"port_rcv_data": FIRST}, driver="mlx5_core")
    pages = []
    async with opened(tmp_path) as source:
        poller = Poller(source, [rates.step])
        with modules_touching(FIRST, SECOND) as touched:
            for value in (FIRST, SECOND):  # the second is read from the open file
                port_file(tmp_path, "mlx5_0", "counters/port_rcv_data").write_text(f"{value}\n")
                await poller.poll()
                pages.append(b"".join(Renderer(openmetrics=False).render(poller.fresh_tables())).decode())
    for value, page in zip((FIRST, SECOND), pages, strict=True):
        assert f'fabric_rdma_receive_bytes_total{{device="mlx5_0",port="1"}} {4 * value}\n' in page
    assert [module for module in touched if module not in CARRIERS] == PATH
    assert len(PATH) <= 9


def test_the_file_of_the_counter_is_declared_in_one_place():
    (declared,) = [one for one in PMA if one.files == ("counters/port_rcv_data",)]
    assert (declared.spec.ending, declared.spec.factor) == ("receive_bytes_total", 4)
    naming = {
        str(path.relative_to(PACKAGE))
        for path in (PACKAGE / "sources" / "rdma").rglob("*.py")
        if '"port_rcv_data"' in path.read_text()
    }
    assert naming == {DECLARED_IN}


def test_the_search_for_a_value_looks_into_containers():
    assert contains([{"a": (FIRST,)}], {FIRST})
    assert not contains([{"a": (FIRST, True, None)}], {SECOND, 1})
