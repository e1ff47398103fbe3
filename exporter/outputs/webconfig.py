"""The web configuration file of Prometheus's exporter-toolkit: TLS, client certificates, users, response headers.

The keys and their meaning are the toolkit's (its docs/web-configuration.md), so that one file serves all
exporters. A key that is not supported here is an error at start, so that security is never weaker than configured.
"""

import logging
import os
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import msgspec

from exporter.config.errors import ConfigError, HiddenKey, is_name
from exporter.config.files import read_regular
from exporter.config.yaml_document import Document

logger = logging.getLogger(__name__)

MAX_FILE_SIZE = 1 << 20
"""Maximum size of this file, and of those with certificates and keys."""

_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}\Z")
_MAX_COST = 16  # 2**16 rounds take about 4 s of CPU for each new password, too long for a scrape

_VERSIONS = MappingProxyType({"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3})
_AUTH_TYPES = MappingProxyType(
    {
        "": ssl.CERT_NONE,
        "NoClientCert": ssl.CERT_NONE,
        "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
        "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
    }
)
# Python's ssl has no mode that accepts a certificate without verification.
_UNVERIFIED_AUTH_TYPES = frozenset({"RequestClientCert", "RequireAnyClientCert", "RequireClientCert"})

# The suites that Go's crypto/tls calls secure, by the names the toolkit's file uses, and OpenSSL's names for them.
# Those of TLS 1.3 cannot be chosen one by one, neither in Go nor here.
_TLS13_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_TLS12_SUITES = MappingProxyType(
    {
        f"TLS_ECDHE_{auth}_WITH_{go}": f"ECDHE-{auth}-{openssl}"
        for auth in ("ECDSA", "RSA")
        for go, openssl in (
            ("AES_128_CBC_SHA", "AES128-SHA"),
            ("AES_256_CBC_SHA", "AES256-SHA"),
            ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
            ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
            ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        )
    }
)

_HEADERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Content-Security-Policy": (),
        "X-Frame-Options": ("deny", "sameorigin"),
        "X-Content-Type-Options": ("nosniff",),
        "X-XSS-Protection": (),
        "Strict-Transport-Security": (),
    }
)


class WebConfigError(ConfigError):
    """The web configuration is invalid; the text names the file, the key, the value and the remedy."""


class _Tls(msgspec.Struct, forbid_unknown_fields=True):
    cert_file: str = ""
    key_file: str = ""
    cert: str = ""
    key: str = ""
    client_auth_type: str = ""
    client_ca_file: str = ""
    client_ca: str = ""
    client_allowed_sans: list[str] | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: list[str] = []
    prefer_server_cipher_suites: bool = True
    curve_preferences: list[str] = []


class _Http(msgspec.Struct, forbid_unknown_fields=True):
    http2: bool = False
    headers: dict[str, str] = {}


class _RateLimit(msgspec.Struct, forbid_unknown_fields=True):
    interval: str | int = 0
    burst: int = 0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tls_server_config: _Tls | None = None
    http_server_config: _Http | None = None
    basic_auth_users: dict[str, str] | None = None
    rate_limit: _RateLimit | None = None


