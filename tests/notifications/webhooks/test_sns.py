"""What is read from Amazon: only where it was looked for, and no more than that."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from notifications.webhooks import signatures


def test_a_redirect_is_not_followed_and_no_more_is_read_than_a_certificate_has():
    asked = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(302 if self.path == "/" else 200)
            self.send_header("Location", "/certificate.pem")
            self.end_headers()
            self.wfile.write(b"x" * 2 * signatures.LARGEST_CERTIFICATE)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with pytest.raises(OSError, match="302"):
            signatures.fetch(f"http://127.0.0.1:{server.server_port}/")
        assert asked == ["/"]
        assert len(signatures.fetch(f"http://127.0.0.1:{server.server_port}/large")) == signatures.LARGEST_CERTIFICATE
        server.shutdown()
