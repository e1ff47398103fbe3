"""Closing of several objects: an error of one is logged, and keeps none of the others open."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable

logger = logging.getLogger(__name__)


async def close_all(owner: str, closing: Iterable[Awaitable[object]]) -> None:
    """Await all, and log each error with its traceback.

    Args:
        owner: Owner of the objects, for the log.
        closing: Such as coroutines of `close`, or tasks that were cancelled.
    """
    for error in await asyncio.gather(*closing, return_exceptions=True):
        if isinstance(error, Exception):
            logger.error("%s: error while closing", owner, exc_info=error)
