"""From tables to whoever asks: text for scrapers, a page for people, and the sockets that carry both."""
