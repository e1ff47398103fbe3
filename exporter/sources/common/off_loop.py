"""One blocking call of a source, in its thread."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from exporter.core.blocking import BlockingCalls, HungError
from exporter.core.source import SourceError

Result = TypeVar("Result")


async def off_loop(calls: BlockingCalls, call: Callable[[], Result]) -> Result:
    """Run one call in the thread.

    Raises:
        SourceError: It timed out, or failed.
    """
    result = (await calls.run([("call", partial(_boxed, call))]))["call"]
    if isinstance(result, HungError):
        raise SourceError("timeout", str(result))
    if isinstance(result, Exception):
        raise SourceError("unreadable", str(result))
    return result[0]


def _boxed(call: Callable[[], Result]) -> tuple[Result]:
    """Wrap a result, so that it can be distinguished from an exception."""
    return (call(),)
