"""Shares of what is bounded: no owner takes what others need, however many names it invents."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.core.shares import GRACE_SECONDS, PROVEN_FOR_SECONDS, PROVEN_SECONDS, Admission, Shares

LIMIT = 12


def fill(shares, owner, limit=LIMIT):
    """Add as much as an owner may hold; return its amount."""
    while shares.has_room(owner, limit):
        shares.add(owner)
    return shares.held(owner)


def test_the_only_owner_may_hold_all():
    assert fill(Shares(), "a") == LIMIT


def test_owners_that_want_all_get_the_same_and_leave_as_much():
    """Choudhury and Hahne (1998), with alpha = 1: n owners hold B / (n + 1) each, and as much stays free."""
    shares = Shares()
    for owner in "abc":
        shares.add(owner)
    for _ in range(LIMIT):
        for owner in "abc":
            if shares.has_room(owner, LIMIT):
                shares.add(owner)
    assert [shares.held(owner) for owner in "abc"] == [LIMIT // 4] * 3
    assert fill(shares, "d") == 2, "half of what was free: the rest is for the next"


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-5, 5))))
def test_the_limit_is_never_exceeded_and_the_sum_is_that_of_the_amounts(steps):
    shares = Shares()
    for owner, amount in steps:
        if amount < 0:
            shares.remove(owner, -amount)
        elif amount and shares.has_room(owner, LIMIT, amount=amount):
            shares.add(owner, amount)
        assert shares.total == sum(map(shares.held, "abcd")) <= LIMIT


def test_one_owner_has_a_limit_of_its_own_too():
    shares = Shares()
    while shares.has_room("a", LIMIT, largest=4):
        shares.add("a")
    assert shares.held("a") == 4


def report_all(admission, keys, owner, now, limit=4, **other):
    return [admission.report(key, owner, now, limit, **other)[0] for key in keys]


def test_an_owner_with_fewer_keys_takes_the_place_of_one_with_more():
    admission = Admission()
    assert report_all(admission, "abcde", "evil", 0.0) == [True] * 4 + [False]
    assert admission.report("x", "real", 0.0, 4) == (True, "a")
    assert admission.report("y", "real", 0.0, 4) == (True, "b")
    assert admission.report("z", "real", 0.0, 4) == (False, None), "two each"
    assert report_all(admission, "fgh", "evil", 1.0) == [False] * 3
    assert admission.keys() == set("cdxy")


def test_of_many_owners_the_key_goes_that_was_not_reported_for_longest_and_never_a_proven_one():
    admission = Admission()
    for now in (0.0, PROVEN_SECONDS):
        admission.report("long", "h1", now, 4)
    for owner in ("h2", "h3"):
        admission.report("shared", owner, PROVEN_SECONDS, 4)
    begun = PROVEN_SECONDS
    for place, key in enumerate("ab"):
        admission.report(key, f"evil{place}", begun + place, 4)
    assert admission.report("c", "evil2", begun + GRACE_SECONDS - 0.5, 4) == (False, None)
    assert admission.report("c", "evil2", begun + GRACE_SECONDS, 4) == (True, "a")
    assert admission.report("d", "evil3", begun + GRACE_SECONDS + 1, 4) == (True, "b")
    assert admission.keys() == {"long", "shared", "c", "d"}


def test_a_key_that_is_no_longer_reported_is_no_longer_proven():
    admission = Admission()
    for now in (0.0, PROVEN_SECONDS):
        admission.report("long", "h1", now, 1)
    last = PROVEN_SECONDS
    assert admission.report("a", "h2", last + PROVEN_FOR_SECONDS - 1, 1) == (False, None)
    assert admission.report("a", "h2", last + PROVEN_FOR_SECONDS, 1) == (True, "long")


def test_one_owner_may_have_so_many_and_its_idle_key_gives_way_to_its_new_one():
    admission = Admission()
    assert report_all(admission, "abc", "h", 0.0, limit=100, of_one=2) == [True, True, False]
    assert admission.report("c", "h", GRACE_SECONDS, 100, 2) == (True, "a")


def test_a_forgotten_key_leaves_nothing():
    admission = Admission()
    report_all(admission, "abcd", "h", 0.0)
    for key in "abcd":
        admission.forget(key)
    assert len(admission) == 0
    assert report_all(admission, "abcd", "i", 0.0) == [True] * 4