class TlsConfig(msgspec.Struct, frozen=True):
    """TLS as configured; paths are absolute or relative to the working directory, `ciphers` is for TLS 1.2 only.

    `allowed_sans` is None where any verified client certificate is allowed.
    """

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None
    verify_mode: ssl.VerifyMode
    allowed_sans: frozenset[str] | None
    min_version: ssl.TLSVersion
    max_version: ssl.TLSVersion
    ciphers: str
    prefer_server_ciphers: bool

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read again when they change."""
        return tuple(f for f in (self.cert_file, self.key_file, self.client_ca_file) if f is not None)

    @property
    def fixed(self) -> tuple[object, ...]:
        """The options that a listening socket cannot change."""
        return (self.verify_mode, self.min_version, self.max_version, self.ciphers, self.prefer_server_ciphers)


class WebConfig(msgspec.Struct, frozen=True):
    """The parsed file: TLS or None for plain HTTP, bcrypt hashes by user, headers for each response."""

    tls: TlsConfig | None
    users: dict[str, bytes]
    headers: tuple[tuple[bytes, bytes], ...]


def parse(content: bytes, path: Path) -> WebConfig:
    """Parse the content of the file at `path`; relative paths in it refer to the file's directory.

    Raises:
        WebConfigError: The content is invalid.
    """
    document = Document(str(path))
    try:
        file = document.convert(_without_nulls(document.load(content)), _File)
        return _Reader(path, document).web(file)
    except ConfigError as error:
        raise WebConfigError(str(error)) from None


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Remove keys without a value: they mean the default, as in the toolkit."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


class _Reader:
    """Converts the file; it has the path of the file for relative names, and the document for errors."""

    def __init__(self, path: Path, document: Document) -> None:
        self._path, self._document = path, document

    def web(self, file: _File) -> WebConfig:
        http = file.http_server_config or _Http()
        if http.http2:
            self._reject(("http_server_config", "http2"), "true", "HTTP/2 is not served; set it to false or remove it")
        limit = file.rate_limit or _RateLimit()
        if limit.interval not in (0, "0", "0s"):
            self._reject(
                ("rate_limit", "interval"),
                repr(limit.interval),
                "requests are not rate-limited; remove rate_limit and bound concurrency with --web.max-requests",
            )
        tls = file.tls_server_config
        return WebConfig(
            # The toolkit's files often contain an empty section, which means plain HTTP there too.
            tls=self._tls(tls) if tls is not None and tls != _Tls() else None,
            users=self._users(file.basic_auth_users or {}),
            headers=self._headers(http.headers),
        )

    def _tls(self, tls: _Tls) -> TlsConfig:
        for key in ("cert", "key", "client_ca"):
            if getattr(tls, key):
                remedy = f"PEM text is not read from this file; write it to a file of its own and name it in {key}_file"
                self._reject(("tls_server_config", key), "(hidden)" if key == "key" else "(inline)", remedy)
        if tls.curve_preferences:
            self._reject(
                ("tls_server_config", "curve_preferences"),
                repr(tls.curve_preferences),
                "curves cannot be chosen; remove it to use OpenSSL's order",
            )
        for key in ("cert_file", "key_file"):
            if not getattr(tls, key):
                self._reject(("tls_server_config", key), '""', "TLS needs both cert_file and key_file; name the file")
        verify_mode = self._verify_mode(tls)
        oldest, newest = self._version("min_version", tls.min_version), self._version("max_version", tls.max_version)
        if oldest > newest:
            self._reject(
                ("tls_server_config", "max_version"), tls.max_version, f"it is below min_version {tls.min_version}"
            )
        return TlsConfig(
            cert_file=self._file(tls.cert_file),
            key_file=self._file(tls.key_file),
            client_ca_file=self._file(tls.client_ca_file) if tls.client_ca_file else None,
            verify_mode=verify_mode,
            allowed_sans=None if tls.client_allowed_sans is None else frozenset(tls.client_allowed_sans),
            min_version=oldest,
            max_version=newest,
            ciphers=self._ciphers(tls.cipher_suites, oldest),
            prefer_server_ciphers=tls.prefer_server_cipher_suites,
        )

    def _verify_mode(self, tls: _Tls) -> ssl.VerifyMode:
        key = ("tls_server_config", "client_auth_type")
        if tls.client_auth_type in _UNVERIFIED_AUTH_TYPES:
            remedy = "client certificates are always verified; use RequireAndVerifyClientCert with client_ca_file"
            self._reject(key, tls.client_auth_type, remedy)
        if tls.client_auth_type not in _AUTH_TYPES:
            known = ", ".join(name for name in _AUTH_TYPES if name)
            self._reject(key, repr(tls.client_auth_type), f"unknown; use one of {known}")
        mode = _AUTH_TYPES[tls.client_auth_type]
        if mode is ssl.CERT_NONE and tls.client_ca_file:
            remedy = (
                "it has no effect without client_auth_type: RequireAndVerifyClientCert; add that or remove the file"
            )
            self._reject(("tls_server_config", "client_ca_file"), tls.client_ca_file, remedy)
        if mode is not ssl.CERT_NONE and not tls.client_ca_file:
            self._reject(
                key, tls.client_auth_type, "it needs client_ca_file, the authority that signs client certificates"
            )
        if tls.client_allowed_sans is not None and mode is not ssl.CERT_REQUIRED:
            remedy = "names are checked only with client_auth_type: RequireAndVerifyClientCert; add that"
            self._reject(("tls_server_config", "client_allowed_sans"), repr(tls.client_allowed_sans), remedy)
        return mode

    def _version(self, key: str, name: str) -> ssl.TLSVersion:
        if name not in _VERSIONS:
            remedy = "TLS 1.2 is the oldest version served; use TLS12 or TLS13"
            self._reject(("tls_server_config", key), repr(name), remedy)
        return _VERSIONS[name]

    def _ciphers(self, names: list[str], oldest: ssl.TLSVersion) -> str:
        """Return OpenSSL's cipher list for TLS 1.2, "" for its default."""
        chosen = []
        for place, name in enumerate(names):
            if name in _TLS12_SUITES:
                chosen.append(_TLS12_SUITES[name])
            elif name not in _TLS13_SUITES:
                remedy = f"unknown cipher suite; use some of {', '.join(sorted(_TLS12_SUITES))}"
                self._reject(("tls_server_config", "cipher_suites", place), repr(name), remedy)
        if names and not chosen and oldest < ssl.TLSVersion.TLSv1_3:
            remedy = "it leaves no suite for TLS 1.2; add one, or set min_version: TLS13"
            self._reject(("tls_server_config", "cipher_suites"), repr(names), remedy)
        return ":".join(chosen)

    def _users(self, users: dict[str, str]) -> dict[str, bytes]:
        for user, hashed in users.items():
            is_shown = is_name(user) or not user
            key = ("basic_auth_users", user if is_shown else HiddenKey(user))
            if not user or ":" in user:
                self._reject(
                    key, repr(user) if is_shown else "(hidden)", "a user name must not be empty and has no colon"
                )
            match = _BCRYPT.match(hashed)
            if match is None:
                remedy = "not a bcrypt hash; make one with `htpasswd -nBC 10 NAME`"
                self._reject(key, "(hidden)", remedy)
            if not 4 <= int(match[1]) <= _MAX_COST:
                remedy = f"its cost must be between 4 and {_MAX_COST}; make a new hash with `htpasswd -nBC 10 NAME`"
                self._reject(("basic_auth_users", user), f"cost {match[1]}", remedy)
        return {user: hashed.encode() for user, hashed in users.items()}

    def _headers(self, headers: dict[str, str]) -> tuple[tuple[bytes, bytes], ...]:
        for name, value in headers.items():
            key = ("http_server_config", "headers", name)
            if name not in _HEADERS:
                self._reject(key, repr(value), f"only these headers can be set: {', '.join(_HEADERS)}")
            if _HEADERS[name] and value and value not in _HEADERS[name]:
                self._reject(key, repr(value), f"use {' or '.join(_HEADERS[name])}")
            if not value.isascii() or not (value.isprintable()):
                self._reject(key, repr(value), "a header is one line of printable ASCII")
        return tuple(
            (name.lower().encode(), value.strip().encode()) for name, value in headers.items() if value.strip()
        )

    def _file(self, name: str) -> Path:
        return self._path.parent / name

    def _reject(self, steps: Sequence[str | int], value: str, remedy: str) -> NoReturn:
        raise self._document.error_at(steps, f"{value}: {remedy}")


