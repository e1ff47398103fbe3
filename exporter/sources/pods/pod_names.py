"""Names of pods, as Kubernetes allows them, and the other words that files and kubelet give about a pod.

What they give is a label value later, so it is checked here once: a name that Kubernetes would not accept is an error,
not a label.
"""

from exporter.sources.pods.model import PodOwner

MAX_LABEL = 63
"""Characters of a DNS label (RFC 1123): the name of a namespace or of a container."""

MAX_SUBDOMAIN = 253
"""Characters of a DNS subdomain: the name of a pod."""

MAX_UID = 64
"""Characters of a UID: 36 of a UUID, or the 32 hexadecimal digits of a static pod."""

_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
_UID = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")


def pod_owner(namespace: str, name: str, uid: str = "", container: str = "") -> PodOwner:
    """Return the pod of these names.

    Args:
        namespace: Its namespace.
        name: Its name.
        uid: Its UID; empty if unknown.
        container: One of its containers; empty if unknown.

    Raises:
        ValueError: Kubernetes would not accept one of them.
    """
    _check("namespace", namespace, MAX_LABEL, _NAME - {"."})
    _check("pod", name, MAX_SUBDOMAIN, _NAME)
    if uid:
        _check("UID", uid, MAX_UID, _UID)
    if container:
        _check("container", container, MAX_LABEL, _NAME - {"."})
    return PodOwner(namespace, name, uid, container)


def plain_word(text: str, limit: int) -> str:
    """Return a text that fits a label: printable ASCII without spaces; anything else becomes empty.

    Args:
        text: The text.
        limit: Most characters.
    """
    is_plain = len(text) <= limit and text.isascii() and text.isprintable() and " " not in text
    return text if is_plain else ""


def _check(what: str, text: str, limit: int, allowed: frozenset[str]) -> None:
    ends = frozenset("-.")
    if not 0 < len(text) <= limit or not allowed.issuperset(text) or text[0] in ends or text[-1] in ends:
        raise ValueError(f"not the name of a {what}: {text[: limit + 1]!r}")
