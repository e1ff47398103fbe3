"""Server-side TLS contexts that are reloaded when their files change: certificates rotate without a restart."""

import ipaddress
import logging
import ssl

from exporter.config.files import read_regular
from exporter.outputs.webconfig import (
    MAX_FILE_SIZE,
    TlsConfig,
    WebConfigError,
    WebConfigFile,
    stamp,
)

logger = logging.getLogger(__name__)


def make_context(tls: TlsConfig) -> ssl.SSLContext:
    """Load certificate, key and authority into a new context.

    Raises:
        WebConfigError: A file cannot be used; the text names it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = tls.min_version, tls.max_version
    # A resumed session skips the client's certificate, so it would outlive a rotated authority.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    if tls.prefer_server_ciphers:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if tls.ciphers:
        context.set_ciphers(tls.ciphers)
    for file in tls.files:
        try:
            read_regular(file, MAX_FILE_SIZE)  # OpenSSL would wait for a pipe without a limit
        except (OSError, ValueError) as error:  # a name may contain a NUL
            reason = getattr(error, "strerror", None) or error
            raise WebConfigError(f"{file}: cannot be read: {reason}; correct the path or permissions") from error
    try:
        # Without a password OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(tls.cert_file, tls.key_file, password=_no_password)
    except (OSError, ValueError) as error:
        text = f"{tls.cert_file} with {tls.key_file}: not a certificate and its unencrypted key in PEM: {error}"
        raise WebConfigError(text) from error
    if tls.client_ca_file is not None:
        try:
            context.load_verify_locations(tls.client_ca_file)
        except (OSError, ValueError) as error:
            raise WebConfigError(f"{tls.client_ca_file}: not a certificate of an authority in PEM: {error}") from error
        # As Go does, trust each certificate in the file, also an intermediate one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = tls.verify_mode
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; store it without a passphrase, readable by this user only")


class TlsListener:
    """The context to listen with. At each handshake changed files are loaded, and the new context is used.

    Files that cannot be loaded are logged once, and the previous ones remain in use.
    """

    def __init__(self, file: WebConfigFile, tls: TlsConfig) -> None:
        self._file = file
        self._tls = tls
        self._stamp = stamp(*tls.files)
        self._current = make_context(tls)
        self._generation = 0
        self.context = make_context(tls)
        self.context.sni_callback = self._choose  # OpenSSL calls it for clients that send no name as well

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        self._refresh()
        connection.context = self._current

    def _refresh(self) -> None:
        tls = self._file.current().tls or self._tls
        now = stamp(*tls.files)
        if now == self._stamp and tls == self._tls:
            return
        self._tls, self._stamp = tls, now
        try:
            self._current = make_context(tls)
        except WebConfigError as error:
            logger.error(  # noqa: TRY400 - the text is complete
                "%s; the previous certificates remain in use", error
            )
        else:
            self._generation += 1
            logger.info("%s: certificates reloaded", tls.cert_file)

    def admits(self, connection: ssl.SSLObject) -> bool:
        """Return whether the client of a completed handshake is allowed, by the names in its certificate."""
        if self._tls.verify_mode is not ssl.CERT_NONE and connection.session_reused and self._generation:
            return False  # verified before the rotation, perhaps by an authority that is no longer trusted
        allowed = self._tls.allowed_sans
        return allowed is None or not allowed.isdisjoint(subject_names(connection.getpeercert()))


def subject_names(certificate: object) -> set[str]:
    """Return DNS names, addresses, e-mail addresses and URIs of a certificate as returned by SSLObject.getpeercert."""
    if not isinstance(certificate, dict):
        return set()
    names = set()
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in {"DNS", "email", "URI"}:
            names.add(value)
        elif kind == "IP Address":
            try:
                # OpenSSL returns IPv6 uncompressed and in upper case; the configuration has the short form.
                names.add(str(ipaddress.ip_address(value.strip())))
            except ValueError:
                continue
    return names
