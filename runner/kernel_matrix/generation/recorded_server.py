"""A chat endpoint that gives recorded answers, for tests and demonstrations without a model.

A folder holds its answers, one JSON object per file. The first file, by name, whose conditions hold answers a request;
one for which there is none gets status 404. Fields, all optional:

``contains``
    Text that the last message must have in it.
``seed``
    Value of the request's field of that name.
``times``
    The file answers so many requests, and is then passed over.
``text``
    Text of the answer; or ``response``, the whole JSON object; or ``raw``, a body that need not be JSON.
``finish_reason``, ``refusal``, ``usage``
    Fields of the answer. Without ``usage``, words are counted; null leaves it out.
``status``, ``headers``, ``delay_s``
    Status and headers of the response, and a wait before it.
``drop``
    If true, the connection ends in the middle of the body.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kernel_matrix.errors import UsageError
from kernel_matrix.untrusted_json import UntrustedJsonError, read_object


@dataclass(slots=True, kw_only=True)
class RecordedServer:
    """What a server was asked, and what it counted."""

    url: str
    """Address for ``--base-url``."""
    answers: Mapping[str, Mapping[str, Any]]
    """Name of each file → its content."""
    requests: list[Mapping[str, Any]] = field(default_factory=list)
    """Bodies of all requests."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    used: Counter[str] = field(default_factory=Counter)
    """Name of each file → requests that it answered."""
    authorizations: list[str | None] = field(default_factory=list)
    """Header ``Authorization`` of each request."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def choose(self, body: Mapping[str, Any], authorization: str | None) -> Mapping[str, Any] | None:
        """Note a request, and return the recorded answer to it; None if there is none."""
        said = str(body["messages"][-1]["content"])
        with self.lock:
            self.requests.append(body)
            self.authorizations.append(authorization)
            for name, answer in self.answers.items():
                is_meant = answer.get("contains", "") in said and answer.get("seed", body.get("seed")) == body.get(
                    "seed"
                )
                if is_meant and self.used[name] < answer.get("times", float("inf")):
                    self.used[name] += 1
                    return answer
        return None

    def count(self, usage: Mapping[str, Any]) -> None:
        """Add the tokens of an answer."""
        with self.lock:
            self.prompt_tokens += usage["prompt_tokens"]
            self.completion_tokens += usage["completion_tokens"]


@contextmanager
def recorded_server(folder: Path) -> Iterator[RecordedServer]:
    """Serve the recorded answers of a folder on a free port of this machine.

    Raises:
        UsageError: The folder has none, or one cannot be read.
    """
    try:
        answers = {path.name: read_object(path, follow_links=True) for path in sorted(folder.glob("*.json"))}
    except UntrustedJsonError as error:
        raise UsageError(f"{folder}: a recorded answer {error}", next_step='write {"text": "…"}') from None
    if not answers:
        raise UsageError(f"{folder} has no recorded answer", next_step="name a folder with files NAME.json")
    with _Server(("127.0.0.1", 0), _Handler) as server:
        recorded = RecordedServer(url=f"http://127.0.0.1:{server.server_port}/v1", answers=answers)
        server.recorded = recorded
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="recorded-server")
        thread.start()
        try:
            yield recorded
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    """HTTP server that knows what it has to answer."""

    daemon_threads = True
    request_queue_size = 128
    recorded: RecordedServer


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a request."""
        recorded = self.server.recorded
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = recorded.choose(body, self.headers["Authorization"])
        if answer is None:
            self._send(404, b'{"error": {"message": "there is no recorded answer to this request"}}', {})
            return
        time.sleep(answer.get("delay_s", 0))
        document = _response(body, answer)
        status = answer.get("status", 200)
        if status == 200 and "raw" not in answer and document.get("usage"):
            recorded.count(document["usage"])
        content = answer["raw"].encode() if "raw" in answer else json.dumps(document).encode()
        self._send(status, content, answer.get("headers", {}), is_dropped=answer.get("drop", False))

    def _send(self, status: int, content: bytes, headers: Mapping[str, str], *, is_dropped: bool = False) -> None:
        try:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if is_dropped else content)
        except OSError:  # the client is gone
            is_dropped = True
        self.close_connection = self.close_connection or is_dropped

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _response(body: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    if "response" in answer:
        return dict(answer["response"])
    text = answer.get("text", "")
    read, written = sum(len(str(one["content"]).split()) for one in body["messages"]), len(str(text).split())
    message = {"role": "assistant", "content": text, "refusal": answer.get("refusal")}
    response: dict[str, Any] = {
        "model": body.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": answer.get("finish_reason", "stop")}],
        "usage": answer.get("usage", {"prompt_tokens": read, "completion_tokens": written}),
    }
    return {key: value for key, value in response.items() if value is not None}
