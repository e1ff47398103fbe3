"""Switches by eAPI whose release or hardware has not the usual command: what tells the same is asked in its place.

Answers are synthetic, in the shapes of recordings and of programs that read them.
"""

import pytest

from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.readers import command_reader
from exporter.sources.switch.readers.eapi import (
    DROPS,
    DROPS_AS_TEXT,
    DROPS_VIRTUAL,
    INTERFACES,
    MODULES_COMMAND,
    MODULES_FLAT,
    PFC,
    PFC_DETAIL,
    VERSION,
)
from tests.simulators.eapi import EapiSwitch
from tests.sources.switch.test_eapi import (
    PASSWORD,
    answers,
    rows,
    started,
)

VIRTUAL = {
    "interfaces": {
        "Ethernet1/1": {
            "trafficClasses": {
                "TC3": {
                    "ingressVoqCounters": {"countersSum": {"droppedPackets": 40}},
                    "egressQueueCounters": {"countersSum": {"droppedPackets": 2}},
                }
            }
        }
    }
}
TEXT = "Port      InDropPkts  OutUcDropPkts  OutMcDropPkts\nEt1/1              9             70              7\n"


def model(*, without=(), **more):
    told = {command: answer for command, answer in answers().items() if command not in without}
    return EapiSwitch(answers=told | more.pop("answers", {}), password=PASSWORD, **more)


async def test_drops_of_virtual_output_queues(stopped_clock):
    clock = stopped_clock(command_reader)
    switch = model(without=[DROPS], answers={DROPS_VIRTUAL: VIRTUAL})
    async with started(switch) as reader:
        for _ in range(2):
            harvest = await reader.read()
            assert harvest.failures == []
            assert rows(harvest)["queue", "Ethernet1/1", "3"] == {"queue_full_discards_total": 42}
            assert rows(harvest)["Ethernet1/1",]["congestion_discards_total"] == 42
            assert harvest.families[Family.QUEUES] is Support.COUNTED
            clock.now += 15
            asked = [command for request in switch.requests for command in request]
            switch.requests.clear()
    assert DROPS not in asked, "what is not known rests"
    assert (asked.count(DROPS_VIRTUAL), asked.count(DROPS_AS_TEXT)) == (1, 0)


async def test_drops_that_there_are_only_as_text():
    switch = model(without=[DROPS], texts={DROPS_AS_TEXT: TEXT})
    switch.faults.errors[DROPS] = (1003, "unconverted command", ["This is an unconverted command"])
    async with started(switch) as reader:
        harvest = await reader.read()
    assert harvest.failures == []
    found = rows(harvest)
    assert found["Ethernet1/1",]["congestion_discards_total"] == 77
    assert "congestion_discards_total" not in found["Ethernet2/1",], "the text has no line of it"
    assert not any("queue_full_discards_total" in row for row in found.values())
    assert harvest.families[Family.QUEUES] is Support.COUNTED


async def test_drops_that_there_are_in_no_form():
    async with started(model(without=[DROPS])) as reader:
        harvest = await reader.read()
    assert harvest.failures == []
    assert harvest.families[Family.QUEUES] is Support.UNSUPPORTED
    assert "congestion_discards_total" not in rows(harvest)["Ethernet1/1",]


async def test_a_command_that_fails_has_no_other_in_its_place():
    switch = model(answers={DROPS_VIRTUAL: VIRTUAL})
    switch.faults.errors[DROPS] = (1001, "internal error", ["the agent is not running"])
    async with started(switch) as reader:
        harvest = await reader.read()
    assert harvest.families[Family.QUEUES] is Support.FAILED
    assert [failure.device for failure in harvest.failures] == [DROPS]
    assert [DROPS_VIRTUAL] not in switch.requests


@pytest.mark.parametrize("known", [True, False])
async def test_modules_with_all_lanes_or_with_one(known):
    channels = {"1": -3.0, "2": -30.0, "3": -45.0}
    parameters = {"rxPower": {"unit": "dBm", "channels": channels}, "temperature": {"channels": {"-": 40.5}}}
    all_lanes = {"interfaces": {"Ethernet1/1": {"parameters": parameters}}}
    flat = {"interfaces": {"Ethernet1/1": {"rxPower": -3.0, "temperature": 40.5}}}
    switch = model(
        without=[MODULES_COMMAND], answers={MODULES_FLAT: flat} | ({MODULES_COMMAND: all_lanes} if known else {})
    )
    async with started(switch, optics=True) as reader:
        harvest = await reader.read()
    found = rows(harvest)
    power = {key[2]: row["module_lane_receive_power_watts"] for key, row in found.items() if key[0] == "lane"}
    assert power.keys() == ({"1", "2", "3"} if known else {"1"})
    assert power["1"] == pytest.approx(0.000501, rel=1e-2)
    assert power.get("3", 0.0) == 0.0, "dark"
    assert found["Ethernet1/1",]["module_temperature_celsius"] == 40.5
    assert harvest.families[Family.OPTICS] is Support.COUNTED
    assert harvest.failures == []


async def test_pfc_by_priority_as_programs_read_it():
    by_priority = {"3": {"rxFrames": 11, "txFrames": 12}}
    switch = model(answers={PFC_DETAIL: {"interfaces": {"Ethernet1/1": {"priorities": by_priority}}}})
    async with started(switch) as reader:
        harvest = await reader.read()
    found = rows(harvest)
    assert harvest.failures == []
    assert found["priority", "Ethernet1/1", "3"] == {"receive_pfc_frames_total": 11, "transmit_pfc_frames_total": 12}
    assert "receive_pfc_all_priorities_frames_total" not in found["Ethernet1/1",]


async def test_the_switchs_own_identity_in_lldp():
    told = {**answers()[VERSION], "systemMacAddress": "444c.a8cd.337e"}
    async with started(model(answers={VERSION: told})) as reader:
        harvest = await reader.read()
        assert harvest.device.chassis == "44:4c:a8:cd:33:7e"


async def test_a_malformed_port_costs_itself_and_is_told():
    switch = model()
    switch.answers[INTERFACES]["interfaces"]["Ethernet2/1"] = "malformed"
    switch.answers[PFC] = {"interfaceCounters": {"Ethernet1/1": {"rxFrames": -1, "txFrames": 32}}}
    async with started(switch) as reader:
        harvest = await reader.read()
    found = rows(harvest)
    assert ("Ethernet2/1",) not in found
    assert "receive_pfc_all_priorities_frames_total" not in found["Ethernet1/1",]
    assert found["Ethernet1/1",]["transmit_pfc_all_priorities_frames_total"] == 32
    assert {(one.device, one.reason) for one in harvest.failures} == {(INTERFACES, "malformed"), (PFC, "malformed")}


async def test_after_an_upgrade_the_usual_command_is_enough_again(stopped_clock):
    clock = stopped_clock(command_reader)
    switch = model(without=[DROPS], texts={DROPS_AS_TEXT: TEXT})
    async with started(switch) as reader:
        await reader.read()
        switch.answers[DROPS] = answers()[DROPS]
        clock.now += command_reader.REST
        switch.requests.clear()
        found = rows(await reader.read())
    assert found["Ethernet1/1",]["congestion_discards_total"] == 9
    assert not {DROPS_VIRTUAL, DROPS_AS_TEXT} & {command for request in switch.requests for command in request}
