"""Users, TLS, client certificates and their rotation, over real sockets."""

import asyncio
import contextlib
import os
import re
import socket
import ssl
from contextlib import asynccontextmanager
from itertools import count

import bcrypt
import httpx
import pytest
import trustme

from exporter.outputs import webauth
from exporter.outputs.web import Handlers, WebServer
from exporter.outputs.webauth import AuthResult, BasicAuth, parse_basic
from exporter.outputs.webconfig import WebConfigError
from exporter.outputs.webtls import subject_names


async def no_reload():
    return None


HANDLERS = Handlers(lambda _: [b"fabric_x 1\n"], lambda: "page", lambda: None, no_reload)


def hashed(password):
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


@asynccontextmanager
async def serving(config_file):
    server = WebServer(HANDLERS, ["127.0.0.1:0"], config_file=config_file)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(5)


def replace(path, data):
    """Put a file in its place as rotation tools do: by renaming a new one over it."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.replace(path)


class Site:
    """A server's files, and clients that trust its authority."""

    def __init__(self, folder):
        self.folder = folder
        self.authority = trustme.CA()
        self.config = folder / "web.yml"
        self.issue("127.0.0.1")
        self.authority.cert_pem.write_to_path(folder / "ca.pem")

    def issue(self, *names):
        certificate = self.authority.issue_cert(*names)
        replace(self.folder / "key.pem", certificate.private_key_pem.bytes())
        replace(self.folder / "cert.pem", b"".join(blob.bytes() for blob in certificate.cert_chain_pems))

    def write(self, extra="", rest=""):
        self.config.write_text(f"tls_server_config: {{cert_file: cert.pem, key_file: key.pem{extra}}}\n{rest}")

    def context(self, *names, authority=None, version=None):
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if names:
            (authority or self.authority).issue_cert(*names).configure_cert(context)
        if version is not None:
            context.maximum_version = version
        return context

    async def get(self, server, context, path="/metrics"):
        host, port = server.addresses[0]
        async with httpx.AsyncClient(verify=context, trust_env=False, timeout=30) as client:
            return await client.get(f"https://{host}:{port}{path}")

    async def served_names(self, server):
        """Connect without a server name, as Prometheus does to an address, and return the names in the certificate."""
        context = self.context()
        context.check_hostname = False
        reader, writer = await asyncio.open_connection(*server.addresses[0], ssl=context)
        names = subject_names(writer.get_extra_info("peercert"))
        writer.write(b"GET /-/healthy HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        await reader.read()
        writer.close()
        return names


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


async def test_users(tmp_path):
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users: {{alice: {hashed('right')}}}")
    async with serving(config) as server:
        host, port = server.addresses[0]
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
            anonymous = await client.get("/metrics")
            assert anonymous.status_code == 401
            assert anonymous.headers["www-authenticate"].startswith("Basic ")
            for path in ("/metrics", "/", "/-/healthy", "/nothing"):
                assert (await client.get(path)).status_code == 401
            assert (await client.get("/metrics", auth=("alice", "wrong"))).status_code == 401
            assert (await client.get("/metrics", auth=("bob", "right"))).status_code == 401
            assert (await client.get("/metrics", auth=("alice", "right"))).status_code == 200
            assert (await client.get("/metrics", auth=("alice", "wrong"))).status_code == 401
            assert server.stats.authentication_failures == 8

            config.write_text(f"basic_auth_users: {{bob: {hashed('new')}}}")
            assert (await client.get("/metrics", auth=("alice", "right"))).status_code == 401
            assert (await client.get("/metrics", auth=("bob", "new"))).status_code == 200

            config.write_text("{}")
            assert (await client.get("/metrics")).status_code == 200


async def test_password_is_computed_once_when_right_and_as_often_for_unknown_users(monkeypatch):
    computed = []
    real = webauth._matches
    monkeypatch.setattr(webauth, "_matches", lambda password, hash_: computed.append(hash_) or real(password, hash_))
    users = {"alice": hashed("right").encode()}
    auth = BasicAuth()
    right = "Basic " + httpx.BasicAuth("alice", "right")._auth_header.removeprefix("Basic ")
    unknown = httpx.BasicAuth("mallory", "right")._auth_header
    assert [await auth.check(right, users) for _ in range(3)] == [AuthResult.ALLOWED] * 3
    assert len(computed) == 1
    # The only known hash is computed for an unknown user, matches, and is still denied.
    assert [await auth.check(unknown, users) for _ in range(2)] == [AuthResult.DENIED] * 2
    assert computed == [users["alice"]] * 3
    assert await auth.check(right, {"alice": hashed("changed").encode()}) is AuthResult.DENIED
    auth.close()


async def test_a_flood_of_passwords_is_bounded():
    auth = BasicAuth()
    users = {"alice": hashed("right").encode()}
    headers = [httpx.BasicAuth("alice", f"wrong{n}")._auth_header for n in range(20)]
    verdicts = await asyncio.gather(*(auth.check(header, users) for header in headers))
    assert verdicts.count(AuthResult.BUSY) == 4
    assert verdicts.count(AuthResult.DENIED) == 16
    auth.close()


async def statuses(server, user, passwords):
    """Yield the status of a request with each password, over one connection."""
    reader, writer = await asyncio.open_connection(*server.addresses[0])
    try:
        for password in passwords:
            header = httpx.BasicAuth(user, password)._auth_header
            writer.write(f"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: {header}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
            yield int(head.split()[1])
    finally:
        writer.close()


async def test_right_passwords_are_served_while_wrong_ones_flood(tmp_path):
    """Seen on the running daemon: 503 for right passwords, that were not used before, during such a flood."""
    config = tmp_path / "web.yml"
    users = ", ".join(f"user{n}: {hashed(f'right{n}')}" for n in range(4))
    config.write_text(f"basic_auth_users: {{{users}}}")
    flooded = []
    async with serving(config) as server, asyncio.timeout(60):

        async def flood(number):
            wrong = (f"wrong{number}-{turn}" for turn in count())
            async for status in statuses(server, ("user0", "unknown")[number % 2], wrong):
                flooded.append(status)  # noqa: PERF401  # it is read meanwhile

        flooding = [asyncio.create_task(flood(number)) for number in range(60)]
        while len(flooded) < 60:  # noqa: ASYNC110  # until it floods
            await asyncio.sleep(0.01)
        found = [[status async for status in statuses(server, f"user{n}", [f"right{n}"])] for n in range(4)]
        for task in flooding:
            task.cancel()
        await asyncio.gather(*flooding, return_exceptions=True)
    assert found == [[200]] * 4
    assert set(flooded) == {401}


async def test_a_flood_of_one_client_or_user_takes_no_turns_of_others():
    """By the number of checks that end before a right password of another is accepted, not by time."""
    users = {"alice": hashed("right").encode(), "bob": hashed("other").encode()}
    for flooded, client in (("alice", "192.0.2.1"), ("mallory", "192.0.2.2"), ("bob", "192.0.2.2")):
        auth = BasicAuth(200)
        ended = []

        async def flood(number, auth=auth, flooded=flooded, client=client, ended=ended):
            await auth.check(httpx.BasicAuth(flooded, f"wrong{number}")._auth_header, users, client)
            ended.append(number)

        flooding = [asyncio.create_task(flood(number)) for number in range(100)]
        await asyncio.sleep(0)
        right = httpx.BasicAuth("alice", "right")._auth_header
        assert await auth.check(right, users, "192.0.2.2") is AuthResult.ALLOWED
        assert len(ended) <= 4
        await asyncio.gather(*flooding)
        auth.close()


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("", "", True),
    ],
)
def test_clients_are_addresses_or_networks(one, other, is_same):
    assert (webauth._network(one) == webauth._network(other)) is is_same


