"""Registries, and what other packages add to them as entry points."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace

import pytest

from kernel_matrix import judge_checks, plugins
from kernel_matrix.errors import PluginError
from kernel_matrix.plugins import Registry

GROUP = "kernel_matrix.tools"


@pytest.fixture
def install(monkeypatch):
    """Make modules importable and their entry points found: ``install(("acme", "acme_module"), acme_module=…)``."""

    def installed(*entries, **modules):
        for name, members in modules.items():
            module = ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)
        found = [EntryPoint(name, value, GROUP) for name, value in entries]
        monkeypatch.setattr(plugins, "_all_entries", lambda: SimpleNamespace(select=lambda group: found))
        plugins._entries.cache_clear()

    yield installed
    plugins._entries.cache_clear()


def registry(**changes):
    return Registry("tool", GROUP, {"saw": "json:loads", "axe": len}, members=("cut",), **changes)


def test_registry_names_built_in_first(install):
    install(("drill", "b"), ("awl", "a"), a={"cut": 1}, b={"cut": 2})
    tools = registry()
    assert list(tools) == ["saw", "axe", "awl", "drill"]
    assert (tools.load("awl").cut, "drill" in tools, "hammer" in tools) == (1, True, False)
    assert tools.faults() == ()


def test_registry_built_in_text_is_imported_and_checked(install):
    install()
    tools = registry()
    assert tools.load("axe") is len, "an object is taken as it is"
    with pytest.raises(PluginError, match="lacks cut"):
        tools.load("saw")


def test_registry_unknown_name_lists_known(install):
    install(("awl", "a"), a={"cut": 1})
    with pytest.raises(PluginError, match="unknown tool 'hammer'") as caught:
        registry().load("hammer")
    assert "saw, axe, awl" in caught.value.next_step


@pytest.mark.parametrize(
    ("entry", "module", "line"),
    [
        (("awl", "absent_module"), {}, "tool 'awl' (absent_module) cannot be loaded: ModuleNotFoundError"),
        (("awl", "a"), {}, "tool 'awl' (a) lacks cut"),
        (("axe", "a"), {"cut": 1}, "tool 'axe' of a is ignored: that name is taken by kernel-matrix itself"),
        (("awl", "a:absent"), {"cut": 1}, "tool 'awl' (a:absent) cannot be loaded: AttributeError"),
    ],
    ids=["no_module", "no_member", "built_in_name", "no_attribute"],
)
def test_registry_bad_entry_is_one_line(install, entry, module, line):
    install(entry, ("drill", "good"), a=module, good={"cut": 2})
    tools = registry()
    (found,) = tools.faults()
    assert found.startswith(line)
    assert set(tools.usable()) & {"axe", "awl", "drill"} == {"axe", "drill"}, "everything else works"
    assert tools.usable()["axe"] is len


def test_registry_name_of_two_packages_is_of_the_first(install):
    install(("awl", "b"), ("awl", "a"), ("awl", "a"), a={"cut": 1}, b={"cut": 2})
    tools = registry()
    assert tools.load("awl").cut == 1
    assert tools.faults() == ("tool 'awl' of b is ignored: that name is taken by a",)


def test_registry_object_must_have_its_name(install):
    install(("awl", "a"), a={"cut": 1, "name": "drill"})
    with pytest.raises(PluginError, match="calls itself 'drill'"):
        registry(name_member="name").load("awl")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def check(call): return None", ""),
        ("import torch\nfrom kernel_matrix.model.enums import Status\ndef check(call): pass", ""),
        ("def look(call): pass", "it has no function check(call)"),
        ("def check(call, more): pass", "it has no function check(call)"),
        ("import numpy\ndef check(call): pass", "the judge cannot import numpy"),
        ("from .other import it\ndef check(call): pass", "the judge cannot import .other"),
        ("from kernel_matrix.plan import Cell\ndef check(call): pass", "the judge cannot import kernel_matrix.plan"),
        ("def check(call:", "SyntaxError"),
    ],
)
def test_judge_check_is_read_not_imported(tmp_path, monkeypatch, source, reason):
    (tmp_path / "acme_check.py").write_text(f"raise SystemExit\n{source}" if not reason else source)
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("acme", "acme_check", "kernel_matrix.checks")
    if not reason:
        assert judge_checks._locate(entry) == tmp_path / "acme_check.py"
        return
    with pytest.raises((PluginError, SyntaxError)) as caught:
        judge_checks._locate(entry)
    assert reason in f"{type(caught.value).__name__} {caught.value}"


def test_judge_check_files_exist():
    assert all(file.is_file() for file in judge_checks.CHECKS.built_in.values())


@pytest.mark.torch
def test_judge_check_names_are_those_of_the_judge():
    from kernel_matrix.inside.judge.checks import checks  # noqa: PLC0415  # imports torch

    assert list(checks()) == list(judge_checks.CHECKS.built_in)
