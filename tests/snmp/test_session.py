"""What a client of v3 makes of clocks that run apart, forged and spoiled answers, and answers out of their order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.snmp_v3 import Engine, OpenedRequest
from exporter.snmp import v3
from exporter.snmp.ber import COUNTER32, Typed
from exporter.snmp.client import SnmpClient
from exporter.snmp.errors import DecodeError, SnmpAuthenticationError, SnmpTimeout
from exporter.snmp.message import (
    GET,
    RESPONSE,
    V1,
    encode_pdu,
)
from exporter.snmp.poll import MAX_VARBINDS
from exporter.snmp.security import (
    Authentication,
    Community,
    Privacy,
    User,
)
from exporter.snmp.session import ForeignError, UserSession, Verdict

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
    """Let an agent of v2c and v3 have more than one question, by room for a few variables in each answer."""
    agent._room = 400


def rows(result):
    return {oid: column.rows for oid, column in result.columns.items()}


def met(engine, session):
    """Let a session meet an engine."""
    assert session.reported(session.unwrap(engine.open(session.hello(1))))[0] is Verdict.AGAIN


def answered(engine, session, number):
    """Give the engine's answer to a question, or its report."""
    asked = engine.open(session.wrap(number, encode_pdu(GET, number, 0, 0, ())))
    return asked.wrap(encode_pdu(RESPONSE, number, 0, 0, ())) if isinstance(asked, OpenedRequest) else asked


# --- clocks


@pytest.mark.parametrize("pace", [0.9, 0.999, 1.0, 1.001, 1.1], ids=str)
def test_a_clock_of_another_pace_never_costs_an_answer(pace):
    """Each answer tells the time anew; what counts is what the agent said last, not how far our own clock has gone."""
    ours, theirs = [1000.0], [1000.0]
    engine = Engine(USERS, clock=lambda: theirs[0])
    session = UserSession(PRIVATE, clock=lambda: ours[0])
    met(engine, session)
    for number in range(2, 2500):  # 250,000 s, in which 0.1 % is more than the window of 150 s
        ours[0] += 100
        theirs[0] += 100 * pace
        assert session.unwrap(answered(engine, session, number)).kind == RESPONSE
    assert engine.reports == {4: 1}


def test_a_late_answer_does_not_widen_the_window():
    now = [1000.0]
    engine, session = Engine(USERS, clock=lambda: now[0]), UserSession(PRIVATE, clock=lambda: now[0])
    met(engine, session)
    now[0] += 10
    first = answered(engine, session, 2)
    now[0] += 100
    newest = answered(engine, session, 3)
    assert session.unwrap(newest)
    assert session.unwrap(first)  # a hundred seconds late: taken, and no reason to set the clock back
    now[0] += 51
    with pytest.raises(ForeignError, match="earlier time"):
        session.unwrap(first)
    assert session.unwrap(newest)


def test_a_report_that_nobody_signed_does_not_set_the_clock_of_an_engine_that_is_known():
    engine, session = Engine(USERS), UserSession(PRIVATE)
    met(engine, session)
    right = answered(engine, session, 2)
    assert session.unwrap(right)
    liar = Engine([], engine_id=engine.engine_id, boots=99)
    verdict, _ = session.reported(session.unwrap(liar._report(4, v3.decode(session.hello(3)))))
    assert verdict is Verdict.AGAIN  # a bounded number of times
    assert session.boots == 1
    assert session.unwrap(right)


# --- answers to something else


def test_an_answer_to_another_question_under_the_number_of_ours_is_not_taken():
    engine, session = Engine(USERS), UserSession(PRIVATE)
    met(engine, session)
    asked = engine.open(session.wrap(2, encode_pdu(GET, 2, 0, 0, ())))
    with pytest.raises(DecodeError, match="message 2 answers request 3"):
        session.unwrap(asked.wrap(encode_pdu(RESPONSE, 3, 0, 0, ())))


@pytest.mark.parametrize("other", [{"users": [User("other")]}, {"engine_id": bytes.fromhex("80000000050102030405")}])
def test_an_unsigned_answer_of_another_engine_or_user_is_not_taken(other):
    """Nothing but names tells them apart where nobody signs."""
    engine, session = Engine([User("nobody")]), UserSession(User("nobody"))
    met(engine, session)
    assert session.unwrap(answered(engine, session, 2)).kind == RESPONSE
    liar = Engine(**{"users": [User("nobody")], "engine_id": engine.engine_id} | other)
    (keys,) = liar._keys.values()
    with pytest.raises(ForeignError, match="another engine or user"):
        session.unwrap(liar._wrap(keys, b"", 3, encode_pdu(RESPONSE, 3, 0, 0, ())))


def test_an_identity_that_is_too_long_is_not_taken():
    engine, session = Engine(USERS, engine_id=bytes(33)), UserSession(PRIVATE)
    with pytest.raises(ForeignError, match="33 bytes"):
        session.unwrap(engine.open(session.hello(1)))


@pytest.mark.parametrize(("boots", "time"), [(-1, 0), (0, -1), (2**31, 0), (0, 2**31), (2**40, 5)])
def test_boots_and_times_beyond_what_there_can_be(boots, time):
    """They would not fit where the encryption begins."""
    data, _ = v3.encode(1, v3.AUTHENTICATED, (bytes(12), boots, time), b"private", b"0\0", signature_size=24)
    with pytest.raises(DecodeError, match="neither goes beyond"):
        v3.decode(data)


