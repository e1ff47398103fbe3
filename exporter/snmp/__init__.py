"""SNMP v1, v2c and v3: messages, the user-based security model, walk and get without I/O, and an asyncio client."""
