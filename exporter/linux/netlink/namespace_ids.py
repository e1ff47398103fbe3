"""Ids of network namespaces by rtnetlink (RTM_GETNSID): the numbers by which links of one namespace refer to others.

Layouts: include/uapi/linux/net_namespace.h. Each namespace has its own numbers for others. The kernel allocates one
when it first needs it, such as in a dump that lists a link whose lower device is in another namespace.
"""

import struct

from exporter.linux.netlink.messages import attribute_u32, attributes

GET_NAMESPACE_ID = 90
"""RTM_GETNSID."""

_MESSAGE = struct.Struct("=Bxxx")  # rtgenmsg: family, padded
_ID = 1
_DESCRIPTOR = 3
_S32 = struct.Struct("=i")


def namespace_id_request(descriptor: int) -> bytes:
    """Encode the body of a request for the id of the namespace that a descriptor of this process leads to."""
    return _MESSAGE.pack(0) + attribute_u32(_DESCRIPTOR, descriptor)


def parse_namespace_id(body: bytes) -> int | None:
    """Parse the answer; None if the namespace has no id yet in the namespace of the socket."""
    found = dict(attributes(body, _MESSAGE.size)).get(_ID)
    if found is None or len(found) != _S32.size:
        return None
    number = int(_S32.unpack(found)[0])
    return number if number >= 0 else None
