"""TLS settings of a client: verification by CA, by a pinned certificate, or none."""

import hashlib
import re
import ssl
from pathlib import Path


def tls_context(
    *, ca_file: str | Path | None = None, sha256: str | None = None, insecure: bool = False
) -> ssl.SSLContext:
    """Return the TLS settings of a client; without arguments the system's CAs are trusted and host names are verified.

    Args:
        ca_file: PEM file of the only CAs to trust, or of a self-signed certificate itself.
        sha256: fingerprint of the device's own certificate, 64 hexadecimal digits with or without colons.  It replaces
            the check of CA and name, and is checked inside the handshake: nothing is sent to a device that fails it.
        insecure: verify nothing.  A man in the middle can read the password.

    Raises:
        ValueError: more than one of the three is given, or the fingerprint is malformed.
        OSError: the CA file cannot be read, or contains no certificate (ssl.SSLError).
    """
    if (ca_file is not None) + (sha256 is not None) + insecure > 1:
        raise ValueError("ca_file, sha256 and insecure exclude each other; give one of them")
    if sha256 is None and not insecure:
        return ssl.create_default_context(cafile=ca_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if sha256 is not None:
        # Per context, as ssl documents it; asyncio's TLS makes its connections by this type.
        context.sslobject_class = _pinned_ssl_object(_parse_fingerprint(sha256))
    return context


def _parse_fingerprint(text: str) -> bytes:
    digits = text.replace(":", "").strip()
    if not re.fullmatch("[0-9A-Fa-f]{64}", digits):
        raise ValueError(f"sha256: {text[:100]!r} is not a fingerprint of 64 hexadecimal digits")
    return bytes.fromhex(digits)


def _pinned_ssl_object(expected: bytes) -> type[ssl.SSLObject]:
    class PinnedSslObject(ssl.SSLObject):
        """A connection whose handshake fails unless the peer presents the expected certificate."""

        def do_handshake(self) -> None:
            super().do_handshake()
            presented = hashlib.sha256(self.getpeercert(binary_form=True) or b"").digest()
            if presented != expected:
                raise ssl.SSLCertVerificationError(
                    f"the certificate's SHA-256 fingerprint is {presented.hex(':')}, not the pinned one"
                )

    return PinnedSslObject
