"""An HTTP server of fixed pages, as of exporters."""

import http.server
import threading
from contextlib import contextmanager


@contextmanager
def serving(*pages):
    """Serve each page at its own path; yields the URLs."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = pages[int(self.path.strip("/"))]
            self.send_response(200 if found else 503)
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield [f"http://127.0.0.1:{server.server_port}/{number}" for number in range(len(pages))]
        finally:
            server.shutdown()
