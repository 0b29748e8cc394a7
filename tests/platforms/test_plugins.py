"""Platforms that other distributions bring as entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from kernel_matrix.errors import PlatformError
from kernel_matrix.platforms import cpu, registry


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Make modules importable and their entry points found; the registry forgets them afterwards."""

    def installed(*entries: tuple[str, str], **modules: ModuleType) -> None:
        found = [EntryPoint(name, package, registry.GROUP) for name, package in entries]
        monkeypatch.setattr(registry, "entry_points", lambda **_: found)
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        _forget()

    yield installed
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    for function in (registry.registered, registry.get_platform, registry._plugins):
        function.cache_clear()


def made(without: str = "") -> ModuleType:
    module = ModuleType("acme")
    vars(module).update({name: value for name, value in vars(cpu).items() if name != without})
    return module


def test_an_entry_point_is_a_platform(install):
    install(("acme", "acme"), acme=made())
    assert list(registry.platforms()) == ["cpu", "cuda", "acme"]
    assert registry.problems() == ()


def test_a_plugin_that_cannot_be_imported_is_one_line(install):
    install(("acme", "acme_absent"))
    assert list(registry.platforms()) == ["cpu", "cuda"]
    (line,) = registry.problems()
    assert line.startswith("platform 'acme' (acme_absent) cannot be imported: ModuleNotFoundError")


def test_a_plugin_that_takes_a_name_twice_is_one_line(install):
    install(("cpu", "acme"), acme=made())
    assert registry.get_platform("cpu") is cpu
    assert registry.problems() == (
        "platform 'cpu' of acme is ignored: kernel_matrix.platforms.cpu has that name already",
    )


@pytest.mark.parametrize("member", ["inventory", "COST"])
def test_a_plugin_that_lacks_a_member_is_one_line(install, member):
    install(("acme", "acme"), acme=made(without=member))
    assert registry.problems() == (f"platform 'acme' (acme) lacks {member}",)
    with pytest.raises(PlatformError, match="update the package"):
        registry.get_platform("acme")
