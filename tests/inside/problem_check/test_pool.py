"""Problems checked without a candidate: results for bad ones, and isolation from each other."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest

import kernel_matrix
from kernel_matrix.inside.problem_check.job import (
    ProblemCheckJob,
    ProblemCheckLimits,
    ProblemCheckResult,
    SourceLine,
    describe_refused_memory,
    find_source_lines,
    one_line,
)
from kernel_matrix.inside.problem_check.pool import JOB_NAME, READY, SOCKET_NAME
from kernel_matrix.model.enums import Role, Status
from kernel_matrix.model.messages import ContestantSpec, dumps, from_json
from tests.inside.sessions import EAGER, make_job

GIB = 1 << 30
CANDIDATE = ContestantSpec("candidate", Role.CANDIDATE, "problem.py", "Model")

GOOD = """
    import torch

    class Model(torch.nn.Module):
        def forward(self, x):
            return x * 2

    def get_inputs():
        return [torch.randn(8, 24)]
"""
MODEL = textwrap.dedent(GOOD)


def forward(expression):
    return MODEL.replace("return x * 2", expression)


def inputs(statements):
    return MODEL.replace("return [torch.randn(8, 24)]", statements)


STATE = """
import torch
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch._C._set_deterministic_algorithms(True)
torch.set_num_threads(3)
"""
FORKS = """
import os, sys, time
if not os.fork():
    while True:
        time.sleep(60)
"""

BAD = {
    "a name it does not know": (f"{MODEL}\nfoo\n", Status.PROBLEM_ERROR, "NameError: name 'foo' is not defined", 11),
    "a syntax error": (f"{MODEL}\nx = = 1\n", Status.PROBLEM_ERROR, "SyntaxError: invalid syntax", 11),
    "no Model": ("import torch\ndef get_inputs():\n    return []\n", Status.PROBLEM_ERROR, "'Model'", None),
    "no tensors": (forward("return 3"), Status.PROBLEM_ERROR, "the reference returns int, not tensors", None),
    "an exit": (inputs("raise SystemExit(3)"), Status.PROBLEM_ERROR, "the reference raised SystemExit: 3", 9),
    "a hard exit": (inputs("import os; os._exit(3)"), Status.PROBLEM_ERROR, "ended with code 3 and no answer", None),
    "a crash": (
        inputs("import ctypes; ctypes.string_at(0)"),
        Status.PROBLEM_ERROR,
        "its process was ended by SIGSEGV, in get_inputs",
        9,
    ),
    "400 GiB": (
        inputs("return [torch.randn(100 << 30)]"),
        Status.PROBLEM_ERROR,
        "wants more memory than its limit of 4 GiB, and asks for 400 GiB at once",
        9,
    ),
    "memory, bit by bit": (
        inputs("kept = [torch.empty(1 << 28) for _ in range(99)]"),
        Status.PROBLEM_ERROR,
        "wants more memory than its limit of 4 GiB, and asks for 1 GiB at once",
        9,
    ),
    "memory of Python's": (
        inputs("kept = bytearray(100 << 30)"),
        Status.PROBLEM_ERROR,
        "wants more memory than its limit of 4 GiB",
        9,
    ),
    "no end": (inputs("\n        while True: pass"), Status.PROBLEM_ERROR, "did not end within 6 s, in get_inputs", 10),
    "no end, asleep": (
        forward("import time; time.sleep(600)"),
        Status.PROBLEM_ERROR,
        "did not end within 6 s, in forward",
        6,
    ),
    "another package": (
        f"import no_such_package.part\n{MODEL}",
        Status.UNSUPPORTED,
        "the reference needs the package 'no_such_package', which is not installed here",
        1,
    ),
    "another package, late": (
        forward("import no_such_package"),
        Status.UNSUPPORTED,
        "needs the package 'no_such_package'",
        6,
    ),
    "zeros": (forward("return x * 0"), Status.INVALID_PROBLEM, "zeros would pass", None),
    "a constant": (forward("return x * 1e-9 + 3"), Status.INVALID_PROBLEM, "a constant would pass", None),
    "dice": (forward("return torch.randn_like(x)"), Status.INVALID_PROBLEM, "differs between two runs", None),
    "written inputs": (
        forward("return x.mul_(2).clone()"),
        Status.INVALID_PROBLEM,
        "the reference fails against itself",
        None,
    ),
    "a forged answer": (
        f"import os\nos.write(3, b'{{}}\\n')\nos._exit(0)\n{MODEL}",
        Status.PROBLEM_ERROR,
        "ended with code 0 and no answer",
        None,
    ),
}
ODD = {
    "prints": (f"import os\nprint('x' * (10 << 20))\nos.system('echo loud')\n{MODEL}", (), ""),
    "reads its input": (f"import sys\nassert sys.stdin.read() == ''\n{MODEL}", (), ""),
    "leaves a process behind": (FORKS + MODEL, (), ""),
    "state": (
        STATE + MODEL,
        ("changes_torch_state",),
        "changes torch's default dtype, grad mode, deterministic algorithms, number of threads",
    ),
    "an input for nothing": (
        MODEL.replace("self, x", "self, x, y").replace("24)]", "24), torch.randn(8, 24)]"),
        ("insensitive",),
        "",
    ),
    "an answer without digits": (forward("return x.sign() * 2"), ("precision_blind",), ""),
    "nothing odd": (MODEL, (), ""),
}


class Checkup:
    """Makes the program, its job, and the host's end of its socket."""

    def __init__(self, root: Path) -> None:
        self.work, self.channel, self.temporary = root / "work", root / "channel", root / "tmp"
        for folder in (self.work, self.channel, self.temporary):
            folder.mkdir()

    def order(self, sources, *, jobs=1, limit_s=20.0, memory_bytes=4 * GIB):
        problems = []
        for index, source in enumerate(sources):
            (self.work / str(index)).mkdir()
            (self.work / str(index) / "problem.py").write_text(source)
            problems.append(make_job(cell_id=str(index), contestants=(CANDIDATE, EAGER)))
        job = ProblemCheckJob(tuple(problems), ProblemCheckLimits(jobs, limit_s, memory_bytes))
        (self.work / JOB_NAME).write_text(dumps(job))

    @contextmanager
    def started(self):
        """Run the program until the context ends."""
        command = (
            sys.executable,
            "-m",
            "kernel_matrix.inside.problem_check.pool",
            "--work",
            self.work,
            "--channel",
            self.channel,
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(kernel_matrix.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
        environment["TMPDIR"] = str(self.temporary)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, env=environment, cwd=self.temporary, **pipes) as process:
            try:
                yield process
            finally:
                process.kill()

    def answers(self, sources, **orders):
        """Return all its results and its output."""
        self.order(sources, **orders)
        with self.listening() as listener, self.started() as process:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                assert next(lines) == READY
                found = [from_json(ProblemCheckResult, json.loads(line)) for line in lines]
            printed = process.communicate(timeout=60)[0]
        assert process.returncode == 0
        assert list(self.temporary.iterdir()) == []
        return found, printed

    def listening(self):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.channel / SOCKET_NAME))
        listener.listen(1)
        listener.settimeout(120)
        return listener


