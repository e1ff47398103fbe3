"""Steps for port counters: rates, bursts, links, congestion, imbalance and states of ports."""
