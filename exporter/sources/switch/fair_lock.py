"""A fair lock for CPU-bound work: of many switches whose responses are complete at once, one per loop iteration.

Processing a poll takes milliseconds. Many of them in one iteration of the event loop would delay everything else: a
scrape, a trap, the responses of other switches.
"""

import asyncio
from weakref import WeakKeyDictionary

_LOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def yield_to_loop() -> None:
    """Yield to the event loop; of several callers, one continues per iteration, in the order of their calls."""
    lock = _LOCKS.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with lock:
        await asyncio.sleep(0)