@pytest.fixture
def checkup(tmp_path):
    return Checkup(tmp_path)


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory):
    """Check all problems above in one process, the bad ones first."""
    named = {**BAD, **ODD}
    root = Checkup(tmp_path_factory.mktemp("all"))
    found, printed = root.answers([named[name][0] for name in named], jobs=2, limit_s=6.0)
    assert printed == ""
    assert sorted(int(tried.cell_id) for tried in found) == list(range(len(named)))
    return {list(named)[int(tried.cell_id)]: tried for tried in found}


@pytest.mark.torch
@pytest.mark.parametrize("name", BAD)
def test_a_bad_problem_is_told_with_its_reason_and_its_line(name, all_of_them):
    tried, (_, status, words, line) = all_of_them[name], BAD[name]
    assert (tried.status, tried.line) == (status, line)
    assert words in tried.reason
    assert tried.file == ("problem.py" if line else "")
    assert "\n" not in tried.reason


@pytest.mark.torch
@pytest.mark.parametrize("name", ODD)
def test_an_odd_problem_passes_with_its_labels(name, all_of_them):
    tried, (_, labels, reason) = all_of_them[name], ODD[name]
    assert (tried.status, tried.labels, tried.reason) == (Status.PASSED, labels, reason)
    assert tried.seconds > 0


