"""An SNMP agent that serves the recording of a switch: `fabric-exporter replay FILE`."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from exporter.config.errors import UserError
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp import recording as snmp_recording

MAX_REPORTED_LINES: Final = 5
"""Unreadable lines of a recording that are reported one by one; the others are counted."""


async def replay(
    path: Path, host: str, port: int, *, community: str = "public", report: Callable[[str], None] = print
) -> None:
    """Serve a recording until cancelled; its values do not change.

    Args:
        path: The recording, see `snmp_recording`.
        host: Address to listen on.
        port: UDP port to listen on; 0 for a free one.
        community: The accepted community.
        report: Called with each line of output.

    Raises:
        UserError: The recording cannot be read or has no row, or the address cannot be listened on.
    """
    try:
        recording = await asyncio.to_thread(snmp_recording.load, path)
    except OSError as error:
        raise UserError(f"{path}: the recording cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # it is too large
        raise UserError(str(error)) from None
    problems = recording.problems
    for problem in problems[:MAX_REPORTED_LINES]:
        report(f"{path}: {problem}")
    if len(problems) > MAX_REPORTED_LINES:
        report(f"{path}: {len(problems) - MAX_REPORTED_LINES} more lines could not be read")
    if not recording.rows:
        raise UserError(f"{path}: contains no row; a recording has lines of OID|TAG|VALUE")
    async with SnmpAgent(recording.rows, community=community) as agent:
        try:
            address, chosen = await agent.start(host, port)
        except (OSError, UnicodeError) as error:
            reason = "the host name is malformed" if isinstance(error, UnicodeError) else error.strerror or error
            raise UserError(f"{host}:{port}: cannot be listened on: {reason}; choose another --listen") from None
        report(f"{len(recording.rows)} rows at {address}:{chosen}, SNMP v2c")
        await asyncio.Event().wait()
