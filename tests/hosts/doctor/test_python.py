"""Python, and the bindings beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernel_matrix.hosts.doctor.python import check
from kernel_matrix.platforms import PlatformInventory
from kernel_matrix.platforms.check_result import CheckVerdict
from kernel_matrix.platforms.cuda.doctor_driver import examine_driver
from tests.hosts.doctor.nouns import host


def test_this_python_is_well() -> None:
    (python,), (bindings, *_) = check(host()), examine_driver(PlatformInventory())
    assert (python.verdict, sys.executable in python.found) == (CheckVerdict.OK, True)
    assert bindings.verdict is CheckVerdict.OK


def test_an_old_python_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 0))
    (python,) = check(host())
    assert (python.verdict, python.advice) == (CheckVerdict.FAIL, "install Python 3.10 or newer")


def test_another_package_of_the_bindings_name_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "pynvml-11.5.3.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pynvml\nVersion: 11.5.3\n")
    monkeypatch.syspath_prepend(tmp_path)
    bindings, *_ = examine_driver(PlatformInventory())
    assert bindings.verdict is CheckVerdict.WARN
    assert "pynvml 11.5.3" in bindings.found
