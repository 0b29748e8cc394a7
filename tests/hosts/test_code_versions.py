"""Hashes of code that ignore comments, docstrings and formatting."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_matrix.hosts import code_versions
from kernel_matrix.hosts.code_versions import build_version, measurement_version, normal_form, version_of

JUDGE = '''"""Judge."""

from package.inside.wire import LIMIT

TIMES = 3  # why three
"""Calls."""


def judge(calls: int) -> str:
    """Judge."""
    total = calls * LIMIT
    return f"{total:>{calls}} of " "all"
'''


@pytest.fixture
def package(tmp_path):
    for folder in ("inside/judge", "inside/build", "model"):
        (tmp_path / "package" / folder).mkdir(parents=True)
    (tmp_path / "package" / "inside" / "judge" / "judge.py").write_text(JUDGE)
    (tmp_path / "package" / "inside" / "wire.py").write_text("LIMIT = 4\n")
    (tmp_path / "package" / "inside" / "unused.py").write_text("LIMIT = 5\n")
    return tmp_path / "package"


def version(package):
    code_versions._parse.cache_clear()
    return version_of(package, ("inside/judge", "model"))


def change(package, path, old, new):
    before = version(package)
    text = (package / path).read_text()
    assert old in text
    (package / path).write_text(text.replace(old, new))
    return before != version(package)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Judge."""', '"""Judge all\n\n    that is called.\n    """'),
        ("  # why three", ""),
        ('"""Calls."""\n', ""),
        ("calls * LIMIT", "(calls *\n             LIMIT)"),
        ('"all"', "'all'"),
        ("TIMES = 3", "TIMES = 0x3"),
        ('of " "all"', 'of all"'),
    ],
)
def test_version_comment_or_layout_changes_keeps_it(package, old, new):
    assert not change(package, "inside/judge/judge.py", old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [("TIMES = 3", "TIMES = 4"), ("calls * LIMIT", "calls + LIMIT"), ("{total:>", "{total:<"), ("int", "float")],
)
def test_version_code_changes_changes_it(package, old, new):
    assert change(package, "inside/judge/judge.py", old, new)


def test_version_imported_module_changes_changes_it(package):
    assert change(package, "inside/wire.py", "4", "5")


def test_version_other_module_changes_keeps_it(package):
    assert not change(package, "inside/unused.py", "5", "6")


def test_version_module_renamed_changes_it(package):
    before = version(package)
    (package / "inside" / "judge" / "judge.py").rename(package / "inside" / "judge" / "jury.py")
    assert version(package) != before


def test_version_moved_package_keeps_it(package, tmp_path):
    before = version(package)
    (tmp_path / "elsewhere").mkdir()
    assert version(package.rename(tmp_path / "elsewhere" / "package")) == before


def test_versions_this_package_are_two_digests():
    assert re.fullmatch("[0-9a-f]{64}", measurement_version("cpu"))
    assert re.fullmatch("[0-9a-f]{64}", build_version("cpu"))
    assert measurement_version("cpu") != build_version("cpu")


@pytest.mark.parametrize(
    "name", ["inside/wire.py", "inside/memory.py", "inside/judge/judge.py", "inside/worker/worker.py"]
)
def test_measurement_version_covers_judge_and_worker(name):
    assert name in modules(code_versions.MEASURED_BY)


def test_build_version_covers_the_builder_and_not_the_judge():
    covered = modules(code_versions.BUILT_BY)
    assert {"inside/build/builder.py", "inside/build/call_forms.py", "inside/wire.py"} <= covered
    assert not {name for name in covered if name.startswith("inside/judge/")}


def modules(roots):
    waiting = {file for root in roots for file in code_versions._python_files(code_versions.PACKAGE / root)}
    found = set()
    while waiting:
        file = waiting.pop()
        found.add(file)
        waiting |= code_versions._parse(file, code_versions.PACKAGE)[1] - found
    return {file.relative_to(code_versions.PACKAGE).as_posix() for file in found}


def test_normal_form_kinds_of_literals_are_told_apart():
    sources = (
        "x = 1",
        "x = 1.0",
        "x = '1'",
        "x = b'1'",
        "x = True",
        "x = None",
        "x = ...",
        "x = -1",
        "x = [1]",
        "x = (1,)",
    )
    assert len({normal_form(ast.parse(source)) for source in sources}) == len(sources)


def test_normal_form_marks_of_annotations_do_not_count():
    plain, marked = ast.parse("x: int = 1"), ast.parse("x: Annotated[int, Column('y')] = 1")
    assert normal_form(plain) == normal_form(marked) != normal_form(ast.parse("x: float = 1"))


def test_version_every_installed_python_agrees():
    pythons = {sys.executable, *map(str, Path.home().glob(".pyenv/versions/3.1[0-9]*/bin/python"))}
    # Without the platform's registry, which needs tomli on Python 3.10.
    program = f"""
import sys
from pathlib import Path
sys.dont_write_bytecode = True
sys.path.insert(0, {str(code_versions.PACKAGE.parent)!r})
from kernel_matrix.hosts.code_versions import BUILT_BY, MEASURED_BY, PACKAGE, version_of
inside = PACKAGE / "platforms" / "cpu" / "inside"
print(version_of(PACKAGE, MEASURED_BY, inside), version_of(PACKAGE, BUILT_BY, inside))
"""
    printed = {
        python: subprocess.run([python, "-I", "-c", program], check=True, capture_output=True, text=True).stdout
        for python in pythons
    }
    assert set(printed.values()) == {f"{measurement_version('cpu')} {build_version('cpu')}\n"}
