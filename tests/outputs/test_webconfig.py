"""The web configuration file: what it means, and one wrong file of each kind with the exact text of its error."""

import ssl
from pathlib import Path

import pytest

from exporter.outputs import webconfig
from exporter.outputs.webconfig import WebConfigError, WebConfigFile, parse
from tests.helpers.paths import FIXTURES

PATH = Path("/etc/fabric/web.yml")
HASH = "$2y$04$" + "a" * 53
TLS = "tls_server_config: {cert_file: c.pem, key_file: k.pem, "


def test_whole_file():
    config = parse(
        f"""
tls_server_config:
  cert_file: tls/c.pem
  key_file: /run/k.pem
  client_ca_file: ca.pem
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [prometheus.example, "2001:db8::1"]
  min_version: TLS12
  max_version: TLS13
  cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: false
http_server_config:
  http2: false
  headers: {{X-Frame-Options: deny, X-XSS-Protection: ""}}
basic_auth_users: {{alice: {HASH}}}
rate_limit: {{interval: 0s, burst: 0}}
""".encode(),
        PATH,
    )
    assert config.tls is not None
    assert config.tls.files == (Path("/etc/fabric/tls/c.pem"), Path("/run/k.pem"), Path("/etc/fabric/ca.pem"))
    assert config.tls.verify_mode is ssl.CERT_REQUIRED
    assert config.tls.allowed_sans == {"prometheus.example", "2001:db8::1"}
    assert (config.tls.min_version, config.tls.max_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert config.tls.ciphers == "ECDHE-RSA-AES128-GCM-SHA256"
    assert config.tls.prefer_server_ciphers is False
    assert config.headers == ((b"x-frame-options", b"deny"),)
    assert config.users == {"alice": HASH.encode()}


@pytest.mark.parametrize(
    "text", ["", "{}", "tls_server_config:\nbasic_auth_users:\n", "tls_server_config: {cert_file: }"]
)
def test_nothing_configured_is_an_open_server(text):
    config = parse(text.encode(), PATH)
    assert (config.tls, config.users, config.headers) == (None, {}, ())


TLS12_NAMES = (
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, "
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA, "
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
)


def test_every_cipher_name_is_known_to_openssl():
    config = parse(f"{TLS}cipher_suites: [{TLS12_NAMES}]}}".encode(), PATH)
    assert config.tls is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(config.tls.ciphers)
    enabled = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    assert enabled == set(config.tls.ciphers.split(":"))
    assert len(enabled) == 10


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "tls: {}",
            ("tls: unknown key; known keys are tls_server_config, http_server_config, basic_auth_users, rate_limit"),
        ),
        (f"{TLS}certs: x}}", "tls_server_config.certs: unknown key; did you mean 'cert'?"),
        (
            "http_server_config: {http2: maybe}",
            "http_server_config.http2: expected true or false, got 'maybe'",
        ),
        ("[1]", "expected a mapping, got a list"),
        (
            "http_server_config: {http2: true}",
            "http_server_config.http2: true: HTTP/2 is not served; set it to false or remove it",
        ),
        (
            "rate_limit: {interval: 1s, burst: 5}",
            (
                "rate_limit.interval: '1s': requests are not rate-limited; "
                "remove rate_limit and bound concurrency with --web.max-requests"
            ),
        ),
        (
            "tls_server_config: {cert: PEM, key: SECRET}",
            (
                "tls_server_config.cert: (inline): PEM text is not read from this file; "
                "write it to a file of its own and name it in cert_file"
            ),
        ),
        (
            "tls_server_config: {cert_file: c.pem, key: SECRET}",
            (
                "tls_server_config.key: (hidden): PEM text is not read from this file; "
                "write it to a file of its own and name it in key_file"
            ),
        ),
        (
            f"{TLS}client_ca: PEM}}",
            (
                "tls_server_config.client_ca: (inline): PEM text is not read from this file; "
                "write it to a file of its own and name it in client_ca_file"
            ),
        ),
        (
            "tls_server_config: {cert_file: c.pem}",
            'tls_server_config.key_file: "": TLS needs both cert_file and key_file; name the file',
        ),
        (
            f"{TLS}curve_preferences: [X25519]}}",
            (
                "tls_server_config.curve_preferences: ['X25519']: curves cannot be chosen; "
                "remove it to use OpenSSL's order"
            ),
        ),
        (
            f"{TLS}client_auth_type: RequireAnyClientCert, client_ca_file: ca.pem}}",
            (
                "tls_server_config.client_auth_type: RequireAnyClientCert: client certificates are always "
                "verified; use RequireAndVerifyClientCert with client_ca_file"
            ),
        ),
        (
            f"{TLS}client_auth_type: RequestClientCert}}",
            (
                "tls_server_config.client_auth_type: RequestClientCert: client certificates are always "
                "verified; use RequireAndVerifyClientCert with client_ca_file"
            ),
        ),
        (
            f"{TLS}client_auth_type: Always}}",
            (
                "tls_server_config.client_auth_type: 'Always': unknown; "
                "use one of NoClientCert, VerifyClientCertIfGiven, RequireAndVerifyClientCert"
            ),
        ),
        (
            f"{TLS}client_ca_file: ca.pem}}",
            (
                "tls_server_config.client_ca_file: ca.pem: it has no effect without client_auth_type: "
                "RequireAndVerifyClientCert; add that or remove the file"
            ),
        ),
        (
            f"{TLS}client_auth_type: VerifyClientCertIfGiven}}",
            (
                "tls_server_config.client_auth_type: VerifyClientCertIfGiven: "
                "it needs client_ca_file, the authority that signs client certificates"
            ),
        ),
        (
            f"{TLS}client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca, client_allowed_sans: [a]}}",
            (
                "tls_server_config.client_allowed_sans: ['a']: names are checked only with client_auth_type: "
                "RequireAndVerifyClientCert; add that"
            ),
        ),
        (
            f"{TLS}min_version: TLS10}}",
            "tls_server_config.min_version: 'TLS10': TLS 1.2 is the oldest version served; use TLS12 or TLS13",
        ),
        (
            f"{TLS}min_version: TLS13, max_version: TLS12}}",
            "tls_server_config.max_version: TLS12: it is below min_version TLS13",
        ),
        (
            f"{TLS}cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]}}",
            (
                "tls_server_config.cipher_suites[0]: 'TLS_RSA_WITH_RC4_128_SHA': unknown cipher suite; "
                f"use some of {TLS12_NAMES}"
            ),
        ),
        (
            f"{TLS}cipher_suites: [TLS_AES_128_GCM_SHA256]}}",
            (
                "tls_server_config.cipher_suites: ['TLS_AES_128_GCM_SHA256']: it leaves no suite for TLS 1.2; "
                "add one, or set min_version: TLS13"
            ),
        ),
        (
            "basic_auth_users: {bob: hunter2}",
            "basic_auth_users.bob: (hidden): not a bcrypt hash; make one with `htpasswd -nBC 10 NAME`",
        ),
        (
            "basic_auth_users: {bob: $2y$31$" + "a" * 53 + "}",
            (
                "basic_auth_users.bob: cost 31: its cost must be between 4 and 16; "
                "make a new hash with `htpasswd -nBC 10 NAME`"
            ),
        ),
        (
            "basic_auth_users: {'a:b': " + HASH + "}",
            "basic_auth_users.a:b: 'a:b': a user name must not be empty and has no colon",
        ),
        (
            "http_server_config: {headers: {Server: x}}",
            (
                "http_server_config.headers.Server: 'x': only these headers can be set: Content-Security-Policy, "
                "X-Frame-Options, X-Content-Type-Options, X-XSS-Protection, Strict-Transport-Security"
            ),
        ),
        (
            "http_server_config: {headers: {X-Frame-Options: never}}",
            "http_server_config.headers.X-Frame-Options: 'never': use deny or sameorigin",
        ),
        (
            'http_server_config: {headers: {X-XSS-Protection: "1\\r\\nSet-Cookie: a"}}',
            (
                "http_server_config.headers.X-XSS-Protection: '1\\r\\nSet-Cookie: a': "
                "a header is one line of printable ASCII"
            ),
        ),
        (
            f"basic_auth_users: {{bob: {HASH}, bob: {HASH}}}",
            "the key 'bob' is duplicated; remove one",
        ),
        ("a: b: c", "5: is not valid YAML: mapping values are not allowed here; check indentation and quotes"),
        (
            "basic_auth_users: {bob: 831042}",
            (
                "basic_auth_users.bob: expected a string, got a value that is not shown, as it may be a secret; "
                "put it in quotes"
            ),
        ),
        ("basic_auth_users: {1: x}", "basic_auth_users: the key 1 is not a string; put it in quotes"),
    ],
)
def test_wrong_file(text, error):
    with pytest.raises(WebConfigError) as raised:
        parse(text.encode(), PATH)
    separator = ":" if error.startswith("5:") else ": "
    assert str(raised.value) == f"{PATH}:1{separator}{error}"


