"""A Docker daemon that answers questions about itself as a test wants, on a socket of its own."""

from __future__ import annotations

import json
import re
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

INFO = {
    "ID": "test",
    "OSType": "linux",
    "ServerVersion": "29.1.0",
    "Driver": "overlayfs",
    "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
    "CgroupVersion": "2",
    "CgroupDriver": "cgroupfs",
    "MemoryLimit": True,
    "PidsLimit": True,
    "Runtimes": {"runc": {}, "nvidia": {"path": "nvidia-container-runtime"}},
    "DockerRootDir": "/",
}
"""A daemon of today, with the NVIDIA container toolkit."""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextmanager
def answering(folder: Path, info: Mapping[str, Any], *, api: str = "1.52") -> Iterator[str]:
    """A daemon that says ``info`` of itself; yields what to set ``DOCKER_HOST`` to."""
    answers = {
        "/_ping": "OK",
        "/version": {"ApiVersion": api, "Version": info.get("ServerVersion", "")},
        "/info": dict(info),
        "/containers/json": [],
    }
    path = folder / "docker.sock"
    with _Server(str(path), _handler(answers)) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            server.shutdown()
            thread.join()


def _handler(answers: Mapping[str, Any]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = re.sub(r"^/v[\d.]+", "", self.path.partition("?")[0])
            found = path in answers
            body = json.dumps(answers[path] if found else {"message": f"No such image: {path}"}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            """Say nothing."""

    return Handler
