"""A baseline as a file of nccl-tests: JSON documents as of -J, one for each collective, which `nccl_tests` reads.

Of such a document it has the size and the bandwidth of each result. It lists no devices, since its values are of no run
of its own.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from exporter.core.collectives import bus_factor
from exporter.nccl.nccl_tests import REDUCING, Baseline

VERSION = 3
"""JSON_FILE_VERSION of nccl-tests."""


def baseline_json(values: Mapping[tuple[str, int], Baseline]) -> bytes:
    """Return the documents of a baseline by kind and size in bytes, one after the other.

    Kinds without a known number of ranks are left out: without it there is no algorithm bandwidth.
    """
    kinds = sorted({kind for kind, _ in values})
    documents = (_document(kind, _results(kind, values)) for kind in kinds)
    return b"".join(msgspec.json.format(msgspec.json.encode(one), indent=1) + b"\n" for one in documents)


def _document(kind: str, results: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "description": "medians of several runs, written by fabric-exporter validate --baseline",
        "args": [f"{kind}_perf"],
        "results": list(results),
        "out_of_bounds": {"count": 0},
    }


def _results(kind: str, values: Mapping[tuple[str, int], Baseline]) -> Iterator[dict[str, Any]]:
    for (name, size), one in sorted(values.items()):
        factor = bus_factor(kind, one.n_ranks) if one.n_ranks else None
        if name == kind and factor:
            algorithm = one.bus_bandwidth / factor
            yield {
                "size": size,
                "count": 0,
                "redop": "sum" if kind in REDUCING else "none",
                "out_of_place": {
                    "time": size / algorithm * 1e6,
                    "alg_bw": algorithm / 1e9,
                    "bus_bw": one.bus_bandwidth / 1e9,
                    "nwrong": 0,
                },
            }
