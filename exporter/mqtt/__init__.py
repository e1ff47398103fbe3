"""MQTT between the daemons of hosts and the collectors: batches of timings, and states of ports as retained messages.

All but `options`, `topics`, `states` and `seen` needs aiomqtt, which is the extra `mqtt`.
"""
