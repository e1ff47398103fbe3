"""The simulated agent: its rows and faults, and recordings; bytes on the wire are looked at, and net-snmp asks too."""

import asyncio
import contextlib
import subprocess

import pytest

from exporter.config.errors import UserError
from exporter.simulator.replay import replay
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.snmp_faults import SnmpFaults
from exporter.simulator.snmp_rows import Raw, Rows
from exporter.snmp import ber
from exporter.snmp import recording as snmp_recording
from exporter.snmp.ber import Typed, encode_oid
from exporter.snmp.client import SnmpClient
from exporter.snmp.message import (
    GET,
    GETBULK,
    GETNEXT,
    V2C,
    decode_message,
    encode_message,
    encode_pdu,
    encode_varbind,
)
from exporter.snmp.recording import dump, load, parse
from tests.helpers.paths import FIXTURES

COLUMN = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 6)
OTHER = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 10)
ROWS = {(*column, port): Typed(ber.COUNTER64, port) for column in (COLUMN, OTHER) for port in range(1, 6)}


def ask(agent, kind, oids, *, repetitions=0, request_id=7):
    """Send one request to an agent; return the numbers of each response and its variables, or None without one."""
    pdu = encode_pdu(kind, request_id, 0, repetitions, [encode_varbind(encode_oid(oid)) for oid in oids])
    replies = agent.answer(encode_message(V2C, b"public", pdu))
    if not replies:
        return None
    (reply,) = replies
    made = decode_message(reply).pdu
    return made.request_id, [(ber.decode_oid(name), tag, value) for name, tag, value in made.varbinds]


def order(agent, prefix=COLUMN):
    """List the indexes below a prefix in the order in which GETNEXT gives them."""
    seen, oid = [], prefix
    while len(seen) < 20:
        ((oid, tag, _),) = ask(agent, GETNEXT, [oid])[1]
        if tag == ber.END_OF_MIB_VIEW or oid[: len(prefix)] != prefix:
            break
        seen.append(oid[len(prefix) :])
    return seen


# --- rows


def test_a_bulk_goes_row_by_row_and_on_into_the_next_column():
    _, varbinds = ask(SnmpAgent(ROWS), GETBULK, [(*COLUMN, 3), OTHER], repetitions=3)
    assert [name for name, _, _ in varbinds] == [
        (*COLUMN, 4), (*OTHER, 1), (*COLUMN, 5), (*OTHER, 2), (*OTHER, 1), (*OTHER, 3)
    ]  # fmt: skip


def test_a_bulk_returns_end_of_mib_view_once_for_each_name():
    _, varbinds = ask(SnmpAgent(ROWS), GETBULK, [(*OTHER, 4), (1, 4)], repetitions=50)
    assert varbinds == [
        ((*OTHER, 5), ber.COUNTER64, 5),
        ((1, 4), ber.END_OF_MIB_VIEW, None),
        ((*OTHER, 5), ber.END_OF_MIB_VIEW, None),
        ((1, 4), ber.END_OF_MIB_VIEW, None),
    ]


def test_a_bulk_ends_where_the_reply_is_full():
    agent = SnmpAgent(ROWS, max_reply=120)
    _, varbinds = ask(agent, GETBULK, [COLUMN], repetitions=2**31 - 1)
    assert 0 < len(varbinds) < 5
    pdu = encode_pdu(GETBULK, 1, 0, 2**31 - 1, [encode_varbind(encode_oid(COLUMN))])
    assert all(len(reply) <= 120 for reply in agent.answer(encode_message(V2C, b"public", pdu)))


def test_the_quick_walk_and_the_one_step_by_step_agree():
    """A fault that never strikes takes the way of single steps."""
    quick = SnmpAgent(ROWS)
    slow = SnmpAgent(ROWS, faults=SnmpFaults(truncate={(1, 3, 9): 1}))
    for names in ([(1, 3)], [COLUMN, OTHER], [(*COLUMN, 5), (*OTHER, 4), (1, 3)], [(2, 5)]):
        for repetitions in (0, 1, 4, 30):
            assert ask(quick, GETBULK, names, repetitions=repetitions) == ask(
                slow, GETBULK, names, repetitions=repetitions
            )


