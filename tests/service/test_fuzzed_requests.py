"""Requests drawn from the description of the service, and ones that break it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_matrix.service.clients import RequestLimit, Tokens
from kernel_matrix.service.evaluation_queue import EvaluationQueue
from kernel_matrix.service.http_app import Service
from tests.service.test_http_app import PlayedJudge, listening

OWN = Path(sys.prefix) / "schemathesis" / "bin" / "schemathesis"
"""In an environment of its own beside that of the tests, as ``.ci/run`` makes it."""
PROGRAM = str(OWN) if OWN.is_file() else shutil.which("schemathesis")
CHECKS = "not_a_server_error,response_schema_conformance,status_code_conformance,content_type_conformance"


@pytest.mark.skipif(PROGRAM is None, reason="schemathesis is not installed")
def test_service_answers_every_request_as_described(tmp_path):
    queue = EvaluationQueue(tmp_path / "queue.sqlite")
    limit = RequestLimit(per_s=1e6, most=1_000_000)
    with listening(Service(queue=queue, evaluator=PlayedJudge(), tokens=Tokens(), limit=limit)) as address:
        options = ("--checks", CHECKS, "--max-examples", "20", "--seed", "1", "--no-color", "--continue-on-failure")
        # What waits for an end that never comes is left out: nothing is judged here.
        words = (PROGRAM, "run", f"{address}/openapi.json", *options, "--exclude-path", "/evaluations/{id}/events")
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    queue.close()
    assert done.returncode == 0, done.stdout
    assert str(tmp_path) not in done.stdout
