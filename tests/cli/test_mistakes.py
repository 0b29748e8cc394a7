"""Mistakes that people make: each ends with its exit code, one line that says what, and one that says what to do.

Nothing is lost: no file of the folder changes.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import signal
import sys

import pytest

import kernel_matrix
from kernel_matrix.cli import main
from tests.own_python import ROOT

pytestmark = pytest.mark.torch  # without torch no cell can run, which then is the first mistake

ANY = ""
MISTAKES = [
    # ---- running
    ("run --foo", 2, "No such option", "-h' for help"),
    ("runn", 2, "Did you mean 'run'?", "-h' for help"),
    ("run absent.toml", 2, "absent.toml: cannot be read: No such file", "name a matrix file"),
    ("run folder", 2, "folder: cannot be read: Is a directory", "name a matrix file"),
    ("run binary.toml", 2, "binary.toml:1:1 is not UTF-8", "save the file as UTF-8"),
    ("run syntax.toml", 2, "syntax.toml:1:7 not valid TOML", "docs matrix"),
    ("run unknown-key.toml", 2, "did you mean 'dtypes'?", "docs matrix"),
    ("run bad-dtype.toml", 2, "did you mean 'fp64'?", "docs matrix"),
    ("run no-problems.toml", 2, "'absent' does not exist", "docs matrix"),
    ("run --filter nonsense", 2, "nonsense", "--filter dtype="),
    ("run --filter colour=red", 2, "unknown key 'colour'", "Keys are"),
    ("run --filter problem=sofmax", 3, "softmax", "plan --all"),
    ("run --filter toolchain=", 2, "toolchain=", ANY),
    ("run --shard 3/2", 2, "'3/2' is not I/N", "--shard 1/4"),
    ("run --shard half", 2, "'half' is not I/N", "--shard 1/4"),
    ("run --deadline 25:00", 2, "'25:00' is no time", "HH:MM"),
    ("run --rerun sometimes", 2, "--rerun sometimes", "none, failed, stale, all"),
    ("run --fail-on problem", 2, "--fail-on problem", "candidate"),
    ("run --sandbox dokcer", 2, "unknown sandbox 'dokcer'", "docker"),
    ("run --sandbox docker", 4, "there is no socket unix:///nonexistent/docker.sock", "DOCKER_HOST"),
    ("run --executor slurmm", 4, "slurmm", ANY),
    ("run --results mine.txt", 4, "mine.txt", ANY),
    # ---- planning and looking at problems
    ("plan absent.toml", 2, "absent.toml", "name a matrix file"),
    ("plan --sort nothing", 2, "nothing", "Columns are"),
    ("plan --columns nothing", 2, "nothing", "Columns are"),
    ("problems show sofmax", 2, "did you mean 'softmax'?", "problems list"),
    ("problems list --source kernelbnch", 2, "--source kernelbnch is not known", "kernelbench"),
    ("problems list --path absent", 2, "absent is not a folder", "name a folder"),
    ("problems check --path folder", 2, "folder has no problem", "name a folder"),
    ("problems try nothing-like-it", 3, "nothing-like-it", "without a glob"),
    ("candidates show softmax/nobody", 2, "there is no candidate", "candidates list"),
    ("cell run absent.json --out out", 2, "absent.json", ANY),
    ("cell run mine.txt --out out", 2, "mine.txt is not a specification of cells", "write {"),
    # ---- results
    ("results absent", 2, "absent", ANY),
    ("results folder", 2, "folder holds no results", "kernel-matrix run"),
    ("results damaged", 4, "damaged", "merge"),
    ("results tables --columns nothing", 2, "nothing", "Columns are"),
    ("results tables --sort nothing", 2, "nothing", "Columns are"),
    ("results tables --limit 0", 2, "--limit", "-h' for help"),
    ("results tables --format xml", 2, "xml", "-h' for help"),
    ("results tables --filter gpu=h2000", 3, "h200", "--filter"),
    ("merge absent --out out", 2, "absent", ANY),
    ("analyze scoers tables", 2, "did you mean 'scores'?", "Ask one of"),
    ("analyze scores tables --by colour", 2, "colour", ANY),
    ("analyze scores absent", 2, "absent", ANY),
    ("compare tables", 2, ANY, "--between"),
    ("compare tables absent", 2, "absent", ANY),
    ("compare tables --between gpu", 2, "gpu", "toolchain=cu124,cu130"),
    ("compare tables --between colour=a,b", 2, "colour", ANY),
    ("compare tables --between dtype=fp16,fp17", 3, "fp17", "fp16, fp32"),
    ("audit tables --only imposible_time", 2, "imposible_time", "impossible_time"),
    ("audit absent", 2, "absent", ANY),
    ("report tables --out page.pdf", 2, "no report has the ending .pdf", "--format"),
    ("report tables --format pdf", 2, "pdf", "html"),
    ("report absent", 2, "absent", ANY),
    ("pairs absent out", 2, "absent", ANY),
    ("pairs tables out", 3, "the source is not here as it was measured", "--matrix FILE"),
    ("pairs tables out --matrix absent.toml", 2, "there is no matrix absent.toml", "--matrix FILE"),
    ("pairs tables out --nearest 0", 2, "--nearest 0 is below 1", "one pair per candidate"),
    ("pairs tables out --grade D", 2, "there is no grade 'D'", "A, B or C"),
    ("import absent --out out", 2, "absent", ANY),
    ("import mine.txt --out out", 3, "not valid JSON", "Known are"),
    ("reproduce absent.json", 2, "absent.json", ANY),
    ("reproduce mine.txt", 2, "mine.txt", ANY),
    # ---- nights
    ("nightly", 2, "--until", "--until 06:30"),
    ("nightly --until 25:00", 2, "25:00", "HH:MM"),
    ("nightly --until 06:00 --baseline usual", 2, "usual", "baseline"),
    ('nightly --until 06:00 --notify "\'mail"', 2, "No closing quotation", "quote it"),
    ("nightly --until 06:00 --report page.pdf", 2, ".pdf", "--format"),
    ("baseline show usual", 2, "usual", "baseline"),
    ("baseline set usual absent", 2, "absent", ANY),
    ("baseline accept softmax/*", 2, "--reason", "-h' for help"),
    # ---- generating candidates
    ("generate", 2, "no model, or no endpoint", "--base-url"),
    ("generate absent.toml --model a --base-url http://127.0.0.1:9", 2, "absent.toml", "name a matrix file"),
    ("generate --print-prompt --language trition", 2, "did you mean 'triton'?", "cuda"),
    ("generate --print-prompt --prompt absent.md", 2, "absent.md is not there", "zero-shot"),
    ("generate --print-prompt --problem sofmax", 3, "sofmax", "kernel-matrix plan"),
    ("generate --model a --base-url 127.0.0.1:9", 2, "is no address", "https://"),
    ("generate --field max_tokens", 2, "is not KEY=JSON", "max_tokens=8192"),
    # ---- images, GPUs, this host
    ("images pull cu130", 2, "There is no lock images/images.lock", "init --example gpu"),
    ("images pull cu131 --lock lock.json", 2, "has no toolchain 'cu131'", "cu130"),
    ("images verify --lock broken.lock", 4, "broken.lock", "images lock"),
    ("gpus watch --gpu 7", 3, ANY, ANY),
    ("gpus show h9000", 2, "h9000", ANY),
    ("doctor --matrix absent.toml", 2, "absent.toml", "name a matrix file"),
    ("doctor --sandbox dokcer", 2, "dokcer", "docker"),
    ("init --example gup", 2, "did you mean 'gpu'?", "examples: cpu"),
    ("init", 2, "exists already", "init DIR"),
    ("docs matrx", 2, "did you mean 'matrix'?", "lists all pages"),
    ("try mine.txt --problem softmax", 2, "mine.txt is no .py or .cu or .hip file", "ModelNew"),
    ("try absent.py --problem softmax", 2, "absent.py cannot be read", "name the file"),
    ("sweep everything", 2, "unexpected extra argument", "-h' for help"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder in which somebody works; each test gets a copy."""
    folder = tmp_path_factory.mktemp("made")
    kernel_matrix.start_project(folder, "cpu")
    text = (folder / "matrix.toml").read_text()
    lock = json.loads((ROOT / "images" / "images.lock").read_text())
    for name, content in {
        "syntax.toml": "name = ",
        "unknown-key.toml": text.replace("dtypes =", "dtpyes ="),
        "bad-dtype.toml": text.replace('"fp32"', '"fp61"'),
        "no-problems.toml": text.replace('source = "folder"', 'source = "folder"\npath = "absent"'),
        "broken.lock": '{"schema": 1}',
        "lock.json": json.dumps({**lock, "images": {"cu130": lock["images"]["cu130"]}}),
        "mine.txt": "hello",
        "damaged/cells.parquet": "no Parquet",
        "folder/empty.txt": "",
    }.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    kernel_matrix.merge([ROOT / "results" / "example-two-gpus.kmz"], folder / "tables")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    shutil.copytree(made, mine)
    monkeypatch.chdir(mine)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return mine


@pytest.fixture
def signals():
    """Give back the signal handlers that the program installs."""
    kept = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for one, handler in kept.items():
        signal.signal(one, handler)


def contents(folder):
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(("line", "code", "what", "hint"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_mistake_says_what_and_a_next_step(folder, monkeypatch, capsys, line, code, what, hint):  # noqa: PLR0917
    before = contents(folder)
    monkeypatch.setattr(sys, "argv", ["kernel-matrix", *shlex.split(line)])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == code, said.err
    assert "Traceback" not in said.err
    assert what in said.err
    lines = said.err.strip().splitlines()
    step = [one for one in lines if one.startswith("  → ") or one.endswith("-h' for help.")]
    assert len(step) == 1, said.err
    assert hint in step[0]
    assert contents(folder) == before


def test_there_are_sixty_mistakes():
    assert len(MISTAKES) >= 60