def test_added_and_removed_rows_are_walked_in_order():
    agent = SnmpAgent(ROWS)
    agent.set_many({(*COLUMN, 300): Typed(ber.COUNTER64, 1), (*COLUMN, 128): Typed(ber.COUNTER64, 1)})
    agent.remove((*COLUMN, 2))
    assert order(agent) == [(1,), (3,), (4,), (5,), (128,), (300,)]
    with pytest.raises(KeyError):
        agent.remove((*COLUMN, 2))
    agent.clear()
    assert ask(agent, GET, [(*COLUMN, 1)])[1] == [((*COLUMN, 1), ber.NO_SUCH_INSTANCE, None)]


def test_agents_that_share_rows_answer_the_same():
    rows = Rows(ROWS)
    one, two = SnmpAgent(rows), SnmpAgent(rows)
    one.set((*COLUMN, 1), Typed(ber.COUNTER64, 99))
    assert ask(two, GET, [(*COLUMN, 1)])[1] == [((*COLUMN, 1), ber.COUNTER64, 99)]


@pytest.mark.parametrize(
    ("content", "tag", "value"),
    [
        (b"\x46\x09\x00\x00\x00\x00\x00\x00\x00\x00\x05", ber.COUNTER64, 5),  # padded
        (b"\x46\x08\xff\xff\xff\xff\xff\xff\xff\xfe", ber.COUNTER64, 2**64 - 2),  # negative, to whom reads it signed
        (b"\x06\x00", ber.OBJECT_IDENTIFIER, ()),
        (b"\x04\x00", ber.OCTET_STRING, b""),
        (b"\x46\x00", ber.MALFORMED, None),
        (b"\x46\x09\x01\x00\x00\x00\x00\x00\x00\x00\x00", ber.MALFORMED, None),  # 65 bits
    ],
)
def test_a_row_may_have_any_bytes_and_costs_the_others_nothing(content, tag, value):
    agent = SnmpAgent(ROWS | {(*COLUMN, 3): Raw(content)})
    _, varbinds = ask(agent, GETBULK, [COLUMN], repetitions=4)
    assert varbinds[2] == ((*COLUMN, 3), tag, value)
    assert varbinds[3] == ((*COLUMN, 4), ber.COUNTER64, 4)


# --- faults


def test_unsorted_columns_have_each_two_rows_swapped_and_lose_none():
    agent = SnmpAgent(ROWS, faults=SnmpFaults(unsorted={COLUMN}))
    assert order(agent) == [(2,), (1,), (4,), (3,), (5,)]
    assert order(agent, OTHER) == [(1,), (2,), (3,), (4,), (5,)]


def test_a_late_response_follows_the_retry_with_the_first_request_id():
    agent = SnmpAgent(ROWS, faults=SnmpFaults(late=True))
    assert ask(agent, GET, [(*COLUMN, 1)], request_id=1) is None
    assert ask(agent, GET, [(*COLUMN, 2)], request_id=2) is None
    assert ask(agent, GET, [(*COLUMN, 1)], request_id=3)[0] == 1
    assert ask(agent, GET, [(*COLUMN, 1)], request_id=4) is None


def test_an_agent_that_filters_duplicates_answers_no_id_twice():
    agent = SnmpAgent(ROWS, faults=SnmpFaults(filter_duplicates=True))
    assert ask(agent, GET, [(*COLUMN, 1)], request_id=1) is not None
    assert ask(agent, GET, [(*COLUMN, 1)], request_id=1) is None
    assert ask(agent, GET, [(*COLUMN, 1)], request_id=2) is not None


async def test_a_client_gets_on_with_agents_that_answer_late_or_filter_duplicates():
    for faults in (SnmpFaults(late=True), SnmpFaults(filter_duplicates=True, drop_every=3)):
        async with SnmpAgent(ROWS, faults=faults, max_reply=120) as agent:
            address = "{}:{}".format(*await agent.start())
            async with SnmpClient(address, "public", timeout=0.1, retries=3, deadline=60) as client:
                result = await client.walk([COLUMN, OTHER])
        assert result.columns[COLUMN].rows == {(port,): port for port in range(1, 6)}
        assert result.columns[OTHER].rows == {(port,): port for port in range(1, 6)}
        assert client.counters.retries


