"""The v3 client with drifting clocks, forged and corrupted responses, and responses out of order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.snmp_v3 import Engine, OpenedRequest
from exporter.snmp import v3
from exporter.snmp.ber import COUNTER32, Typed
from exporter.snmp.client import SnmpClient
from exporter.snmp.errors import DecodeError, SnmpAuthenticationError, SnmpTimeout
from exporter.snmp.exchange import MAX_VARBINDS
from exporter.snmp.message import (
    GET,
    RESPONSE,
    V1,
    encode_pdu,
)
from exporter.snmp.security import (
    Authentication,
    Community,
    Privacy,
    User,
)
from exporter.snmp.session import MismatchError, UserSession, Verdict

COLUMNS = [(1, 3, 6, 1, 2, 1, 31, 1, 1, 1, number) for number in range(6, 14)]
ROWS = {(*column, port): Typed(COUNTER32, 2**31 + port * column[-1]) for column in COLUMNS for port in range(1, 65)}
WANTED = {column: {(port,): 2**31 + port * column[-1] for port in range(1, 65)} for column in COLUMNS}
SIGNED = User("signed", Authentication.SHA256, b"authentication-1")
PRIVATE = User("private", Authentication.SHA256, b"authentication-1", Privacy.AES, b"privacy-secret-2")
DES = User("des", Authentication.MD5, b"authentication-1", Privacy.DES, b"privacy-secret-2")
USERS = [SIGNED, PRIVATE, DES]
EVERYBODY = pytest.mark.parametrize(
    "credentials", [Community(b"public", V1), Community(b"public"), PRIVATE], ids=["v1", "v2c", "v3"]
)


@pytest.fixture
async def agent():
    async with SnmpAgent(ROWS, engine=Engine(USERS)) as running:
        running.address = "{}:{}".format(*await running.start())
        yield running


def narrow(agent):
    """Make an agent of v2c and v3 need several requests, by room for a few variables in each response."""
    agent._room = 400


def rows(result):
    return {oid: column.rows for oid, column in result.columns.items()}


def met(engine, session):
    """Run the engine discovery of a session."""
    assert session.handle_report(session.unwrap(engine.open(session.discovery(1))))[0] is Verdict.RESEND


def answered(engine, session, number):
    """Return the engine's answer to a question, or its report."""
    asked = engine.open(session.wrap(number, encode_pdu(GET, number, 0, 0, ())))
    return asked.wrap(encode_pdu(RESPONSE, number, 0, 0, ())) if isinstance(asked, OpenedRequest) else asked


# --- clocks


@pytest.mark.parametrize("pace", [0.9, 0.999, 1.0, 1.001, 1.1], ids=str)
def test_clock_drift_never_rejects_a_response(pace):
    """Each response contains the time; the reference is the last one received and not our own clock."""
    ours, theirs = [1000.0], [1000.0]
    engine = Engine(USERS, clock=lambda: theirs[0])
    session = UserSession(PRIVATE, clock=lambda: ours[0])
    met(engine, session)
    for number in range(2, 2500):  # 250,000 s, in which 0.1 % is more than the window of 150 s
        ours[0] += 100
        theirs[0] += 100 * pace
        assert session.unwrap(answered(engine, session, number)).kind == RESPONSE
    assert engine.reports == {4: 1}


def test_a_late_response_does_not_move_the_time_window():
    now = [1000.0]
    engine, session = Engine(USERS, clock=lambda: now[0]), UserSession(PRIVATE, clock=lambda: now[0])
    met(engine, session)
    now[0] += 10
    first = answered(engine, session, 2)
    now[0] += 100
    newest = answered(engine, session, 3)
    assert session.unwrap(newest)
    assert session.unwrap(first)  # a hundred seconds late: accepted, and the clock is not set back
    now[0] += 51
    with pytest.raises(MismatchError, match="outside of the time window"):
        session.unwrap(first)
    assert session.unwrap(newest)


def test_an_unsigned_report_does_not_set_the_clock_of_a_known_engine():
    engine, session = Engine(USERS), UserSession(PRIVATE)
    met(engine, session)
    right = answered(engine, session, 2)
    assert session.unwrap(right)
    liar = Engine([], engine_id=engine.engine_id, boots=99)
    verdict, _ = session.handle_report(session.unwrap(liar._report(4, v3.decode(session.discovery(3)))))
    assert verdict is Verdict.RESEND  # a bounded number of times
    assert session.boots == 1
    assert session.unwrap(right)


# --- responses to other requests


