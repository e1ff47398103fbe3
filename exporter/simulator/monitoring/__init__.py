"""What monitors a simulated fabric, as real programs on loopback: exporters, broker, Prometheus, Alertmanager."""