@pytest.mark.torch
def test_what_a_problem_leaves_behind_goes_with_it(checkup, tmp_path):
    told = tmp_path / "told"
    leaves = "import os, tempfile, time\nfolder = tempfile.mkdtemp()\npid = os.fork()\nif not pid: time.sleep(600)\n"
    leaves += f"open({str(told)!r}, 'a').write(f'{{folder}} {{pid}}\\n')\n"
    found, _ = checkup.answers([leaves + MODEL, MODEL])
    assert [tried.status for tried in found] == [Status.PASSED, Status.PASSED]
    for folder, pid in map(str.split, told.read_text().splitlines()):
        assert not Path(folder).exists()
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or ") Z " in state.read_text()


@pytest.mark.torch
def test_as_many_are_tried_at_once_as_was_ordered(checkup, tmp_path):
    """Each waits for the other."""
    waits = "import pathlib, time\npathlib.Path({ours!r}).touch()\nwhile not pathlib.Path({theirs!r}).exists():\n"
    waits += "    time.sleep(0.01)\n"
    ours, theirs = str(tmp_path / "one"), str(tmp_path / "two")
    sources = [waits.format(ours=ours, theirs=theirs) + MODEL, waits.format(ours=theirs, theirs=ours) + MODEL]
    found, _ = checkup.answers(sources, jobs=2)
    assert [tried.status for tried in found] == [Status.PASSED, Status.PASSED]


@pytest.mark.torch
def test_slow_imports_of_several_problems_happen_once(checkup, tmp_path):
    told = tmp_path / "told"
    looks = f"import sys\nopen({str(told)!r}, 'a').write(f\"{{'sympy' in sys.modules}} \")\n"
    checkup.answers([looks + MODEL] * 2)
    assert told.read_text().split() == ["True"] * 4  # each is imported here and as the baseline


@pytest.mark.torch
def test_without_its_host_it_ends_and_takes_its_problems_along(checkup, tmp_path):
    told, go_on = tmp_path / "told", tmp_path / "go on"
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(go_on)!r}).exists():\n    time.sleep(0.01)\n"
    os.mkfifo(told)
    hangs = f"import os, time\nopen({str(told)!r}, 'w').write(f'{{os.getpid()}}\\n')\ntime.sleep(600)\n"
    checkup.order([waits + MODEL, hangs], jobs=2, limit_s=600)
    with checkup.listening() as listener, checkup.started() as process:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines:
            assert next(lines) == READY
            with told.open() as pipe:
                pid = os.pidfd_open(int(pipe.readline()))
        go_on.touch()  # without a reader for its answer
        assert "BrokenPipeError" in process.communicate(timeout=60)[0]
    assert process.returncode != 0
    ended, _, _ = select.select([pid], [], [], 60)
    os.close(pid)
    assert ended == [pid]


def test_the_host_reads_its_messages_without_torch():
    program = "import sys, kernel_matrix.inside.problem_check.pool\nassert 'torch' not in sys.modules"
    subprocess.run((sys.executable, "-c", program), check=True, cwd=Path(kernel_matrix.__file__).parents[1])


REFUSALS = {
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 2147483648 bytes": "asks for 2 GiB at once",
    "OSError: [Errno 12] Cannot allocate memory": "wants more memory than its limit of 4 GiB",
    "MemoryError: ": "wants more memory than its limit of 4 GiB",
    "terminate called after throwing an instance of 'std::bad_alloc'": "wants more memory than its limit of 4 GiB",
}


@pytest.mark.parametrize("text", REFUSALS)
def test_memory_refused_is_told_in_words(text):
    assert REFUSALS[text] in describe_refused_memory(text, 4 * GIB)


def test_anything_else_is_not_told_as_memory():
    assert describe_refused_memory("ValueError: 3 bytes", 4 * GIB) == ""


def test_only_lines_of_the_problems_own_files_count():
    lines = (
        'File "/staged/3/problem.py", line 7, in forward',
        'File "/usr/x.py", line 1, in y',
        '  File "/staged/3/more.py", line 9',
        'File "/staged/31/problem.py", line 2 in z',
        'File "/staged/3/problem.py", line 5 in g',
    )
    found = [SourceLine("problem.py", 7, "forward"), SourceLine("more.py", 9), SourceLine("problem.py", 5, "g")]
    assert find_source_lines("\n".join(lines), Path("/staged/3")) == found


def test_a_reason_is_one_line_and_not_too_long():
    assert one_line("a\n  b\r\nc" + "d" * 1000) == "a b c" + "d" * 495
