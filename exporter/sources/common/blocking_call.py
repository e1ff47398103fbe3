"""One blocking call that a source makes in a thread, and whose failure is that of the whole source."""

from collections.abc import Callable
from typing import TypeVar

from exporter.core.blocking import BlockingCalls, HungError
from exporter.core.source import SourceError

Result = TypeVar("Result")


async def make_call(serial: BlockingCalls, name: str, call: Callable[[], Result], what: str = "") -> Result:
    """Make one call in the thread, and return its result.

    Args:
        serial: Makes it.
        name: Name of the call, see `BlockingCalls.run`.
        call: The call.
        what: The interface that is queried, for the log, if the call's error does not name it.

    Raises:
        SourceError: It hangs, or failed.
    """
    result = (await serial.run([(name, call)]))[name]
    if isinstance(result, Exception):
        raise call_error(result, what)
    return result


def call_error(error: object, what: str = "") -> SourceError:
    """Return the error of a source whose call did not succeed; `error` is the result of that call."""
    reason = "timeout" if isinstance(error, HungError) else "unreadable"
    return SourceError(reason, f"{what}: {error}" if what else str(error))
