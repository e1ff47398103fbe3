"""SNMP v1, v2c and v3 without I/O in its core: messages, users and keys, a walk of many columns; an asyncio client."""