async def test_an_accepted_password_stays_so_until_its_own_hash_changes(monkeypatch):
    computed = []
    real = webauth._matches
    monkeypatch.setattr(webauth, "_matches", lambda password, hash_: computed.append(hash_) or real(password, hash_))
    auth = BasicAuth()
    alice, bob = hashed("right").encode(), hashed("other").encode()
    right = httpx.BasicAuth("alice", "right")._auth_header
    for users in ({"alice": alice}, {"alice": alice, "bob": bob}, {"alice": alice}):
        assert await auth.check(right, users) is AuthResult.ALLOWED
    assert computed == [alice]
    assert await auth.check(right, {"bob": bob}) is AuthResult.DENIED
    auth.close()


async def test_a_password_is_what_bcrypt_reads_of_it(monkeypatch):
    """Any number of right ones, which differ after 72 bytes, would fill the cache."""
    computed = []
    real = webauth._matches
    monkeypatch.setattr(webauth, "_matches", lambda password, hash_: computed.append(hash_) or real(password, hash_))
    auth = BasicAuth()
    users = {"alice": hashed("x" * 72).encode()}
    for number in range(3):
        header = httpx.BasicAuth("alice", "x" * 72 + str(number))._auth_header
        assert await auth.check(header, users) is AuthResult.ALLOWED
    assert len(computed) == 1
    auth.close()


