"""Who may compute next: of many switches whose answers are complete at once, one at a time, and the loop in between.

What a poll came to takes milliseconds. Done one after the other in one turn of the loop, those of many switches would
keep everything else waiting: a scrape, a trap, the answers of other switches.
"""

import asyncio
from weakref import WeakKeyDictionary

_LOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def turn() -> None:
    """Wait until nobody else computes in this turn of the loop; without others, that is the next one."""
    lock = _LOCKS.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with lock:
        await asyncio.sleep(0)
