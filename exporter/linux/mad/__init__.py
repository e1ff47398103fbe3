"""InfiniBand management datagrams (MADs): codecs, the window of requests in flight, and access to umad ports."""