@pytest.mark.parametrize("header", ["", "Basic", "Basic !!!", "Bearer YTpi", "Basic YWI=", "Basic //86YQ=="])
def test_malformed_credentials(header):
    assert parse_basic(header) is None


async def test_password_longer_than_bcrypt_reads(tmp_path):
    auth = BasicAuth()
    users = {"alice": hashed("x" * 72).encode()}
    assert await auth.check(httpx.BasicAuth("alice", "x" * 100)._auth_header, users) is AuthResult.ALLOWED
    auth.close()


async def test_configured_headers_are_on_every_answer(tmp_path):
    config = tmp_path / "web.yml"
    config.write_text(
        "http_server_config: {headers: {X-Frame-Options: deny, Content-Security-Policy: default-src 'self'}}\n"
        f"basic_auth_users: {{a: {hashed('b')}}}"
    )
    async with serving(config) as server:
        host, port = server.addresses[0]
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
            for response in (await client.get("/"), await client.get("/", auth=("a", "b")), await client.get("/x")):
                assert response.headers["x-frame-options"] == "deny"
                assert response.headers.get_list("content-security-policy") == ["default-src 'self'"]


async def test_tls_and_rotation_of_certificates(site, caplog):
    site.write()
    async with serving(site.config) as server:
        assert (await site.get(server, site.context())).status_code == 200
        assert (await site.get(server, site.context(version=ssl.TLSVersion.TLSv1_2))).status_code == 200
        assert await site.served_names(server) == {"127.0.0.1"}

        site.issue("127.0.0.1", "rotated.example")
        assert await site.served_names(server) == {"127.0.0.1", "rotated.example"}

        (site.folder / "key.pem").write_text("broken")
        for _ in range(2):
            assert await site.served_names(server) == {"127.0.0.1", "rotated.example"}
        errors = [record for record in caplog.records if record.levelname == "ERROR"]
        assert len(errors) == 1
        assert "the previous certificates remain in use" in errors[0].getMessage()

        site.issue("127.0.0.1", "healed.example")
        assert await site.served_names(server) == {"127.0.0.1", "healed.example"}


async def test_versions_and_ciphers_are_kept(site):
    site.write(", min_version: TLS13")
    async with serving(site.config) as server:
        with pytest.raises(httpx.ConnectError):
            await site.get(server, site.context(version=ssl.TLSVersion.TLSv1_2))
        assert (await site.get(server, site.context())).status_code == 200
        site.issue("127.0.0.1")
        with pytest.raises(httpx.ConnectError):
            await site.get(server, site.context(version=ssl.TLSVersion.TLSv1_2))


REQUIRED = ", client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_client_certificates(site, version):
    site.write(REQUIRED + ", client_allowed_sans: [prometheus.example, '2001:db8::1']")
    async with serving(site.config) as server:
        for name in ("prometheus.example", "2001:db8::1"):
            assert (await site.get(server, site.context(name, version=version))).status_code == 200
        assert server.stats.refused_client_names == 0
        with pytest.raises(httpx.TransportError):
            await site.get(server, site.context("other.example", version=version))
        assert server.stats.refused_client_names == 1
        for context in (
            site.context(version=version),
            site.context("prometheus.example", authority=trustme.CA(), version=version),
        ):
            with pytest.raises(httpx.TransportError):
                await site.get(server, context)
        assert server.stats.refused_client_names == 1
        assert sum(server.stats.requests.values()) == 2

        site.write(REQUIRED + ", client_allowed_sans: [other.example]")
        assert (await site.get(server, site.context("other.example", version=version))).status_code == 200
        with pytest.raises(httpx.TransportError):
            await site.get(server, site.context("prometheus.example", version=version))


