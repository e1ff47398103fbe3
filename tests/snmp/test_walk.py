"""Walk and get as state machines: no sockets, the test passes the responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.snmp_faults import SnmpFaults
from exporter.snmp import ber
from exporter.snmp import walk as walk_module
from exporter.snmp.ber import Typed, encode_oid, encode_value
from exporter.snmp.exchange import AgentState, Reason
from exporter.snmp.get import Get
from exporter.snmp.message import (
    NO_ERROR,
    RESPONSE,
    V2C,
    Pdu,
    decode_message,
    encode_message,
    encode_pdu,
    encode_varbind,
)
from exporter.snmp.walk import Walk
from tests.helpers.paths import FIXTURES

IF_TABLE = (1, 3, 6, 1, 2, 1, 2, 2, 1)
IFX_TABLE = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
PFC = (1, 3, 111, 2, 802, 1, 1, 21, 1, 1, 1, 1)
DISCARDS, ERRORS = (*IF_TABLE, 13), (*IF_TABLE, 14)
NAME, IN, OUT = (*IFX_TABLE, 1), (*IFX_TABLE, 6), (*IFX_TABLE, 10)
PAUSES = (*PFC, 1)
COLUMNS = [NAME, IN, OUT, DISCARDS, ERRORS, PAUSES]
# Beyond 127 and beyond 16383, where the order of the encoded bytes is not that of the numbers.
PORTS = [*range(1, 20), 127, 128, 129, 16383, 16384, 436207616]


def rows():
    made = {}
    for port in PORTS:
        made[*NAME, port] = Typed(ber.OCTET_STRING, b"Eth1/%d" % port)
        made[*IN, port] = Typed(ber.COUNTER64, 2**64 - 1 - port)
        made[*OUT, port] = Typed(ber.COUNTER64, 2**53 + port)
        made[*DISCARDS, port] = Typed(ber.COUNTER32, port)
        made[*ERRORS, port] = Typed(ber.COUNTER32, 0)
        made |= {(*PAUSES, port, priority): Typed(ber.COUNTER64, 8 * port + priority) for priority in range(8)}
    return made


def expected(column, without=()):
    size = len(column)
    return {oid[size:]: value.value for oid, value in rows().items() if oid[:size] == column and oid not in without}


def drive(exchange, agent, *, limit=4000):
    """Run an exchange with an agent; a datagram without a response is a timeout."""
    for number in range(1, limit):
        request = exchange.next_request()
        if request is None:
            return number - 1
        pdu = encode_pdu(request.kind, number, 0, request.max_repetitions, map(encode_varbind, request.oids))
        replies = agent.answer(encode_message(V2C, b"public", pdu))
        if replies:
            exchange.on_response(request, decode_message(replies[-1]).pdu, len(replies[-1]))
            continue
        exchange.pacing.on_try_timeout(request.varbinds)
        if exchange.next_request().varbinds < request.varbinds:
            continue
        if exchange.pacing._try_timeouts >= 2 or exchange.pacing.timeouts:
            exchange.on_timeout(request)
        if exchange.pacing.is_unresponsive:
            exchange.abort(Reason.TIMEOUT, "gone")
    raise AssertionError("the exchange does not end")


def walk(agent, columns=COLUMNS, state=None, **options):
    machine = Walk(columns, state or AgentState(), **options)
    requests = drive(machine, agent)
    return machine.result(), requests


def reasons(result):
    return {problem.oid: problem.reason for problem in result.problems}


def test_all_columns_with_types_and_values():
    result, requests = walk(SnmpAgent(rows()))
    assert result.problems == []
    assert {oid: column.rows for oid, column in result.columns.items()} == {oid: expected(oid) for oid in COLUMNS}
    assert [result.columns[oid].tag for oid in COLUMNS] == [4, 0x46, 0x46, 0x41, 0x41, 0x46]
    assert list(result.columns[IN].rows) == [(port,) for port in PORTS]
    assert all(column.complete and not column.other_tags for column in result.columns.values())
    assert requests < 25  # 325 variables of about 25 bytes, 1,400 bytes a reply, three tables


def test_no_response_is_larger_than_a_frame():
    agent = SnmpAgent(rows(), max_reply=65000)
    machine = Walk(COLUMNS, AgentState())
    largest = 0
    while (request := machine.next_request()) is not None:
        pdu = encode_pdu(request.kind, 1, 0, request.max_repetitions, map(encode_varbind, request.oids))
        (reply,) = agent.answer(encode_message(V2C, b"public", pdu))
        largest = max(largest, len(reply))
        machine.on_response(request, decode_message(reply).pdu, len(reply))
    assert 700 < largest <= 1472


def test_the_last_column_of_the_view_and_missing_ones():
    missing = (1, 3, 6, 1, 2, 1, 10, 7, 10, 1, 3)
    behind_all = (1, 3, 111, 3)
    result, _ = walk(SnmpAgent(rows()), [missing, PAUSES, behind_all])
    assert result.problems == []
    assert result.columns[missing].rows == {}
    assert result.columns[behind_all].rows == {}
    assert result.columns[behind_all].complete
    assert result.columns[PAUSES].rows == expected(PAUSES)
    assert not result.empty


def test_an_empty_response_is_empty():
    result, _ = walk(SnmpAgent({}))
    assert result.empty
    assert result.problems == []


def test_columns_of_one_table_with_different_rows_are_kept_as_they_are():
    agent = SnmpAgent(rows())
    gone = [(*DISCARDS, 3), (*DISCARDS, 19), (*DISCARDS, 436207616)]
    for oid in gone:
        agent.remove(oid)
    result, _ = walk(agent)
    assert result.problems == []
    assert result.columns[DISCARDS].rows == expected(DISCARDS, gone)
    assert result.columns[ERRORS].rows == expected(ERRORS)


def test_a_truncated_column_affects_no_other_and_its_rest_can_be_read_by_get():
    agent = SnmpAgent(rows(), faults=SnmpFaults(truncate={IN: 5}))
    result, _ = walk(agent)
    assert list(result.columns[IN].rows) == [(port,) for port in PORTS[:5]]
    assert result.columns[OUT].rows == expected(OUT)
    get = Get([(*IN, port) for port in PORTS[5:]], AgentState())
    drive(get, agent)
    assert {oid[-1]: value for oid, value in get.result().values.items()} == {
        port: Typed(ber.COUNTER64, 2**64 - 1 - port) for port in PORTS[5:]
    }


def test_a_looping_column_ends_with_its_rows():
    result, _ = walk(SnmpAgent(rows(), faults=SnmpFaults(loop={IN})))
    assert reasons(result) == {IN: Reason.NOT_INCREASING}
    assert "row 1 came after row 436207616" in str(result.problems[0])
    assert {oid: column.rows for oid, column in result.columns.items()} == {oid: expected(oid) for oid in COLUMNS}
    assert not result.columns[IN].complete


def test_rows_in_any_order_are_kept_if_unordered():
    """Tables of LLDP neighbours have them: their first index is a time, which may decrease."""
    strict, _ = walk(SnmpAgent(rows(), faults=SnmpFaults(unsorted={IN})), [IN])
    assert reasons(strict) == {IN: Reason.NOT_INCREASING}
    loose, _ = walk(SnmpAgent(rows(), faults=SnmpFaults(unsorted={IN})), [IN], unordered=True)
    assert loose.problems == []
    assert loose.columns[IN].complete
    assert loose.columns[IN].rows == expected(IN)


def test_a_looping_column_ends_also_if_unordered():
    result, requests = walk(SnmpAgent(rows(), faults=SnmpFaults(loop={IN})), [IN], unordered=True)
    assert reasons(result) == {IN: Reason.NOT_INCREASING}
    assert result.columns[IN].rows == expected(IN)
    assert requests == 1


def test_an_agent_that_goes_back_to_an_earlier_subtree():
    walk_ = Walk([IN], AgentState())
    request = walk_.next_request()
    back = [(encode_oid((*IN, 1)), ber.COUNTER64, 5), (encode_oid((*NAME, 9)), ber.OCTET_STRING, b"x")]
    walk_.on_response(request, Pdu(RESPONSE, 1, NO_ERROR, 0, back), 60)
    assert walk_.next_request() is None
    assert walk_.result().columns[IN].rows == {(1,): 5}
    assert reasons(walk_.result()) == {IN: Reason.NOT_INCREASING}


def test_an_agent_that_invents_rows_is_cut_off():
    agent = SnmpAgent({(*IN, port): Typed(ber.COUNTER64, port) for port in range(1, 2000)})
    result, _ = walk(agent, [IN], max_rows=500)
    assert reasons(result) == {IN: Reason.ROW_LIMIT}
    assert 500 <= len(result.columns[IN].rows) < 500 + 128


def test_a_walk_over_the_size_limit_is_cut_off(monkeypatch):
    monkeypatch.setattr(walk_module, "MAX_BYTES", 100_000)
    agent = SnmpAgent({(*NAME, port): Typed(ber.OCTET_STRING, b"n" * 1000) for port in range(1, 2000)})
    result, _ = walk(agent, [NAME])
    assert reasons(result) == {NAME: Reason.SIZE_LIMIT}
    assert 50 < len(result.columns[NAME].rows) < 110


@pytest.mark.parametrize("most", [40, 10, 3, 1])
def test_too_big_shrinks_requests_and_is_remembered(most):
    agent = SnmpAgent(rows(), faults=SnmpFaults(too_big_above=most))
    state = AgentState()
    result, _ = walk(agent, state=state)
    assert result.problems == []
    assert result.columns[PAUSES].rows == expected(PAUSES)
    assert state.varbinds <= most
    again = Walk(COLUMNS, state)
    assert again.next_request().varbinds <= most


def test_too_big_for_anything_is_a_problem_of_each_column():
    result, _ = walk(SnmpAgent(rows(), faults=SnmpFaults(too_big_above=0)))
    assert reasons(result) == dict.fromkeys(COLUMNS, Reason.TOO_BIG)
    assert result.empty


def test_more_is_tried_again_after_clean_polls():
    agent = SnmpAgent(rows(), faults=SnmpFaults(too_big_above=5))
    state = AgentState()
    walk(agent, state=state)
    small = state.varbinds
    agent.faults.too_big_above = None
    for _ in range(20):
        assert state.varbinds == small
        walk(agent, state=state)
    assert state.varbinds == 2 * small


@pytest.mark.parametrize("without_index", [False, True])
def test_gen_err_is_isolated_and_remembered(without_index):
    agent = SnmpAgent(rows(), faults=SnmpFaults(gen_err={OUT}, gen_err_without_index=without_index))
    state = AgentState()
    # Without a column between them, the end of IN would lie in OUT, and the agent could not return it either.
    agent.set((*IFX_TABLE, 7, 1), Typed(ber.COUNTER64, 1))
    result, first = walk(agent, state=state)
    assert reasons(result) == {OUT: Reason.ERROR_STATUS}
    assert "genErr after 0 rows" in result.problems[0].detail
    for oid in set(COLUMNS) - {OUT}:
        assert result.columns[oid].rows == expected(oid)
    assert OUT in state.isolated
    _, second = walk(agent, state=state)
    assert second <= first


def test_an_agent_with_errors_everywhere_ends():
    result, requests = walk(SnmpAgent(rows(), faults=SnmpFaults(gen_err={(1,)})))
    assert reasons(result) == dict.fromkeys(COLUMNS, Reason.ERROR_STATUS)
    assert result.empty
    assert requests < 20


def test_a_column_that_times_out_affects_only_itself():
    result, _ = walk(SnmpAgent(rows(), faults=SnmpFaults(silent_on={ERRORS})))
    # DISCARDS ends where ERRORS begins, so its last request times out too; its rows are kept.
    assert reasons(result)[ERRORS] is Reason.TIMEOUT
    assert set(reasons(result)) <= {ERRORS, DISCARDS}
    for oid in set(COLUMNS) - {ERRORS}:
        assert result.columns[oid].rows == expected(oid)


def test_timeouts_of_large_requests_shrink_them_and_are_remembered():
    state = AgentState()
    result, _ = walk(SnmpAgent(rows(), faults=SnmpFaults(silent_above=9)), state=state)
    assert result.problems == []
    assert result.columns[PAUSES].rows == expected(PAUSES)
    assert state.varbinds <= 9


def test_timeouts_alone_do_not_change_the_state():
    state = AgentState()
    machine = Walk(COLUMNS, state)
    drive(machine, SnmpAgent(rows(), faults=SnmpFaults(silent=True)))
    result = machine.result()
    assert not machine.pacing.responded
    assert result.empty
    assert set(reasons(result).values()) == {Reason.TIMEOUT}
    assert state == AgentState()


def test_a_late_response_to_a_larger_try_is_accepted_for_all_its_columns():
    agent = SnmpAgent(rows())
    machine = Walk([NAME, IN, OUT], AgentState(varbinds=3))
    first = machine.next_request()
    machine.pacing.on_try_timeout(3)
    machine.pacing.on_try_timeout(3)
    assert len(machine.next_request().oids) == 1
    pdu = encode_pdu(first.kind, 1, 0, first.max_repetitions, map(encode_varbind, first.oids))
    machine.on_response(first, decode_message(agent.answer(encode_message(V2C, b"public", pdu))[0]).pdu, 100)
    drive(machine, agent)
    result = machine.result()
    assert result.problems == []
    assert {oid: column.rows for oid, column in result.columns.items()} == {
        oid: expected(oid) for oid in (NAME, IN, OUT)
    }


def feed(columns, varbinds):
    machine = Walk(columns, AgentState())
    request = machine.next_request()
    encoded = [encode_varbind(oid, value) for oid, value in varbinds]
    reply = encode_message(V2C, b"public", encode_pdu(RESPONSE, 1, 0, 0, encoded))
    machine.on_response(request, decode_message(reply).pdu, len(reply))
    return machine


def test_rows_of_other_types_and_malformed_rows_affect_only_themselves():
    number = encode_value(ber.COUNTER64, 5)
    machine = feed(
        [IN],
        [
            (encode_oid((*IN, 1)), number),
            (encode_oid((*IN, 2)), b"\x46\x00"),  # a number without bytes
            (b"", number),  # a name without numbers
            (encode_oid((*IN, 3)) + b"\x81", number),  # a name that ends inside a number
            (encode_oid((*IN, 999001)), encode_value(ber.OCTET_STRING, b"")),
            (encode_oid((*IN, 999002)), encode_value(ber.NULL, None)),
            (encode_oid((*IN, 999003)), number),
            (encode_oid(OUT), number),
        ],
    )
    assert machine.next_request() is None
    result = machine.result()
    column = result.columns[IN]
    assert column.rows == {(1,): 5, (999001,): b"", (999002,): None, (999003,): 5}
    assert column.other_tags == {(999001,): ber.OCTET_STRING, (999002,): ber.NULL}
    assert column.malformed == 3
    assert reasons(result) == {IN: Reason.MALFORMED}
    assert column.complete


@pytest.mark.parametrize("varbinds", [[], [(b"", encode_value(ber.COUNTER64, 5))] * 2])
def test_a_response_without_progress_ends_the_columns(varbinds):
    machine = feed([IN, OUT], varbinds)
    assert machine.next_request() is None
    result = machine.result()
    assert result.empty
    assert {problem.oid for problem in result.problems if problem.reason is Reason.NO_PROGRESS} == {IN, OUT}


def test_a_response_with_only_some_columns_is_followed_by_the_others():
    agent = SnmpAgent(rows(), max_reply=90)  # one variable, seldom two
    result, _ = walk(agent, [IN, OUT])
    assert result.problems == []
    assert result.columns[OUT].rows == expected(OUT)


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([*COLUMNS, (1, 3), (2, 1)]),
                st.lists(st.integers(0, 20000), max_size=2),
                st.sampled_from(sorted(ber.TAG_NAMES)),
            ),
            max_size=30,
        ),
        max_size=6,
    ),
    st.integers(0, 6),
)
def test_any_responses_leave_rows_in_order(responses, status):
    machine = Walk(COLUMNS, AgentState(), max_rows=50)
    for response in responses:
        request = machine.next_request()
        if request is None:
            break
        varbinds = [(encode_oid((*column, *tail)), tag, None if tag < 0 else 1) for column, tail, tag in response]
        machine.on_response(request, Pdu(RESPONSE, 1, status, status, varbinds), 500)
    machine.abort(Reason.TIMEOUT, "over")
    assert machine.next_request() is None
    for column in machine.result().columns.values():
        assert list(column.rows) == sorted(column.rows)
        assert set(column.other_tags) <= set(column.rows)


def test_get_distinguishes_missing_from_failed_objects():
    agent = SnmpAgent(rows(), faults=SnmpFaults(gen_err={ERRORS}))
    get = Get([(*IN, 1), (*ERRORS, 1), (*IN, 5000), (*NAME, 16384)], AgentState())
    drive(get, agent)
    result = get.result()
    assert result.values == {
        (*IN, 1): Typed(ber.COUNTER64, 2**64 - 2),
        (*NAME, 16384): Typed(ber.OCTET_STRING, b"Eth1/16384"),
    }
    assert reasons(result) == {(*ERRORS, 1): Reason.ERROR_STATUS}


def test_get_of_many_objects_with_too_big():
    agent = SnmpAgent(rows(), faults=SnmpFaults(too_big_above=4))
    wanted = [(*PAUSES, port, priority) for port in PORTS for priority in range(8)]
    get = Get(wanted, AgentState())
    drive(get, agent)
    result = get.result()
    assert result.problems == []
    assert set(result.values) == set(wanted)


def test_get_with_one_object_too_big():
    get = Get([(*IN, 1)], AgentState())
    drive(get, SnmpAgent(rows(), faults=SnmpFaults(too_big_above=0)))
    assert reasons(get.result()) == {(*IN, 1): Reason.TOO_BIG}


def test_get_of_malformed_and_omitted_values():
    get = Get([(*IN, 1), (*IN, 2)], AgentState())
    request = get.next_request()
    get.on_response(request, Pdu(RESPONSE, 1, 0, 0, [(encode_oid((*IN, 1)), ber.MALFORMED, None)]), 50)
    assert get.next_request() is None
    assert reasons(get.result()) == {(*IN, 1): Reason.MALFORMED, (*IN, 2): Reason.NO_PROGRESS}


def test_get_of_an_object_that_times_out_and_an_abort():
    get = Get([(*IN, 1), (*IN, 2)], AgentState())
    drive(get, SnmpAgent(rows(), faults=SnmpFaults(silent_on={(*IN, 2)})))
    result = get.result()
    assert set(result.values) == {(*IN, 1)}
    assert reasons(result) == {(*IN, 2): Reason.TIMEOUT}
    get = Get([(*IN, 1), (*IN, 2)], AgentState())
    get.abort(Reason.UNREACHABLE, "no way")
    assert get.next_request() is None
    assert reasons(get.result()) == {(*IN, 1): Reason.UNREACHABLE, (*IN, 2): Reason.UNREACHABLE}


RECORDED = {
    "2": ber.INTEGER,
    "4": ber.OCTET_STRING,
    "65": ber.COUNTER32,
    "66": ber.GAUGE32,
    "67": ber.TIME_TICKS,
    "70": ber.COUNTER64,
}


def read_recording(path):
    """Return the rows of a recording that are numbers or text: `OID|tag|value`, with an x after the tag for hex."""
    made = {}
    for line in path.read_text(encoding="latin-1").splitlines():
        oid, tag, value = line.split("|", 2) if line.count("|") >= 2 else ("", "", "")
        kind = RECORDED.get(tag.rstrip("xe"))
        if kind == ber.OCTET_STRING and len(value) < 1000:
            content = bytes.fromhex(value) if tag.endswith("x") else value.encode("latin-1")
            made[ber.parse_oid(oid)] = Typed(kind, content)
        elif kind is not None and value.lstrip("-").isdecimal():
            made[ber.parse_oid(oid)] = Typed(kind, int(value))
    return made


@pytest.mark.parametrize("most", [None, 10])
@pytest.mark.parametrize(("origin", "recordings_at_least", "rows_at_least"), [("own", 7, 300), ("corpus", 11, 10_001)])
def test_recorded_switches_are_walked_completely(request, most, origin, recordings_at_least, rows_at_least):
    own = FIXTURES / "switch-snapshots"
    folder = own if origin == "own" else request.getfixturevalue("corpus") / "switch" / "snmprec"
    recordings = sorted(path for path in folder.rglob("*.snmprec") if path.stem != "no-interfaces")
    assert len(recordings) >= recordings_at_least
    lldp = (1, 0, 8802, 1, 1, 2, 1, 4, 1, 1)
    columns = [(*table, number) for table in (IF_TABLE, IFX_TABLE, PFC, lldp) for number in range(1, 20)]
    walked = 0
    for path in recordings:
        recorded = read_recording(path)
        result, _ = walk(SnmpAgent(recorded, faults=SnmpFaults(too_big_above=most)), columns)
        assert result.problems == [], path.name
        seen = {
            (*oid, *index): Typed(column.other_tags.get(index, column.tag), value)
            for oid, column in result.columns.items()
            for index, value in column.rows.items()
        }
        wanted = set(columns)
        # One recording has values at columns themselves, which lie before the first row and so in no walk.
        assert seen == {
            oid: value
            for oid, value in recorded.items()
            if wanted & {oid[:10], oid[:11], oid[:13]} and oid not in wanted
        }
        walked += len(seen)
    assert walked >= rows_at_least
