"""TLS to an MQTT broker: trust by certificate authority, by fingerprint, or none, and the certificate of the client."""

import hashlib
import ssl

from exporter.mqtt.options import MqttOptions


def tls_context(options: MqttOptions) -> ssl.SSLContext:
    """Build the TLS context of a connection. Blocks: reads the files.

    Raises:
        OSError: A file cannot be read or is invalid.
        ValueError: The key is encrypted, or a file name has a NUL.
    """
    expected = None if options.sha256 is None else bytes.fromhex(options.sha256.replace(":", "").strip())
    if expected is None and not options.insecure:
        context = ssl.create_default_context(cafile=options.ca_file)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.sslsocket_class = _pinning_socket(expected)  # the password must not be sent before the check
    if options.cert_file is not None:
        context.load_cert_chain(options.cert_file, options.key_file, password=_no_password)
    return context


def _no_password() -> str:
    raise ValueError("the key of cert_file is encrypted; store it without a passphrase, readable by this user only")


def _pinning_socket(expected: bytes | None) -> type[ssl.SSLSocket]:
    class PinningSocket(ssl.SSLSocket):
        """A socket that is closed if the handshake fails or the certificate does not have the expected fingerprint."""

        def do_handshake(self, block: bool = False) -> None:
            try:
                super().do_handshake(block)
                shown = hashlib.sha256(self.getpeercert(binary_form=True) or b"").digest()
                if expected is not None and shown != expected:
                    raise ssl.SSLCertVerificationError(
                        f"the certificate's SHA-256 fingerprint is {shown.hex(':')}, not the pinned one"
                    )
            except BaseException:
                self.close()  # paho would leave it to the garbage collector
                raise

    return PinningSocket
