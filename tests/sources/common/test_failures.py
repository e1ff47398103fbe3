"""Failures of one device or file: the reason, which becomes a label, and the detail for the log."""

import errno
import os

import pytest

from exporter.core.blocking import HungError
from exporter.core.source import Failure
from exporter.sources.common.failures import failure_of


@pytest.mark.parametrize(
    ("error", "reason", "detail"),
    [
        (HungError("eth2: no answer within 2 s"), "timeout", "eth2: no answer within 2 s"),
        (OSError(errno.EINVAL, os.strerror(errno.EINVAL), "eth2"), "einval", "/a: Invalid argument"),
        (OSError(95, os.strerror(95)), "eopnotsupp", "/a: Operation not supported"),
        (OSError(35, os.strerror(35)), "edeadlk", "/a: Resource deadlock avoided"),
        (OSError(11, os.strerror(11)), "eagain", "/a: Resource temporarily unavailable"),
        (OSError(100_000, "of another kernel"), "oserror", "/a: of another kernel"),
        (ValueError("no number"), "malformed", "/a: no number"),
        (OSError("without a number"), "internal", "/a: OSError: without a number"),
        (KeyError("port"), "internal", "/a: KeyError: 'port'"),
    ],
)
def test_reason_and_detail_of_a_failure(error, reason, detail):
    assert failure_of("eth2", error, "/a") == Failure("eth2", reason, detail)


def test_failure_without_a_place_has_the_error_as_detail():
    assert failure_of("", ValueError("no number")).detail == "no number"
