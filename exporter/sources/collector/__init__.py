"""Source `collector`: timings of all ranks of a job, received over MQTT."""
