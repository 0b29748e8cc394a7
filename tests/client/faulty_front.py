"""A server in front of a service that forwards requests, but for those that it has a fault for."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

DROP_BEFORE = "drop before"
"""The connection ends, and the service has not seen the request."""
DROP_AFTER = "drop after"
"""The connection ends, though the service has answered."""


@dataclass
class Front:
    """What it does: ``faults`` are for the next requests; each is ``(status, headers, body)``, a drop, or None."""

    address: str = ""
    faults: list = field(default_factory=list)
    requests: list = field(default_factory=list)
    """Method, path and body of what was asked."""


def answered(document, status=200, **headers):
    """A fault: an answer of this server's own."""
    return status, headers, json.dumps(document).encode()


@contextmanager
def fronting(service=None):
    """Listen on a free port; without a service there is nothing to forward to."""
    front = Front()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_all(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            front.requests.append((self.command, self.path, body))
            fault = front.faults.pop(0) if front.faults else None
            if fault is None or fault == DROP_AFTER:
                sent = {name: value for name, value in self.headers.items() if name != "Host"}
                real = requests.request(self.command, service + self.path, data=body, headers=sent, timeout=30)
                answer = real.status_code, {}, real.content
            if fault in (DROP_BEFORE, DROP_AFTER):
                self.close_connection = True
                return
            status, headers, content = answer if fault is None else fault
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = handle_all  # noqa: N815  # names that the library asks for

        def log_message(self, *_):
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        front.address = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield front
        finally:
            server.shutdown()
            thread.join()
