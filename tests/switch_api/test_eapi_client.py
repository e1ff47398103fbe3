"""The client of eAPI: of a batch that fails no answer is lost, and no command is blamed for another."""

import json

import pytest

from exporter.outputs.http_server import Application
from exporter.outputs.reply import text
from exporter.simulator.rest import WebServer, json_reply
from exporter.switch_api.eapi.client import EapiClient
from exporter.switch_api.http import ReplyError, UnsupportedError
from tests.simulators.eapi import EapiSimulator, EapiSwitch

PASSWORD = "tr0ub4dor-and-3"
GOOD, BAD = {"fine": 1}, "show b"
COMMANDS = ["show a", BAD, "show c"]


class Scripted(Application):
    """A switch on which one command fails, and which says so in a form of its own.

    Attributes:
        form: Takes the results before the one that failed, its place from 1 on and the number of commands; gives the
            error.
    """

    max_body = 1 << 16

    def __init__(self, form):
        self.form = form
        self.calls = []

    async def answer(self, request):
        call = json.loads(request.body)
        self.calls.append(call["params"])
        commands = [one["cmd"] for one in call["params"]["cmds"]]
        answer = {"result": [GOOD for _ in commands]}
        if BAD in commands:
            before = commands.index(BAD)
            answer = {"error": self.form([GOOD] * before, before + 1, len(commands))}
        return json_reply({"jsonrpc": "2.0", "id": call["id"], **answer})


def usual(results, place, count):
    message = f"CLI command {place} of {count} 'show b' failed: invalid command"
    return {"code": 1002, "message": message, "data": [*results, {"errors": ["Invalid input"]}]}


def without_its_own_entry(results, place, count):
    return usual(results, place, count) | {"data": results}


def without_its_number(results, place, count):
    return usual(results, place, count) | {"message": "failed: invalid command"}


def without_data(results, place, count):
    return {"code": 1002, "message": f"CLI command {place} of {count} 'show b' failed: invalid command"}


def without_anything(results, place, count):
    return {"code": 1002, "message": "invalid command"}


def with_a_number_that_cannot_be(results, place, count):
    return {"code": 1002, "message": "CLI command 77 of 3 failed: invalid command", "data": results}


@pytest.mark.parametrize(
    ("form", "requests"),
    [
        (usual, 2),
        (without_its_own_entry, 2),
        (without_its_number, 2),
        (without_data, 4),
        (without_anything, 4),
        (with_a_number_that_cannot_be, 4),
    ],
)
async def test_the_command_that_failed_is_the_one_that_is_blamed(form, requests):
    switch = Scripted(form)
    async with WebServer(switch) as server:
        client = EapiClient(server.url, "monitor", PASSWORD)
        first, second, third = await client.show(COMMANDS)
        await client.close()
    assert (first, third) == (GOOD, GOOD)
    assert isinstance(second, UnsupportedError)
    assert second.command == BAD
    assert len(switch.calls) == requests


async def test_answers_are_asked_for_in_the_form_that_is_known():
    switch = Scripted(usual)
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


async def test_what_there_is_as_text_alone_goes_in_a_request_of_its_own():
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


async def test_fewer_results_than_commands_are_none():
    class Short(Scripted):
        async def answer(self, request):
            return json_reply({"jsonrpc": "2.0", "id": 1, "result": [GOOD]})

    async with WebServer(Short(usual)) as server:
        client = EapiClient(server.url, "monitor", PASSWORD)
        with pytest.raises(ReplyError, match="neither results nor an error"):
            await client.show(["show a", "show c"])
        await client.close()


async def test_another_web_server():
    class Other(Scripted):
        async def answer(self, request):
            return text(404, "not found")

    async with WebServer(Other(usual)) as server:
        client = EapiClient(server.url, "monitor", PASSWORD)
        with pytest.raises(ReplyError, match="management api http-commands"):
            await client.show(["show a"])
        await client.close()
