"""The project's files for GitHub, pre-commit and citation, and the recipes for CI: valid, and of what there is."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from kernel_matrix.cli import build_app
from kernel_matrix.version import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

yaml = pytest.importorskip("ruamel.yaml")

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("docs/examples/*/github/*.yml")))
FORMS = sorted(path for path in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml") if path.stem != "config")
SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "github-issue-forms": FORMS,
    "github-issue-config": [ROOT / ".github/ISSUE_TEMPLATE/config.yml"],
    "dependabot": [ROOT / ".github/dependabot.yml"],
    "buildkite": sorted(ROOT.glob("docs/examples/shards/buildkite/*.yml")),
    "gitlab-ci": sorted(ROOT.glob("docs/examples/ci/gitlab/*.yml")),
    "citation-file-format": [ROOT / "CITATION.cff"],
}
ALL = [
    *(path for paths in SCHEMAS.values() for path in paths),
    ROOT / ".pre-commit-config.yaml",
    ROOT / ".github/zizmor.yml",
]
MANIFESTS = sorted(ROOT.glob("docs/examples/shards/kubernetes/*.yaml"))
PAGES = [*(ROOT / "docs" / "how-to" / name for name in ("ci.md", "run-shards.md")), ROOT / "SECURITY.md"]
RECIPES = [*WORKFLOWS, *SCHEMAS["gitlab-ci"], *SCHEMAS["buildkite"], *MANIFESTS]


def read(path):
    return yaml.YAML(typ="safe").load(path)


def named(path):
    return str(path.relative_to(ROOT))


def test_every_kind_of_file_is_there():
    assert {kind: len(paths) for kind, paths in SCHEMAS.items() if not paths} == {}
    assert len(WORKFLOWS) == 6


@pytest.mark.parametrize("path", ALL, ids=named)
def test_yaml_parses(path):
    assert isinstance(read(path), dict)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_files_are_what_their_reader_wants(kind):
    pytest.importorskip("check_jsonschema")
    more = ("--data-transform", "gitlab-ci") if kind == "gitlab-ci" else ()
    words = (sys.executable, "-W", "ignore", "-m", "check_jsonschema", "--builtin-schema", f"vendor.{kind}", *more)
    ran = subprocess.run(
        (*words, "--force-filetype", "yaml", *SCHEMAS[kind]), check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_workflows_are_safe():
    zizmor = shutil.which("zizmor", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if zizmor is None:
        pytest.skip("zizmor is not installed")
    words = (zizmor, "--offline", "--no-progress", "--config", ROOT / ".github/zizmor.yml")
    ran = subprocess.run((*words, ROOT / ".github", *WORKFLOWS), check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_workflows_have_few_rights_and_an_end():
    for path in WORKFLOWS:
        workflow = read(path)
        assert workflow["permissions"] == {"contents": "read"}, path
        assert [name for name, job in workflow["jobs"].items() if "timeout-minutes" not in job] == [], path
        assert "pull_request_target" not in path.read_text(), path


def test_untrusted_text_reaches_no_script():
    """An expression in a script is pasted into it, so that the title of a pull request could be a command."""
    for path in WORKFLOWS:
        steps = [step for job in read(path)["jobs"].values() for step in job["steps"]]
        assert [step["run"] for step in steps if "${{" in step.get("run", "")] == [], path


def test_hooks_are_tools_of_the_project():
    """Each is in `.venv/bin` after `make test`, and what CI runs: nothing is downloaded."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[><=\[;]", line)[0] for line in project["optional-dependencies"]["dev"]}
    repos = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [repo["repo"] for repo in repos] == ["local"]
    tools = [shlex.split(hook["entry"])[0] for hook in repos[0]["hooks"]]
    assert {Path(tool).parent for tool in tools} == {Path(".venv/bin")}
    packages = {"lint-imports": "import-linter"}
    assert {packages.get(Path(tool).name, Path(tool).name) for tool in tools} <= wanted
    makefile = (ROOT / "Makefile").read_text()
    for tool in {Path(tool).name for tool in tools}:
        assert f"$(BIN)/{tool}" in makefile


def test_ci_runs_what_is_there():
    jobs = read(ROOT / ".github/workflows/ci.yml")["jobs"]
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in runs
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert any(run.startswith("make test ") for run in runs)
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert jobs["pythons"]["strategy"]["matrix"]["python"][0] == oldest


@pytest.mark.parametrize("path", [*RECIPES, *FORMS, *PAGES], ids=named)
def test_commands_have_options_that_exist(path):
    for words, rest in commands_of(path):
        assert [option for option in re.findall(r" (--[a-z-]+)", rest) if option not in options_of(words)] == [], words


def commands_of(path):
    """The verbs of the commands in a file, each with the rest of its line."""
    text = re.sub(r"\\?\n +--", " --", path.read_text())
    begins = r"(?:`|^ {4,})" if path.suffix == ".md" else r"(?:^ *(?:- )?(?:run: |exec )?|`)"
    found = re.findall(rf"{begins}kernel-matrix (\w+)(?: (set|check|list|try)\b)?([^`\n]*)", text, re.MULTILINE)
    return [((verb, noun) if noun else (verb,), rest) for verb, noun, rest in found]


def options_of(words):
    command = get_command(build_app())
    for word in words:
        command = command.commands[word]
    return {option for parameter in command.params for option in parameter.opts}


def test_commands_of_recipes_are_found():
    assert [words for words, _ in commands_of(ROOT / "docs/examples/ci/github/nightly.yml")] == [("nightly",)]
    ((_, rest),) = commands_of(ROOT / "docs/examples/ci/github/nightly.yml")
    assert rest.count(" --") == 7
    assert len(commands_of(ROOT / "docs/examples/ci/gitlab/gitlab-ci.yml")) == 5
    assert [words for words, _ in commands_of(ROOT / "docs/examples/shards/kubernetes/job.yaml")] == [("run",)]
    assert [len(commands_of(path)) for path in SCHEMAS["buildkite"]] == [4]
    assert ("baseline", "set") in dict(commands_of(ROOT / "docs/how-to/ci.md"))


def test_citation_names_this_version():
    assert str(read(ROOT / "CITATION.cff")["version"]) == __version__


def test_links_lead_to_what_exists():
    for page in PAGES:
        for target, _, anchor in re.findall(r"\]\(([^)#:]+)(#([^)]+))?\)", page.read_text()):
            assert (page.parent / target).exists(), target
            assert not anchor or anchor in anchors(page.parent / target), f"{target}#{anchor}"


def anchors(page):
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
