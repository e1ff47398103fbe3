"""Resources that calls in threads are using when their source ends."""

import errno

import pytest

from exporter.sources.common.in_use import InUse


def test_resource_in_use_at_the_end_is_closed_by_its_call():
    closed, things = [], InUse()
    with things.use("idle", closed.append):
        pass
    with things.use("busy", closed.append):
        assert things.end(["idle", "busy"]) == ["idle"]
        assert closed == []
    assert closed == ["busy"]
    with pytest.raises(OSError, match="has ended") as caught, things.use("late", closed.append):
        pass
    assert caught.value.errno == errno.ECANCELED
    assert closed == ["busy"]


def test_failing_call_closes_its_resource_after_the_end():
    closed, things = [], InUse()
    with pytest.raises(ZeroDivisionError), things.use("busy", closed.append):
        1 / len(things.end([]))
    assert closed == ["busy"]