async def test_a_reply_may_come_from_another_port():
    loop = asyncio.get_running_loop()
    came = loop.create_future()

    class Asker(asyncio.DatagramProtocol):
        def datagram_received(self, data, addr):
            came.set_result((data, addr))

    async with SnmpAgent(ROWS, faults=SnmpFaults(other_port=True)) as agent:
        target = await agent.start()
        transport, _ = await loop.create_datagram_endpoint(Asker, local_addr=("127.0.0.1", 0))
        pdu = encode_pdu(GET, 5, 0, 0, [encode_varbind(encode_oid((*COLUMN, 1)))])
        transport.sendto(encode_message(V2C, b"public", pdu), target)
        data, sender = await asyncio.wait_for(came, 20)
        transport.close()
    assert decode_message(data).pdu.request_id == 5
    assert sender[0] == target[0]
    assert sender[1] != target[1]


# --- recordings

RECORDED = [
    ("librenms/arista_eos.snmprec", 9547, 0),
    ("librenms/arista_eos_7280r.snmprec", 20888, 0),
    ("librenms/arubaos-cx_100gb.snmprec", 5282, 0),
    ("librenms/cumulus_bgp.snmprec", 34675, 0),
    ("librenms/cumulus_cumulus.snmprec", 1463, 0),
    ("librenms/cumulus_edgecore-as4610-54p.snmprec", 4968, 0),
    ("librenms/dell-os10.snmprec", 2898, 0),
    ("librenms/edgecos_dcs203.snmprec", 12487, 0),
    ("librenms/junos_qfx5100.snmprec", 3336, 0),
    ("librenms/mellanox_i5035.snmprec", 2, 0),
    ("librenms/nxos_n3k-3064pq.snmprec", 5858, 4),  # addresses that are `<private>`
    ("librenms/ocnos_as7712-32x.snmprec", 5391, 0),
    ("snmpsim-data/arista-dcs-7150s-52-cl.snmprec", 22352, 1),  # a row twice, the second time a string
    ("snmpsim-data/cisco-n5000.snmprec", 34261, 1),  # a row twice
]
"""Rows and problems: together the lines of each file that are no comments."""


def check_recording(path, rows, problems):
    lines = [line for line in path.read_bytes().splitlines() if line and not line.startswith(b"#")]
    recording = load(path)
    assert (path.name, len(recording.rows), len(recording.problems)) == (path.name, rows, problems)
    assert rows + problems == len(lines)
    again = parse(dump(recording.rows).encode())
    assert again.rows == recording.rows
    assert again.problems == []


def test_every_recording_of_a_real_switch_is_read(corpus):
    folder = corpus / "switch" / "snmprec"
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.snmprec"))
    assert found == sorted(name for name, _, _ in RECORDED)
    for name, rows, problems in RECORDED:
        check_recording(folder / name, rows, problems)


OWN_RECORDINGS = sorted((FIXTURES / "switch-snmp").glob("*.snmprec"))


def test_there_are_recordings_without_the_corpus():
    assert len(OWN_RECORDINGS) >= 9


@pytest.mark.parametrize("path", OWN_RECORDINGS, ids=lambda path: path.stem)
def test_every_recording_of_the_project_is_read(path):
    lines = path.read_text().splitlines()
    check_recording(path, sum(bool(line) and not line.startswith("#") for line in lines), 0)


