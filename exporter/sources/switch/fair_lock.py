"""A fair lock for CPU-bound work: of many switches whose responses are complete at once, one per loop iteration.

Processing a poll takes milliseconds. Many of them in one iteration of the event loop would delay everything else: a
scrape, a trap, the responses of other switches.
"""

import asyncio


class FairLock:
    """The lock of all switches that are polled by one event loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def yield_to_loop(self) -> None:
        """Yield to the event loop; of several callers, one continues per iteration, in the order of their calls."""
        async with self._lock:
            await asyncio.sleep(0)
