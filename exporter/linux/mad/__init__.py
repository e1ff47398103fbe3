"""InfiniBand management datagrams (MADs): codecs, the window of requests in flight, and the ports that send them."""
