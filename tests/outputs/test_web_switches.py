"""The paths that ask for switches, over real sockets: parameters, formats, and users as on every other path."""

import gzip
from contextlib import asynccontextmanager

import bcrypt
import httpx
import pytest

from exporter.outputs.negotiation import Format
from exporter.outputs.web import (
    Handlers,
    ProbeAnswer,
    ProbeRequest,
    WebServer,
)

METRICS = [b"fabric_probe_", b"success 1\n"]
OPENMETRICS = {"accept": "application/openmetrics-text;version=1.0.0"}


class Switches:
    """Replaces the daemon; records the requests."""

    def __init__(self, answer=None):
        self.answer = answer or ProbeAnswer(200, METRICS)
        self.calls = []

    async def probe(self, request, form):
        self.calls.append((request, form))
        return self.answer

    def discovery(self):
        self.calls.append("discovery")
        return b'[{"targets": ["leaf-01"], "labels": {}}]'

    async def reload(self):
        self.calls.append("reload")


@asynccontextmanager
async def serving(switches, **options):
    handlers = Handlers(lambda _: [b""], lambda: "", lambda: None, switches.reload, switches.probe, switches.discovery)
    server = WebServer(handlers, ["127.0.0.1:0"], **options)
    await server.start()
    host, port = server.addresses[0]
    try:
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False, timeout=30) as client:
            yield client, server
    finally:
        await server.stop(5)


@pytest.mark.parametrize(
    ("query", "headers", "request_"),
    [
        ("target=leaf-01", {}, ProbeRequest("leaf-01", "", "", None, debug=False)),
        (
            "target=%5B2001:db8::1%5D:161&module=arista&auth=lab&debug=true",
            {"x-prometheus-scrape-timeout-seconds": "9.5"},
            ProbeRequest("[2001:db8::1]:161", "arista", "lab", 9.5, debug=True),
        ),
        ("target=a&module=&debug=false", {}, ProbeRequest("a", "", "", None, debug=False)),
        *(
            ("target=a", {"x-prometheus-scrape-timeout-seconds": text}, ProbeRequest("a", "", "", None, debug=False))
            for text in ("0", "-1", "nan", "inf", "soon", "")
        ),
    ],
)
async def test_parameters_of_probes(query, headers, request_):
    switches = Switches()
    async with serving(switches) as (client, _):
        answer = await client.get(f"/probe?{query}", headers={"accept": "", **headers})
    assert answer.status_code == 200
    assert switches.calls == [(request_, Format.TEXT)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "give target=HOST, target=HOST:PORT or target=NAME of a configured switch"),
        ("target=", "give target=HOST"),
        ("module=arista", "give target=HOST"),
        ("target=a&target=b", "a parameter is given twice; give each once"),
        ("target=a&modul=b", "there is no parameter 'modul'; known are target, module, auth and debug"),
        ("target=a&debug=yes", "debug is true or false"),
        ("target=%ff", "the query cannot be read"),
        ("target=a" + "&x=1" * 100, "the query cannot be read"),
    ],
)
async def test_parameters_that_are_wrong(query, message):
    switches = Switches()
    async with serving(switches) as (client, server):
        answer = await client.get(f"/probe?{query}")
    assert (answer.status_code, switches.calls) == (400, [])
    assert message in answer.text
    assert server.stats.requests["/probe", 400] == 1


async def test_the_format_is_negotiated_as_for_a_scrape():
    switches = Switches()
    async with serving(switches) as (client, _):
        plain = await client.get("/probe?target=a", headers={"accept-encoding": "identity", "accept": ""})
        assert plain.content == b"".join(METRICS)
        assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        request = client.build_request("GET", "/probe?target=a", headers={"accept-encoding": "gzip", **OPENMETRICS})
        answer = await client.send(request, stream=True)
        assert gzip.decompress(b"".join([part async for part in answer.aiter_raw()])) == b"".join(METRICS)
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert [form for _, form in switches.calls] == [Format.TEXT, Format.OPENMETRICS]


@pytest.mark.parametrize("status", [200, 400, 403, 503])
async def test_words_are_plain_text(status):
    async with serving(Switches(ProbeAnswer(status, None, "why <b>"))) as (client, _):
        answer = await client.get("/probe?target=a")
    assert (answer.status_code, answer.text) == (status, "why <b>\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_service_discovery_is_json():
    async with serving(Switches()) as (client, _):
        answer = await client.get("/sd")
    assert answer.headers["content-type"] == "application/json"  # and nothing else, or Prometheus refuses it
    assert answer.json() == [{"targets": ["leaf-01"], "labels": {}}]


async def test_nothing_is_asked_or_told_without_a_password(tmp_path):
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users: {{alice: {bcrypt.hashpw(b'right', bcrypt.gensalt(4)).decode()}}}")
    switches = Switches()
    paths = [("GET", "/probe?target=a"), ("GET", "/probe?target=a&debug=true"), ("GET", "/sd"), ("POST", "/-/reload")]
    async with serving(switches, config_file=config) as (client, _):
        for method, path in paths:
            for auth in (None, ("alice", "wrong"), ("bob", "right")):
                assert (await client.request(method, path, auth=auth)).status_code == 401
        assert switches.calls == []
        for method, path in paths:
            assert (await client.request(method, path, auth=("alice", "right"))).status_code == 200
        assert len(switches.calls) == len(paths)


async def test_paths_without_a_handler_are_404():
    handlers = Handlers(lambda _: [b""], lambda: "", lambda: None, Switches().reload)
    server = WebServer(handlers, ["127.0.0.1:0"])
    await server.start()
    host, port = server.addresses[0]
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False, timeout=30) as client:
        assert [(await client.get(path)).status_code for path in ("/probe?target=a", "/sd")] == [404, 404]
    await server.stop(5)
