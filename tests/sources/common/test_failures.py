"""What goes wrong with one device or file: the reason that becomes a label, and what the log says of it."""

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
def test_a_failure_has_a_reason_and_says_where(error, reason, detail):
    assert failure_of("eth2", error, "/a") == Failure("eth2", reason, detail)


def test_without_a_place_the_error_speaks_for_itself():
    assert failure_of("", ValueError("no number")).detail == "no number"