Stamp = tuple[tuple[int, int, int], ...]


def stamp(*files: Path) -> Stamp:
    """Return (mtime, size, inode) of each file, zeros for a missing one; it differs when a file changed."""
    result = []
    for file in files:
        try:
            state = os.stat(file)  # noqa: PTH116 - called at every request, and twice as fast as Path.stat
        except (OSError, ValueError):  # a name may contain a NUL
            result.append((0, 0, 0))
        else:
            result.append((state.st_mtime_ns, state.st_size, state.st_ino))
    return tuple(result)


class WebConfigFile:
    """The current file. A new version that is invalid is logged once, and the previous one remains in use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = stamp(path)
        self._broken = False
        self._config = self._read()

    def current(self) -> WebConfig:
        """Return the configuration; costs one stat of the file unless that has changed."""
        now = stamp(self.path)
        if now != self._stamp:
            self._stamp = now
            try:
                self._config = self._read(self._config)
            except WebConfigError as error:
                self._broken = True
                logger.error(  # noqa: TRY400 - the text is complete
                    "%s; the previous web configuration remains in use", error
                )
            else:
                logger.info("%s: reloaded%s", self.path, ", and it is valid again" if self._broken else "")
                self._broken = False
        return self._config

    def _read(self, old: WebConfig | None = None) -> WebConfig:
        try:
            content = read_regular(self.path, MAX_FILE_SIZE)
        except OSError as error:
            text = f"{self.path}: cannot be read: {error.strerror}; correct --web.config.file or the file's permissions"
            raise WebConfigError(text) from error
        config = parse(content, self.path)
        if old is not None:
            self._check_change(old, config)
        return config

    def _check_change(self, old: WebConfig, new: WebConfig) -> None:
        fixed = [None if config.tls is None else config.tls.fixed for config in (old, new)]
        if fixed[0] != fixed[1]:
            raise WebConfigError(
                f"{self.path}: tls_server_config: changed in more than its files and names: "
                "restart to switch TLS on or off or to change its versions, ciphers or client_auth_type"
            )