# --- what is refused is counted, and costs no answer that is right


async def ask_through(agent, forge, asking=PRIVATE):
    """Walk the agent while `forge` makes datagrams of each answer, which arrive before the answer itself."""
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


async def test_answers_with_a_wrong_signature_are_dropped_and_counted(agent):
    def forge(right):
        wrong = bytearray(right)
        wrong[-1] ^= 1
        return [bytes(wrong)]

    counters = await ask_through(agent, forge)
    assert counters.foreign == counters.replies > 5  # the report at the beginning has no signature to break
    assert counters.retries == 0


async def test_answers_without_a_signature_are_dropped_and_counted(agent):
    """An agent of no passwords, but the same name and identity, answers faster than the one that was asked."""
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
    assert counters.foreign == counters.replies + 1 > 5
    assert counters.retries == 0


async def test_old_answers_are_strays(agent):
    seen = []

    def forge(right):
        old = seen[-1:]
        seen.append(right)
        return old

    counters = await ask_through(agent, forge)
    assert counters.stray + counters.foreign == counters.requests - 1
    assert counters.retries == 0


# --- who is refused


async def test_a_wrong_password_of_the_encryption_is_named(agent):
    asking = User("private", Authentication.SHA256, b"authentication-1", Privacy.AES, b"not-the-secret")
    async with SnmpClient(agent.address, asking, timeout=20) as client:
        with pytest.raises(SnmpAuthenticationError, match=r"cannot decrypt .* privacy password and algorithm \(aes\)"):
            await client.get([next(iter(ROWS))])


@pytest.mark.parametrize(
    ("asking", "text"),
    [
        (User("stranger"), "does not know the user 'stranger'"),
        (User("private"), "not speak to the user 'private' at this level"),
        (User("signed", Authentication.SHA256, b"another-password"), "signature wrong; check the authentication pass"),
        (User("signed", Authentication.SHA, b"authentication-1"), r"algorithm \(sha\)"),
    ],
)
async def test_refusals_are_told_at_once_with_their_remedy(agent, asking, text):
    async with SnmpClient(agent.address, asking, timeout=20) as client:
        with pytest.raises(SnmpAuthenticationError, match=text) as caught:
            await client.walk(COLUMNS)
        assert client.counters.requests == 2
    assert agent.address in str(caught.value)
    assert "password" not in str(caught.value).replace("authentication password", "")


async def test_v1_asks_again_without_what_the_agent_lacks(agent):
    """Whose error names it: one question more for each, and not halves of halves."""
    have = list(ROWS)[:7]
    missing = [(*COLUMNS[0], 1000), (*COLUMNS[0], 1001)]
    async with SnmpClient(agent.address, Community(b"public", V1), timeout=20) as client:
        found = await client.get([*have[:3], *missing, *have[3:]])
    assert found.values == {oid: ROWS[oid] for oid in have}
    assert found.problems == []
    assert client.counters.requests == 3


# --- late and reordered answers


@EVERYBODY
async def test_late_answers_to_the_first_try_are_taken(agent, credentials):
    """Each question is answered once it is asked again, and then as it was asked first."""
    agent.faults.late = True
    async with SnmpClient(agent.address, credentials, timeout=0.05, retries=4, deadline=60) as client:
        found = await client.get(list(ROWS)[:3])
    assert found.values == dict(list(ROWS.items())[:3])
    assert found.problems == []
    assert client.counters.replies == 1
    assert client.counters.stray == 0


@EVERYBODY
async def test_two_questions_at_a_time_answered_in_the_wrong_order_are_not_mixed_up(agent, credentials):
    """The answers to two questions are held until both are there, and go out the second one first."""
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
        await client.get([next(iter(ROWS))])  # so that the agent is met
        agent.answer, agent.alone = answers, False
        result = await client.walk(COLUMNS)
    assert rows(result) == WANTED
    assert result.problems == []
    assert swapped.count(2) > 5


async def test_a_lost_question_who_is_there_is_no_reason_to_ask_for_less(agent):
    """Which is small: two losses of it say nothing of how much the agent can answer."""
    answer = agent.answer
    asked = []
    agent.answer = lambda datagram: asked.append(1) or (answer(datagram) if len(asked) > 3 else [])
    async with SnmpClient(agent.address, PRIVATE, timeout=0.05, retries=8, deadline=60) as client:
        assert rows(await client.walk(COLUMNS)) == WANTED
        assert client.counters.retries >= 3
        assert client._memory.varbinds == MAX_VARBINDS


async def test_an_agent_that_stays_silent_once_it_is_known(agent):
    async with SnmpClient(agent.address, PRIVATE, timeout=0.05, retries=1, deadline=60) as client:
        assert rows(await client.walk(COLUMNS)) == WANTED
        agent.faults.silent = True
        with pytest.raises(SnmpTimeout, match="no answer to GETBULK"):
            await client.walk(COLUMNS)
        agent.faults.silent = False
        assert rows(await client.walk(COLUMNS)) == WANTED


# --- junk


@given(st.sampled_from(USERS), st.integers(0, 10_000), st.integers(1, 255), st.integers(0, 400))
def test_no_spoiled_answer_or_question_is_taken(asking, place, change, size):
    """Every byte is under the signature, so that any change of one, or any cut, is found; and nothing else happens."""
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
            except (DecodeError, ForeignError):
                continue
            assert not isinstance(taken, OpenedRequest)
            assert taken is None or isinstance(taken, bytes), taken
        assert read(right)
