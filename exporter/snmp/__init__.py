"""SNMP v2c without I/O in its core: BER, messages, a many-column walk as a state machine, and an asyncio client."""
