"""What the simulated switches with an HTTP API share: HTTP Basic, and common responses."""

import json
from base64 import b64decode
from binascii import Error as NotBase64Error

from exporter.outputs.reply import Reply
from exporter.outputs.request import Request

JSON = "application/json"


def basic_credentials(request: Request) -> tuple[str, str] | None:
    """Return user and password of HTTP Basic; None where the request has none."""
    scheme, _, token = request.headers.get(b"authorization", b"").partition(b" ")
    try:
        user, _, password = b64decode(token, validate=True).decode().partition(":")
    except (NotBase64Error, UnicodeDecodeError):
        return None
    return (user, password) if scheme == b"Basic" else None


def json_reply(
    value: object, status: int = 200, *headers: tuple[bytes, bytes], kind: str = JSON, padding: int = 0
) -> Reply:
    """Return a response with JSON of the media type `kind`, followed by `padding` bytes of white space."""
    body = json.dumps(value).encode() + b" " * padding
    return Reply(status, ((b"content-type", kind.encode()), *headers), (body,))


def web_page() -> Reply:
    """Return the response of a web server without the API."""
    body = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>It works.</body></html>"
    return Reply(200, ((b"content-type", b"text/html"),), (body,))