def test_a_response_with_the_right_msgid_and_another_request_id_is_rejected():
    engine, session = Engine(USERS), UserSession(PRIVATE)
    met(engine, session)
    asked = engine.open(session.wrap(2, encode_pdu(GET, 2, 0, 0, ())))
    with pytest.raises(DecodeError, match="message 2 answers request 3"):
        session.unwrap(asked.wrap(encode_pdu(RESPONSE, 3, 0, 0, ())))


@pytest.mark.parametrize("other", [{"users": [User("other")]}, {"engine_id": bytes.fromhex("80000000050102030405")}])
def test_an_unsigned_response_of_another_engine_or_user_is_rejected(other):
    """Without signatures, only names distinguish them."""
    engine, session = Engine([User("nobody")]), UserSession(User("nobody"))
    met(engine, session)
    assert session.unwrap(answered(engine, session, 2)).kind == RESPONSE
    liar = Engine(**{"users": [User("nobody")], "engine_id": engine.engine_id} | other)
    (keys,) = liar._keys.values()
    with pytest.raises(MismatchError, match="another engine or user"):
        session.unwrap(liar._wrap(keys, b"", 3, encode_pdu(RESPONSE, 3, 0, 0, ())))


def test_an_engine_id_that_is_too_long_is_rejected():
    engine, session = Engine(USERS, engine_id=bytes(33)), UserSession(PRIVATE)
    with pytest.raises(MismatchError, match="33 bytes"):
        session.unwrap(engine.open(session.discovery(1)))


@pytest.mark.parametrize(("boots", "time"), [(-1, 0), (0, -1), (2**31, 0), (0, 2**31), (2**40, 5)])
def test_boots_and_times_out_of_range_are_rejected(boots, time):
    """They would not fit the IV of the encryption."""
    data, _ = v3.encode(1, v3.AUTHENTICATED, (bytes(12), boots, time), b"private", b"0\0", signature_size=24)
    with pytest.raises(DecodeError, match=r"both are 0 to 2\^31 - 1"):
        v3.decode(data)


# --- rejected datagrams are counted, and cost no valid response


async def ask_through(agent, forge, asking=PRIVATE):
    """Walk the agent while `forge` returns datagrams for each response, which arrive before the response."""
    answer = agent.answer

    def answers(datagram):
        right = answer(datagram)
        return [*(forged for one in right for forged in forge(one)), *right]

    agent.answer = answers
    narrow(agent)
    async with SnmpClient(agent.address, asking, timeout=20) as client:
        result = await client.walk(COLUMNS)
    assert rows(result) == WANTED
    assert result.problems == []
    return client.counters


async def test_responses_with_a_wrong_signature_are_dropped_and_counted(agent):
    def forge(right):
        wrong = bytearray(right)
        wrong[-1] ^= 1
        return [bytes(wrong)]

    counters = await ask_through(agent, forge)
    assert counters.mismatched == counters.responses > 5  # the report at the beginning has no signature to break
    assert counters.retries == 0


async def test_responses_without_a_signature_are_dropped_and_counted(agent):
    """An agent without passwords, with the same user and engine ID, responds faster than the polled one."""
    liar = Engine([User("private")], engine_id=agent.engine.engine_id)
    numbers = []

    def forge(_right):
        number = numbers[-1]
        return [liar._wrap(liar._keys[b"private"], b"", number, encode_pdu(RESPONSE, number, 0, 0, ()))]

    opened = agent.engine.open

    class Listening(Engine):
        def open(self, data):
            found = opened(data)
            numbers.append(found.pdu.request_id if isinstance(found, OpenedRequest) else 1)
            return found

    agent.engine = Listening(USERS)
    counters = await ask_through(agent, forge)
    assert counters.mismatched == counters.responses + 1 > 5
    assert counters.retries == 0


async def test_old_responses_match_no_request(agent):
    seen = []

    def forge(right):
        old = seen[-1:]
        seen.append(right)
        return old

    counters = await ask_through(agent, forge)
    assert counters.unmatched + counters.mismatched == counters.requests - 1
    assert counters.retries == 0


# --- rejected users


async def test_a_wrong_privacy_password_is_named(agent):
    asking = User("private", Authentication.SHA256, b"authentication-1", Privacy.AES, b"not-the-secret")
    async with SnmpClient(agent.address, asking, timeout=20) as client:
        with pytest.raises(SnmpAuthenticationError, match=r"cannot decrypt .* privacy password and algorithm \(aes\)"):
            await client.get([next(iter(ROWS))])


