"""Reader of a switch by SNMP."""