def test_the_line_of_an_error_is_that_of_its_key():
    text = f"# users\nbasic_auth_users:\n  alice: {HASH}\n  bob: plain\n"
    with pytest.raises(WebConfigError) as raised:
        parse(text.encode(), PATH)
    assert str(raised.value).startswith(f"{PATH}:4: basic_auth_users.bob: (hidden): not a bcrypt hash")
    with pytest.raises(WebConfigError) as raised:
        parse(b"http_server_config:\n  headers:\n    X-Frame-Options: never\n", PATH)
    assert str(raised.value).startswith(f"{PATH}:3: http_server_config.headers.X-Frame-Options: 'never': use deny")


@pytest.mark.parametrize("bomb", sorted((FIXTURES / "config").glob("bomb_*.yml")), ids=lambda path: path.stem)
def test_aliases_that_expand_without_limit_are_rejected(bomb):
    with pytest.raises(WebConfigError, match="aliases expand it to more than 100000 values"):
        parse(bomb.read_bytes(), PATH)


def test_a_file_above_the_size_limit_is_rejected(tmp_path):
    path = tmp_path / "web.yml"
    path.write_bytes(b"#" * (webconfig.MAX_FILE_SIZE + 1))
    with pytest.raises(WebConfigError, match=r"web\.yml: cannot be read: it is larger than 1048576 bytes"):
        WebConfigFile(path)


def test_missing_file():
    with pytest.raises(WebConfigError) as raised:
        WebConfigFile(Path("/nonexistent/web.yml"))
    assert str(raised.value) == (
        "/nonexistent/web.yml: cannot be read: No such file or directory; "
        "correct --web.config.file or the file's permissions"
    )


def test_changed_file_takes_effect_and_a_broken_one_is_logged_once(tmp_path, caplog):
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users: {{alice: {HASH}}}")
    file = WebConfigFile(path)
    assert file.current() is file.current()

    path.write_text("basic_auth_users: {alice: oops}")
    assert list(file.current().users) == ["alice"]
    assert list(file.current().users) == ["alice"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the previous web configuration remains in use" in caplog.text

    path.write_text(f"basic_auth_users: {{bob: {HASH}}}")
    assert list(file.current().users) == ["bob"]


def test_switching_tls_on_needs_a_restart(tmp_path, caplog):
    path = tmp_path / "web.yml"
    path.write_text("{}")
    file = WebConfigFile(path)
    path.write_text(f"{TLS}}}")
    assert file.current().tls is None
    assert "restart to switch TLS on or off" in caplog.text
