"""One blocking call of a source: its result, or the error of the whole source."""

import pytest

from exporter.core.blocking import BlockingCalls, HungError
from exporter.core.source import SourceError
from exporter.sources.common.blocking_call import call_error, make_call


async def test_an_error_names_what_was_queried():
    serial = BlockingCalls("test", 60.0)

    def refuse():
        raise OSError(1, "Operation not permitted")

    try:
        assert await make_call(serial, "/", lambda: [1]) == [1]
        with pytest.raises(SourceError, match=r"^rtnetlink: .*not permitted") as caught:
            await make_call(serial, "/", refuse, "rtnetlink")
    finally:
        serial.close()
    assert caught.value.reason == "unreadable"


def test_a_call_that_hangs_is_a_timeout():
    hung = call_error(HungError("/: no answer within 2 s"))
    assert (hung.reason, str(hung)) == ("timeout", "/: no answer within 2 s")