async def test_clients_that_are_refused_keep_no_allowed_one_out(site):
    """Sixteen at a time without a certificate, with one of another authority, of another name, and without TLS."""
    site.write(REQUIRED + ", client_allowed_sans: [prometheus.example]")
    refused = [site.context(), site.context("prometheus.example", authority=trustme.CA()), site.context("a.example")]
    good = site.context("prometheus.example")
    for context in refused:
        context.check_hostname = False
    async with serving(site.config) as server:
        is_over = asyncio.Event()
        tried = 0

        async def flood(context):
            nonlocal tried
            while not is_over.is_set():
                with contextlib.suppress(OSError):
                    reader, writer = await asyncio.open_connection(
                        *server.addresses[0], ssl=context, server_hostname=context and "wrong.example"
                    )
                    writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                    assert await reader.read() == b""
                    writer.close()
                tried += 1

        flooding = [asyncio.create_task(flood(context)) for context in [*refused, None] * 4]
        for _ in range(10):
            assert (await site.get(server, good)).status_code == 200
        await asyncio.sleep(0.5)
        is_over.set()
        await asyncio.gather(*flooding)
        assert tried > 40
        assert server.stats.refused_client_names > 3
        assert sum(server.stats.requests.values()) == 10


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_rotated_authority_shuts_the_old_one_out(site, version):
    site.write(REQUIRED)
    new = trustme.CA()
    async with serving(site.config) as server:
        old_client = site.context("prometheus.example", version=version)
        assert (await site.get(server, old_client)).status_code == 200
        replace(site.folder / "ca.pem", new.cert_pem.bytes())
        with pytest.raises(httpx.TransportError):
            await site.get(server, old_client)  # the same context could resume its session
        new_client = site.context("prometheus.example", authority=new, version=version)
        assert (await site.get(server, new_client)).status_code == 200


async def test_resumed_session_does_not_outlive_its_authority(site):
    site.write(REQUIRED)
    context = site.context("prometheus.example", version=ssl.TLSVersion.TLSv1_2)

    def connect(address, session):
        with (
            socket.create_connection(address, timeout=30) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1", session=session) as tls,
        ):
            tls.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            return tls.recv(100), tls.session, tls.session_reused

    async with serving(site.config) as server:
        answer, session, _ = await asyncio.to_thread(connect, server.addresses[0], None)
        assert answer.startswith(b"HTTP/1.1 200")
        replace(site.folder / "ca.pem", trustme.CA().cert_pem.bytes())
        try:
            answer, _, _ = await asyncio.to_thread(connect, server.addresses[0], session)
        except (ssl.SSLError, OSError):
            answer = b""
        assert answer == b""


async def test_verify_if_given(site):
    site.write(", client_ca_file: ca.pem, client_auth_type: VerifyClientCertIfGiven")
    async with serving(site.config) as server:
        assert (await site.get(server, site.context())).status_code == 200
        assert (await site.get(server, site.context("a.example"))).status_code == 200
        with pytest.raises(httpx.TransportError):
            await site.get(server, site.context("a.example", authority=trustme.CA()))


async def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(site, caplog):
    site.write()
    async with serving(site.config) as server:
        assert (await site.get(server, site.context())).status_code == 200
        for path in (site.folder / "key.pem", site.config):
            path.unlink()
            os.mkfifo(path)
            assert (await site.get(server, site.context())).status_code == 200
            assert f"{path}: cannot be read: it is not a regular file" in caplog.text


def test_missing_certificate_names_the_file(site):
    site.write()
    (site.folder / "cert.pem").unlink()
    with pytest.raises(WebConfigError) as raised:
        WebServer(HANDLERS, [":0"], config_file=site.config)
    assert str(raised.value) == (
        f"{site.folder}/cert.pem: cannot be read: No such file or directory; correct the path or permissions"
    )


def test_key_of_another_certificate(site):
    site.write()
    other = site.authority.issue_cert("other.example")
    replace(site.folder / "key.pem", other.private_key_pem.bytes())
    with pytest.raises(
        WebConfigError, match=r"cert\.pem with .*key\.pem: not a certificate and its unencrypted key in PEM"
    ):
        WebServer(HANDLERS, [":0"], config_file=site.config)


def test_authority_without_a_certificate(site):
    site.write(REQUIRED)
    (site.folder / "ca.pem").write_text("nothing")
    with pytest.raises(WebConfigError, match=r"ca\.pem: not a certificate of an authority in PEM"):
        WebServer(HANDLERS, [":0"], config_file=site.config)
