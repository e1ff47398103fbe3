"""Of many polls that are complete at once, one computes per iteration of the event loop."""

import asyncio

from exporter.sources.switch.fair_lock import FairLock
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.source import make_source
from exporter.sources.switch.targets import builtin_profiles


async def test_one_caller_continues_per_loop_iteration():
    loop, lock = asyncio.get_running_loop(), FairLock()
    passed = 0
    ongoing = True

    def count():
        nonlocal passed
        passed += 1
        if ongoing:
            loop.call_soon(count)

    async def compute():
        await lock.yield_to_loop()
        return passed

    count()
    turns = await asyncio.gather(*(compute() for _ in range(20)))
    ongoing = False
    assert len(set(turns)) == 20
    assert turns == sorted(turns), "in the order of the calls"


async def test_a_cancelled_caller_does_not_block_others():
    lock = FairLock()
    waiting = [asyncio.create_task(lock.yield_to_loop()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    async with asyncio.timeout(10):
        await waiting[2]
    await asyncio.gather(*waiting, return_exceptions=True)


def test_polls_of_all_switches_of_a_registry_share_the_lock_and_the_keys_of_passwords():
    registry = SwitchRegistry()
    first, second = (
        make_source(Target(name=name, address="192.0.2.1", snmp=Snmp(community="public")), registry, builtin_profiles)
        for name in ("a", "b")
    )
    assert first._registry is second._registry
    assert {id(one._readers[0]._shared) for one in (first, second)} == {id(first._registry.shared)}
