"""Sockets in namespaces that a late call opens while others are closed."""

import threading

from tests.helpers.fake_namespaces import FakeNamespaces


class Listed(dict):
    """A listing that another thread opens namespaces in as soon as it is looked at."""

    def __init__(self, refs, open_new):
        super().__init__(refs)
        self.thread = threading.Thread(target=open_new)

    def __getitem__(self, key):
        if self.thread.ident is None:
            self.thread.start()
            self.thread.join(0.2)
        return super().__getitem__(key)


def refs(*namespaces):
    return {one.key: one.ref for one in namespaces}


def test_a_late_call_may_open_namespaces_while_others_are_closed():
    namespaces = FakeNamespaces()
    first, second, gone, late = (namespaces.add(f"cni-{number}") for number in range(4))
    sockets = namespaces.access().sockets
    sockets.open_new(refs(first, second, gone))
    listed = Listed(refs(first, second), lambda: sockets.open_new(refs(first, second, late)))
    assert sockets.close_all_but(listed)
    listed.thread.join(5)
    assert sockets.namespaces.keys() == {first.key, second.key, late.key}
    assert [one.closed for one in (first, second, gone, late)] == [0, 0, 1, 0]
    sockets.close()
    sockets.open_new(refs(first))
    assert [one.closed for one in (first, second, gone, late)] == [1, 1, 1, 1]
    assert not sockets.namespaces
