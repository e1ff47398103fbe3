"""The client of eAPI: a batch that fails loses no result, and the error is that of the right command."""

import json

import pytest

from exporter.outputs.http_server import Application
from exporter.outputs.reply import text
from exporter.simulator.web_server import WebServer
from exporter.switch_api.eapi.client import EapiClient
from exporter.switch_api.errors import InvalidResponseError, UnsupportedError
from tests.simulators.eapi import EapiSimulator, EapiSwitch
from tests.simulators.web import json_reply

PASSWORD = "tr0ub4dor-and-3"
GOOD, BAD = {"fine": 1}, "show b"
COMMANDS = ["show a", BAD, "show c"]


class FailingSwitch(Application):
    """A switch on which one command fails, with an error of variable structure.

    Attributes:
        make_error: Called with the results before the failed command, its number from 1 on and the number of commands.
    """

    max_body = 1 << 16

    def __init__(self, make_error):
        self.make_error = make_error
        self.calls = []

    async def answer(self, request):
        call = json.loads(request.body)
        self.calls.append(call["params"])
        commands = [one["cmd"] for one in call["params"]["cmds"]]
        answer = {"result": [GOOD for _ in commands]}
        if BAD in commands:
            before = commands.index(BAD)
            answer = {"error": self.make_error([GOOD] * before, before + 1, len(commands))}
        return json_reply({"jsonrpc": "2.0", "id": call["id"], **answer})


def usual_error(results, number, count):
    message = f"CLI command {number} of {count} 'show b' failed: invalid command"
    return {"code": 1002, "message": message, "data": [*results, {"errors": ["Invalid input"]}]}


def without_its_own_entry(results, number, count):
    return usual_error(results, number, count) | {"data": results}


def without_its_number(results, number, count):
    return usual_error(results, number, count) | {"message": "failed: invalid command"}


def without_data(results, number, count):
    return {"code": 1002, "message": f"CLI command {number} of {count} 'show b' failed: invalid command"}


def without_anything(results, number, count):
    return {"code": 1002, "message": "invalid command"}


def with_an_impossible_number(results, number, count):
    return {"code": 1002, "message": "CLI command 77 of 3 failed: invalid command", "data": results}


@pytest.mark.parametrize(
    ("make_error", "requests"),
    [
        (usual_error, 2),
        (without_its_own_entry, 2),
        (without_its_number, 2),
        (without_data, 4),
        (without_anything, 4),
        (with_an_impossible_number, 4),
    ],
)
async def test_the_error_is_that_of_the_command_that_failed(make_error, requests):
    switch = FailingSwitch(make_error)
    async with WebServer(switch) as server:
        client = EapiClient(server.url, "monitor", PASSWORD)
        first, second, third = await client.show(COMMANDS)
        await client.close()
    assert (first, third) == (GOOD, GOOD)
    assert isinstance(second, UnsupportedError)
    assert second.command == BAD
    assert len(switch.calls) == requests


async def test_commands_are_sent_with_their_revisions():
    switch = FailingSwitch(usual_error)
    async with WebServer(switch) as server:
        client = EapiClient(server.url, "monitor", PASSWORD)
        await client.show(["show interfaces", "show priority-flow-control counters"])
        await client.close()
    (call,) = switch.calls
    assert call["format"] == "json"
    assert call["cmds"] == [
        {"cmd": "show interfaces", "revision": 1},
        {"cmd": "show priority-flow-control counters", "revision": 3},
    ]


async def test_text_commands_are_sent_in_a_separate_request():
    queue = "show interfaces counters queue"
    switch = EapiSwitch(answers={"show a": 1, "show c": 3}, texts={queue: "Port  1\n"}, password=PASSWORD)
    async with EapiSimulator(switch) as simulator:
        client = EapiClient(simulator.url, "monitor", PASSWORD)
        assert await client.show(["show a", queue, "show c"]) == [1, {"output": "Port  1\n"}, 3]
        switch.texts.clear()
        first, unknown = await client.show(["show a", queue])
        await client.close()
    assert first == 1
    assert isinstance(unknown, UnsupportedError)
    assert switch.requests == [["show a"], [queue], ["show c"], ["show a"], [queue]]


async def test_fewer_results_than_commands_are_an_error():
    class Short(FailingSwitch):
        async def answer(self, request):
            return json_reply({"jsonrpc": "2.0", "id": 1, "result": [GOOD]})

    async with WebServer(Short(usual_error)) as server:
        client = EapiClient(server.url, "monitor", PASSWORD)
        with pytest.raises(InvalidResponseError, match="neither results nor an error"):
            await client.show(["show a", "show c"])
        await client.close()


async def test_another_web_server():
    class Other(FailingSwitch):
        async def answer(self, request):
            return text(404, "not found")

    async with WebServer(Other(usual_error)) as server:
        client = EapiClient(server.url, "monitor", PASSWORD)
        with pytest.raises(InvalidResponseError, match="management api http-commands"):
            await client.show(["show a"])
        await client.close()