@pytest.mark.parametrize(
    ("asking", "text"),
    [
        (User("unknown"), "does not know the user 'unknown'"),
        (User("private"), "rejects the security level of user 'private'"),
        (
            User("signed", Authentication.SHA256, b"another-password"),
            "rejects our signature; check the authentication pass",
        ),
        (User("signed", Authentication.SHA, b"authentication-1"), r"algorithm \(sha\)"),
    ],
)
async def test_rejections_are_raised_at_once_with_their_remedy(agent, asking, text):
    async with SnmpClient(agent.address, asking, timeout=20) as client:
        with pytest.raises(SnmpAuthenticationError, match=text) as caught:
            await client.walk(COLUMNS)
        assert client.counters.requests == 2
    assert agent.address in str(caught.value)
    assert "password" not in str(caught.value).replace("authentication password", "")


async def test_v1_repeats_a_get_without_the_missing_object(agent):
    """The error names it: one more request for each missing object, without splitting in halves."""
    have = list(ROWS)[:7]
    missing = [(*COLUMNS[0], 1000), (*COLUMNS[0], 1001)]
    async with SnmpClient(agent.address, Community(b"public", V1), timeout=20) as client:
        found = await client.get([*have[:3], *missing, *have[3:]])
    assert found.values == {oid: ROWS[oid] for oid in have}
    assert found.problems == []
    assert client.counters.requests == 3


# --- late and reordered responses


@EVERYBODY
async def test_late_responses_to_the_first_try_are_accepted(agent, credentials):
    """Each request is answered only after its retry, with the request-id of the first try."""
    agent.faults.late = True
    async with SnmpClient(agent.address, credentials, timeout=0.05, retries=4, deadline=60) as client:
        found = await client.get(list(ROWS)[:3])
    assert found.values == dict(list(ROWS.items())[:3])
    assert found.problems == []
    assert client.counters.responses == 1
    assert client.counters.unmatched == 0


@EVERYBODY
async def test_two_requests_in_flight_with_reordered_responses(agent, credentials):
    """The responses to two requests are held until both are there, and sent the second one first."""
    narrow(agent)
    answer, held, swapped = agent.answer, [], []

    def answers(datagram):
        held.append(answer(datagram))
        if len(held) < 2 and not agent.alone:
            return []
        out = [one for replies in reversed(held) for one in replies]
        swapped.append(len(held))
        held.clear()
        return out

    agent.alone = True
    async with SnmpClient(agent.address, credentials, window=2, timeout=0.5, retries=4, deadline=60) as client:
        await client.get([next(iter(ROWS))])  # run the engine discovery
        agent.answer, agent.alone = answers, False
        result = await client.walk(COLUMNS)
    assert rows(result) == WANTED
    assert result.problems == []
    assert swapped.count(2) > 5


async def test_a_lost_engine_discovery_does_not_shrink_requests(agent):
    """It is small: its loss does not depend on the size of requests."""
    answer = agent.answer
    asked = []
    agent.answer = lambda datagram: asked.append(1) or (answer(datagram) if len(asked) > 3 else [])
    async with SnmpClient(agent.address, PRIVATE, timeout=0.05, retries=8, deadline=60) as client:
        assert rows(await client.walk(COLUMNS)) == WANTED
        assert client.counters.retries >= 3
        assert client._state.varbinds == MAX_VARBINDS


async def test_an_agent_that_stops_responding_after_discovery(agent):
    async with SnmpClient(agent.address, PRIVATE, timeout=0.05, retries=1, deadline=60) as client:
        assert rows(await client.walk(COLUMNS)) == WANTED
        agent.faults.silent = True
        with pytest.raises(SnmpTimeout, match="no response to GETBULK"):
            await client.walk(COLUMNS)
        agent.faults.silent = False
        assert rows(await client.walk(COLUMNS)) == WANTED


# --- malformed datagrams


@given(st.sampled_from(USERS), st.integers(0, 10_000), st.integers(1, 255), st.integers(0, 400))
def test_no_corrupted_response_or_request_is_accepted(asking, place, change, size):
    """Every byte is signed, so any change or truncation is detected, and nothing else happens."""
    engine, session = Engine(USERS), UserSession(asking)
    met(engine, session)
    for right, read in (
        (answered(engine, session, 2), session.unwrap),
        (session.wrap(3, encode_pdu(GET, 3, 0, 0, ())), engine.open),
    ):
        spoiled = bytearray(right)
        spoiled[place % len(spoiled)] ^= change
        for one in (bytes(spoiled), right[: size % len(right)]):
            try:
                taken = read(one)
            except (DecodeError, MismatchError):
                continue
            assert not isinstance(taken, OpenedRequest)
            assert taken is None or isinstance(taken, bytes), taken
        assert read(right)
