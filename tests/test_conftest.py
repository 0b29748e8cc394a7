"""The markers: skipped with a reason where the machine lacks something, failed where Docker or Podman is required."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

NEEDY = """
import pytest

@pytest.mark.{engine}
def test_on_an_engine():
    pass

def test_on_nothing():
    pass
"""


@pytest.fixture
def run_needy(tmp_path):
    """Run the two tests above in a pytest of their own, where no daemon answers; returns its output."""
    shutil.copy(HERE / "conftest.py", tmp_path)
    shutil.copytree(HERE / "sim", tmp_path / "sim", ignore=shutil.ignore_patterns("test_*"))

    def run(engine="docker", **environment):
        (tmp_path / "test_needy.py").write_text(NEEDY.format(engine=engine))
        # Without the locks of this run: a test that waits to be alone would wait for this one, and this one for it.
        own = ("KERNEL_MATRIX_REQUIRE_DOCKER", "KERNEL_MATRIX_REQUIRE_PODMAN", "KERNEL_MATRIX_TEST_TURNS")
        kept = {key: value for key, value in os.environ.items() if key not in own}
        done = subprocess.run(
            (sys.executable, "-m", "pytest", "-c", HERE.parent / "pyproject.toml", "--rootdir", tmp_path, tmp_path),
            env={**kept, "DOCKER_HOST": f"unix://{tmp_path}/no.sock", **environment},
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )
        return done.stdout

    return run


def test_docker_tests_without_daemon_are_skipped_with_reason(run_needy):
    out = run_needy()
    assert re.search(r"SKIPPED .* no Docker daemon answers: .*", out)
    assert "1 passed, 1 skipped" in out


def test_where_docker_is_required_its_absence_is_a_failure(run_needy):
    out = run_needy(KERNEL_MATRIX_REQUIRE_DOCKER="1")
    assert "KERNEL_MATRIX_REQUIRE_DOCKER=1, but no Docker daemon answers" in out
    assert re.search(r"1 passed, 1 error", out) or "1 failed, 1 passed" in out


def test_podman_tests_are_skipped_or_failed_where_it_is_missing(run_needy, tmp_path):
    skipped = run_needy("podman", PATH=str(tmp_path))
    assert re.search(r"SKIPPED .*(podman.* not installed|as root)", skipped)
    failed = run_needy("podman", PATH=str(tmp_path), KERNEL_MATRIX_REQUIRE_PODMAN="1")
    assert "KERNEL_MATRIX_REQUIRE_PODMAN=1, but " in failed
    assert "1 passed, 1 error" in failed or "1 failed, 1 passed" in failed
