"""SNMPv3 against pysnmp, a third implementation: it must read from the simulated agent in every algorithm there is."""

import asyncio

import pytest
from pysnmp.hlapi.v3arch import asyncio as theirs

from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.snmp_v3 import Engine
from exporter.snmp.ber import COUNTER64, Typed, format_oid
from exporter.snmp.security import Authentication, Privacy, User

COLUMN = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 6)
ROWS = {(*COLUMN, port): Typed(COUNTER64, 2**63 + port) for port in range(1, 9)}
SIGNED = {
    Authentication.MD5: theirs.USM_AUTH_HMAC96_MD5,
    Authentication.SHA: theirs.USM_AUTH_HMAC96_SHA,
    Authentication.SHA224: theirs.USM_AUTH_HMAC128_SHA224,
    Authentication.SHA256: theirs.USM_AUTH_HMAC192_SHA256,
    Authentication.SHA384: theirs.USM_AUTH_HMAC256_SHA384,
    Authentication.SHA512: theirs.USM_AUTH_HMAC384_SHA512,
}
ENCRYPTED = {
    Privacy.DES: theirs.USM_PRIV_CBC56_DES,
    Privacy.AES: theirs.USM_PRIV_CFB128_AES,
    Privacy.AES192: theirs.USM_PRIV_CFB192_AES_BLUMENTHAL,
    Privacy.AES256: theirs.USM_PRIV_CFB256_AES_BLUMENTHAL,
    Privacy.AES192C: theirs.USM_PRIV_CFB192_AES,
    Privacy.AES256C: theirs.USM_PRIV_CFB256_AES,
}


@pytest.fixture
async def engine():
    """Return pysnmp's engine, which keeps the keys it made."""
    made = theirs.SnmpEngine()
    yield made
    made.close_dispatcher()
    await asyncio.sleep(0)  # its socket is closed by the loop, a turn later


@pytest.mark.parametrize("privacy", [None, *Privacy])
async def test_pysnmp_reads_the_simulated_agent_in_every_algorithm(engine, privacy):
    users = [User(one.value, one, b"authentication-1", privacy, b"privacy-secret-2") for one in Authentication]
    async with SnmpAgent(ROWS, engine=Engine(users)) as agent:
        address = await agent.start()
        assert users
        for user in users:
            options = {"authKey": "authentication-1", "authProtocol": SIGNED[user.authentication]}
            if privacy is not None:
                options |= {"privKey": "privacy-secret-2", "privProtocol": ENCRYPTED[privacy]}
            error, status, _, rows = await theirs.bulk_cmd(
                engine,
                theirs.UsmUserData(user.name, **options),
                await theirs.UdpTransportTarget.create(address, timeout=20, retries=0),
                theirs.ContextData(),
                0,
                len(ROWS),
                theirs.ObjectType(theirs.ObjectIdentity(format_oid(COLUMN))),
                lookupMib=False,
            )
            assert (error, int(status)) == (None, 0), user.name
            assert {tuple(oid): int(value) for oid, value in rows} == {oid: row.value for oid, row in ROWS.items()}
