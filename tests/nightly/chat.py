"""A chat's webhook, served on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = "T0123/B456/verysecret"
"""The part of a webhook's URL that nobody may see."""


class Chat:
    """A server that keeps what it was sent, and answers as it is told to."""

    def __init__(self, status: int = 200, location: str = "") -> None:
        self.status, self.location = status, location
        self.asked: list[tuple[str, str, bytes]] = []
        self.url = ""


@contextmanager
def served(chat: Chat) -> Iterator[Chat]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            chat.asked.append((self.path, self.headers["Content-Type"], body))
            self.send_response(chat.status, f"no {self.path}")
            if chat.location:
                self.send_header("Location", chat.location)
            answer = f"Cannot POST {self.path}".encode()
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        chat.url = f"http://127.0.0.1:{server.server_port}/services/{SECRET}"
        try:
            yield chat
        finally:
            server.shutdown()
            thread.join()