def test_each_type_of_a_recording_is_read_and_written():
    lines = [
        "1.3.6.1.2.1.1.1.0|4|Switch | of tests",
        "1.3.6.1.2.1.1.2.0|6|1.3.6.1.4.1.9",
        "1.3.6.1.2.1.1.3.0|67|4711",
        "1.3.6.1.2.1.1.5.0|4x|c3a9ff",
        "1.3.6.1.2.1.1.7.0|2|-5",
        "1.3.6.1.2.1.2.2.1.22.1|6|",
        "1.3.6.1.2.1.4.20.1.1.1|64|192.0.2.1",
        "1.3.6.1.4.1.9.1|5|",
        "1.3.6.1.4.1.9.2|65|4294967295",
        "1.3.6.1.4.1.9.3|66|7",
        "1.3.6.1.4.1.9.4|68x|9f7804",
        "1.3.6.1.4.1.9.5|70|18446744073709551615",
    ]
    text = "\n".join(lines) + "\n"
    recording = parse(text.encode())
    assert recording.problems == []
    assert list(recording.rows.values()) == [
        Typed(ber.OCTET_STRING, b"Switch | of tests"),
        Typed(ber.OBJECT_IDENTIFIER, (1, 3, 6, 1, 4, 1, 9)),
        Typed(ber.TIME_TICKS, 4711),
        Typed(ber.OCTET_STRING, b"\xc3\xa9\xff"),
        Typed(ber.INTEGER, -5),
        Typed(ber.OBJECT_IDENTIFIER, ()),
        Typed(ber.IP_ADDRESS, bytes((192, 0, 2, 1))),
        Typed(ber.NULL, None),
        Typed(ber.COUNTER32, 2**32 - 1),
        Typed(ber.GAUGE32, 7),
        Typed(ber.OPAQUE, b"\x9f\x78\x04"),
        Typed(ber.COUNTER64, 2**64 - 1),
    ]
    assert dump(recording.rows) == text
    assert parse(b"1.3.6.1.4.1.9.1|64x|c0000201\r\n# a comment\n\n").rows == {
        (1, 3, 6, 1, 4, 1, 9, 1): Typed(ber.IP_ADDRESS, bytes((192, 0, 2, 1)))
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1.3.6.1.2.1.1.1.0", "is not OID|TAG|VALUE"),
        ("1.3.6.1.2.1.1.3.0|67:numeric|rate=1", "1.3.6.1.2.1.1.3.0: the value needs the variation module 'numeric'"),
        ("1.3.6.1.2.1.1.3.0|x|1", "'x' is not the number of a type"),
        ("1.3.6.1.2.1.1.3.0|66|-1", "1.3.6.1.2.1.1.3.0: Gauge32 cannot be -1"),
        ("1.3.6.1.2.1.1.3.0|65|4294967296", "Counter32 cannot be 4294967296"),
        ("1.3.6.1.2.1.1.3.0|65|many", "'many' is not a number"),
        ("1.3.6.1.2.1.1.3.0|4x|xyz", "'xyz' is not hexadecimal"),
        ("1.3.6.1.2.1.1.3.0|64|<private>", "'<private>' is not an IPv4 address"),
        ("1.3.6.1.2.1.1.3.0|99|1", "type 99 is not a type of a row"),
        ("1.3.six|2|1", "'1.3.six' is not an object identifier"),
        ("1.3.6.1.1|2|9", "1.3.6.1.1 is a duplicate; the first one is kept"),
        ("1.3.6.1.2.1.1.3.0|65|" + "9" * 5000, "is not a number"),
    ],
)
def test_an_unreadable_line_of_a_recording_is_skipped_and_reported(line, message):
    recording = parse(f"1.3.6.1.1|2|1\n{line}\n1.3.6.1.2|2|2\n".encode())
    assert recording.rows == {(1, 3, 6, 1, 1): Typed(ber.INTEGER, 1), (1, 3, 6, 1, 2): Typed(ber.INTEGER, 2)}
    (problem,) = recording.problems
    assert problem.startswith("line 2: ")
    assert message in problem
    assert len(problem) < 300


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(snmp_recording, "MAX_BYTES", 10)
    path = tmp_path / "large.snmprec"
    path.write_text("1.3.6.1.1|2|1\n")
    with pytest.raises(ValueError, match=r"large\.snmprec: larger than"):
        load(path)


async def test_a_recording_is_served_and_net_snmp_reads_it(program, tmp_path):
    path = tmp_path / "one.snmprec"
    path.write_text("1.3.6.1.2.1.1.3.0|67|4711\n1.3.6.1.2.1.31.1.1.1.6.1|70|18446744073709551615\nbroken\n")
    lines = []
    ready = asyncio.Event()

    def report(line):
        lines.append(line)
        if "rows at" in line:
            ready.set()

    serving = asyncio.create_task(replay(path, "127.0.0.1", 0, community="secret", report=report))
    try:
        await asyncio.wait_for(ready.wait(), 20)
        address = lines[-1].split()[3].rstrip(",")
        command = [program("snmpget"), "-v2c", "-c", "secret", "-m", "", "-On", "-t", "20", f"udp:{address}"]
        process = await asyncio.create_subprocess_exec(
            *command, ".1.3.6.1.2.1.31.1.1.1.6.1", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        out, _ = await process.communicate()
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    assert out.decode().split() == [".1.3.6.1.2.1.31.1.1.1.6.1", "=", "Counter64:", "18446744073709551615"]
    assert lines[0] == f"{path}: line 3: 'broken' is not OID|TAG|VALUE"


async def test_a_recording_without_rows_is_refused(tmp_path):
    path = tmp_path / "empty.snmprec"
    path.write_text("# nothing\n")
    with pytest.raises(UserError, match="contains no row"):
        await replay(path, "127.0.0.1", 0)
