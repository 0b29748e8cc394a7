"""The recipes for GitHub Actions and GitLab CI: each script of them runs, on a small matrix and this machine's CPU.

What a server would do between the scripts (check out, keep artefacts) is left out. ``gh`` is a program that answers
as the real one would; GitLab's API is served on this machine.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from kernel_matrix.report.markdown import MARKER
from tests.baddays.field import PRELOADED, new_field
from tests.nightly.chat import SECRET, Chat, served
from tests.recipes import ROOT, Machine, with_baseline

yaml = pytest.importorskip("ruamel.yaml")
pytestmark = pytest.mark.torch

EXAMPLES = ROOT / "docs" / "examples" / "ci"
BOT = "github-actions[bot]"
GH = """\
#!{python}
import json, pathlib, subprocess, sys
here = pathlib.Path({root!r})
argv = sys.argv[1:]
with (here / "asked").open("a") as file:
    print(json.dumps(argv), file=file)
if "--jq" in argv:
    subprocess.run(("jq", "-r", argv[argv.index("--jq") + 1]), stdin=(here / "comments.json").open(), check=True)
else:
    (here / "body").write_bytes(pathlib.Path(argv[argv.index("--field") + 1].removeprefix("body=@")).read_bytes())
"""
FAR = """
[[gpus]]
name = "t4"
compute_capability = "7.5"
"""


def recipe(name):
    return yaml.YAML(typ="safe").load(EXAMPLES / name)


@pytest.fixture
def machine(tmp_path):
    with new_field(tmp_path, program=PRELOADED) as field:
        made = Machine(field)
        made.add_program("gh", GH.format(python=sys.executable, root=str(made.root)))
        yield made


def add_a_gpu(field, *candidates):
    """Select a Triton kernel besides ``candidates``, and a GPU that is elsewhere, for which it is compiled."""
    shutil.copytree(ROOT / "problems" / "vector_add", field.root / "problems" / "vector_add")
    field.write_matrix(*candidates, "vector_add/triton_blocked")
    path = field.root / "matrix.toml"
    text = path.read_text().replace("\n[[toolchains]]", f"{FAR}\n[[toolchains]]")
    text = text.replace('source = "folder"', 'source = "folder"\nworkloads = "smoke"')
    path.write_text(text)


def steps(workflow, job):
    """Name → script of the steps of a job, with the variables that it sees; what installs is left out."""
    parts = workflow["jobs"][job]
    variables = {**workflow.get("env", {}), **parts.get("env", {})}
    scripts = {step["name"]: step["run"] for step in parts["steps"] if "run" in step and step["name"] != "Install"}
    return scripts, variables


def test_pull_request_is_judged_without_a_gpu(machine):
    add_a_gpu(machine.field, "tiny/honest")
    scripts, variables = steps(recipe("github/pull-request.yml"), "cpu")
    for name, script in scripts.items():
        ran = machine.script(script, variables)
        assert ran.returncode == 0, (name, ran.stdout, ran.stderr)
    (built,) = (machine.root / "compiled" / "baddays" / "records").glob("*.json")
    assert json.loads(built.read_text())["outcome"]["status"] == "compiled"
    assert len(list((machine.root / "results" / "baddays" / "records").glob("*.json"))) == 2


def test_pull_request_with_a_wrong_candidate_is_red(machine):
    machine.field.write_matrix("tiny/wrong")
    scripts, variables = steps(recipe("github/pull-request.yml"), "cpu")
    assert machine.script(scripts["Judge on the CPU"], variables).returncode == 1


def gpu_job(machine, workflow, job="gpu"):
    """Run the job as GitHub does: after a step that failed only those that always run; return its exit code."""
    scripts, variables = steps(workflow, job)
    always = {step.get("name") for step in workflow["jobs"][job]["steps"] if step.get("if") == "always()"}
    code = 0
    for name, script in scripts.items():
        if code == 0 or name in always:
            ran = machine.script(script, {key: v for key, v in variables.items() if "${{" not in str(v)})
            code = code or ran.returncode
    return code


def test_pull_request_is_compared_and_shown(machine):
    with_baseline(machine)
    assert gpu_job(machine, recipe("github/pull-request.yml")) == 0
    shown = machine.summary.read_text()
    assert shown.startswith(f"{MARKER}\n## ")
    assert shown == (machine.root / "comment.md").read_text()
    assert "<testsuite" in (machine.root / "junit.xml").read_text()


def test_pull_request_that_breaks_a_candidate_is_exit_5(machine):
    with_baseline(machine, candidate="honest")
    shutil.copyfile(machine.field.candidates / "wrong.py", machine.field.candidates / "honest.py")
    assert gpu_job(machine, recipe("github/pull-request.yml")) == 5
    assert "1 broke" in machine.summary.read_text()


def test_without_a_baseline_the_job_fails_and_shows_nothing(machine):
    assert gpu_job(machine, recipe("github/pull-request.yml")) == 2
    assert not machine.summary.exists()


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize(
    ("comments", "asked"),
    [
        ([], ["POST", "issues/7/comments"]),
        ([(3, "somebody", f"{MARKER}\nnot mine"), (4, BOT, "of another workflow")], ["POST", "issues/7/comments"]),
        ([(3, "somebody", MARKER), (5, BOT, f"{MARKER}\nold")], ["PATCH", "issues/comments/5"]),
    ],
)  # fmt: skip
def test_the_comment_is_written_once_and_then_updated(comments, asked, machine):
    scripts, _ = steps(recipe("github/pull-request.yml"), "comment")
    (machine.root / "comment.md").write_text(f"{MARKER}\nnew")
    listed = [{"id": number, "user": {"login": who}, "body": body} for number, who, body in comments]
    (machine.root / "comments.json").write_text(json.dumps(listed))
    variables = {"REPOSITORY": "me/kernels", "PULL_REQUEST": "7"}
    ran = machine.script(scripts["Write or update the comment"], variables)
    assert ran.returncode == 0, ran.stderr
    last = json.loads((machine.root / "asked").read_text().splitlines()[-1])
    method, place = asked
    assert last[:4] == ["api", "--method", method, f"repos/me/kernels/{place}"]
    assert (machine.root / "body").read_text() == f"{MARKER}\nnew"


def git(folder, *words):
    names = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(("git", *names, *words), cwd=folder, check=True, capture_output=True)


def test_of_a_stranger_only_candidates_are_taken(machine, tmp_path_factory):
    server, theirs = tmp_path_factory.mktemp("server"), tmp_path_factory.mktemp("theirs") / "kernels"
    (server / "me").mkdir()
    git(machine.root, "init")
    git(machine.root, "add", "matrix.toml", "problems")
    git(machine.root, "commit", "-m", "ours")
    git(server, "clone", "--bare", str(machine.root), "me/kernels")
    git(server, "clone", str(machine.root), str(theirs))
    (theirs / "matrix.toml").write_text("evil")
    (theirs / "problems" / "tiny" / "reference.py").write_text("evil")
    candidates = theirs / "problems" / "tiny" / "candidates"
    shutil.copyfile(candidates / "wrong.py", candidates / "honest.py")
    (candidates / "link.py").symlink_to("/etc/passwd")
    git(theirs, "add", "-A")
    git(theirs, "commit", "-m", "theirs")
    git(theirs, "push", str(server / "me" / "kernels"), "HEAD:refs/pull/7/head")

    scripts, _ = steps(recipe("github/outside.yml"), "gpu")
    where = {"GITHUB_SERVER_URL": f"file://{server}", "GITHUB_REPOSITORY": "me/kernels", "PULL_REQUEST": "7"}
    ran = machine.script(scripts["Take the candidates of the pull request"], where)
    assert ran.returncode == 0, ran.stderr
    ours = machine.root / "problems" / "tiny"
    changed = {
        path.name for path in (machine.root / "matrix.toml", ours / "reference.py") if path.read_text() == "evil"
    }
    assert changed == set()
    assert (ours / "candidates" / "honest.py").read_bytes() == (ours / "candidates" / "wrong.py").read_bytes()
    assert not (ours / "candidates" / "link.py").is_symlink()


def test_the_judging_of_a_stranger_s_kernels_is_the_same():
    inside, outside = (steps(recipe(f"github/{name}.yml"), "gpu")[0] for name in ("pull-request", "outside"))
    assert {name: outside[name] for name in inside} == inside


def test_a_night_measures_compares_and_tells(machine):
    scripts, variables = steps(recipe("github/nightly.yml"), "night")
    plain = {name: value for name, value in variables.items() if name != "KERNEL_MATRIX_WEBHOOK"}
    with_baseline(machine)
    with served(Chat()) as chat:
        ran = machine.script(scripts["Measure"], plain, KERNEL_MATRIX_WEBHOOK=chat.url)
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    assert SECRET not in ran.stdout + ran.stderr
    assert json.loads(chat.asked[0][2])["text"].startswith("baddays ")
    assert "kernel_matrix_night_compared{" in (machine.root / "made.prom").read_text()
    assert (machine.root / "report.html").is_file()
    assert len(list((machine.root / "kept" / "baddays" / "nights").iterdir())) == 1


@pytest.mark.parametrize(
    ("job", "workflow", "same"),
    [("cpu", "pull-request", "cpu"), ("gpu", "pull-request", "gpu"), ("nightly", "nightly", "night")],
)
def test_gitlab_runs_the_commands_of_github(job, workflow, same):
    """So what the tests above have run holds for both."""
    pipeline = recipe("gitlab/gitlab-ci.yml")
    scripts, variables = steps(recipe(f"github/{workflow}.yml"), same)
    joined = {name: script.replace("\\\n", "") for name, script in scripts.items()}
    ours = [shlex.split(script) for name, script in joined.items() if name != "Show the comparison"]
    assert [shlex.split(script) for script in pipeline[job]["script"]] == ours
    given = {**pipeline["variables"], **pipeline[job].get("variables", {})}
    assert given == {name: value for name, value in variables.items() if name != "KERNEL_MATRIX_WEBHOOK"}


def test_gitlab_keeps_what_the_jobs_write():
    gpu, night = (recipe("gitlab/gitlab-ci.yml")[job]["artifacts"] for job in ("gpu", "nightly"))
    assert (gpu["paths"], gpu["reports"]) == (["comment.md", "results"], {"junit": "junit.xml"})
    assert night["paths"] == ["report.html"]


class Notes(BaseHTTPRequestHandler):
    """GitLab's notes of a merge request."""

    def _answer(self, document):
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self._answer(self.server.notes)

    def do_POST(self):
        given = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        path = urlsplit(self.path).path
        self.server.asked.append((self.command, path, self.headers["PRIVATE-TOKEN"], given["body"][0]))
        self._answer({})

    do_PUT = do_POST  # noqa: N815  # http.server looks for that name

    def log_message(self, *_):
        pass


