"""MQTT between hosts and collectors: batches of collective timings, and port states as retained messages.

`client`, `connection`, `publisher` and `subscriber` need paho-mqtt; the other modules do not.
"""
