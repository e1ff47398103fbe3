"""Source `collector`: collective timings of all ranks of jobs, received by MQTT."""