@contextmanager
def gitlab(notes) -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Notes) as server:
        server.notes, server.asked = notes, []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.skipif(not (shutil.which("jq") and shutil.which("curl")), reason="needs curl and jq")
@pytest.mark.parametrize(
    ("notes", "asked"),
    [
        ([], ("POST", "")),
        ([(3, 1, f"{MARKER}\nnot mine"), (4, 42, "something else")], ("POST", "")),
        ([(3, 1, MARKER), (5, 42, f"{MARKER}\nold")], ("PUT", "/5")),
    ],
)
def test_the_note_is_written_once_and_then_updated(notes, asked, machine):
    listed = [{"id": number, "author": {"id": who}, "body": body} for number, who, body in notes]
    body = f'{MARKER}\n"new" & µ\n'
    (machine.root / "comment.md").write_text(body)
    with gitlab(listed) as server:
        variables = {
            "CI_API_V4_URL": f"http://127.0.0.1:{server.server_port}/api/v4", "CI_PROJECT_ID": "9",
            "CI_MERGE_REQUEST_IID": "7", "COMMENT_TOKEN": "glpat-x", "BOT_ID": "42",
        }  # fmt: skip
        (script,) = recipe("gitlab/gitlab-ci.yml")["comment"]["script"]
        ran = machine.script(script, variables)
    assert ran.returncode == 0, ran.stderr
    method, more = asked
    assert server.asked == [(method, f"/api/v4/projects/9/merge_requests/7/notes{more}", "glpat-x", body)]
    assert not (machine.root / "token").exists()


def test_every_job_of_a_recipe_is_tested():
    """These are the jobs that the tests above run."""
    jobs = {name: set(recipe(f"github/{name}.yml")["jobs"]) for name in ("pull-request", "outside", "nightly")}
    assert jobs == {"pull-request": {"cpu", "gpu", "comment"}, "outside": {"gpu"}, "nightly": {"night"}}
    pipeline = {
        name for name, part in recipe("gitlab/gitlab-ci.yml").items() if isinstance(part, dict) and "script" in part
    }
    assert pipeline == {"cpu", "gpu", "comment", "nightly"}
