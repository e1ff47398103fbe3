"""MQTT between hosts and collectors: batches of collective timings, and port states as retained messages.

`connection`, `publisher` and `subscriber` need aiomqtt; the other modules do not.
"""
