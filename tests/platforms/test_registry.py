"""What holds for every platform in the registry."""

import ast
import inspect
import json
import re
from functools import cache
from pathlib import Path

import pytest

import kernel_matrix
from kernel_matrix.inside import platform_defaults
from kernel_matrix.inside.platform import InsidePlatform
from kernel_matrix.model.protocols import protocol_members
from kernel_matrix.platforms import (
    ClockChoices,
    DeviceModes,
    DeviceSettings,
    Platform,
    PlatformInventory,
    TelemetrySample,
    defaults,
)
from kernel_matrix.platforms.registry import PLATFORMS, _missing_inside, get_platform, host_inventory

PACKAGE = Path(kernel_matrix.__file__).parent
NVML = PACKAGE / "platforms" / "cuda"
READS = re.compile(r"nvml(Init(WithFlags)?|Shutdown|(System|Device)Get[A-Z]\w*)$")
VALUES = re.compile(r"nvml(Clocks(Event|Throttle)Reason\w+|Memory_v2|Return)$")


def members(protocol):
    return {name for name in vars(protocol) if not name.startswith("_")}


def parameters(function):
    return list(inspect.signature(function).parameters)


def every_device():
    return [gpu for inventory in host_inventory().values() for gpu in inventory.gpus]


@pytest.mark.parametrize("name", PLATFORMS.built_in)
def test_each_platform_answers_what_the_protocol_asks(name):
    module = get_platform(name)
    assert all(hasattr(module, member) for member in Platform.__annotations__)
    for member in members(Platform):
        assert parameters(getattr(module, member)) == parameters(getattr(Platform, member))[1:]


def test_platforms_without_a_proof_are_not_proven():
    assert {name for name in PLATFORMS.built_in if get_platform(name).PROVEN} == {"cpu", "cuda"}
    assert defaults.PROVEN is False


STAR = "from kernel_matrix.inside.platform_defaults import *\n"
OWN = [name for name in protocol_members(InsidePlatform) if name not in platform_defaults.__all__]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (STAR + "".join(f"def {name}(): pass\n" for name in OWN), []),
        (
            STAR + "if 1:\n  import torch as transport\nelse:\n  buffer_bytes = 1\n",
            [name for name in OWN if name not in ("transport", "buffer_bytes")],
        ),
        (STAR + "def f():\n  transport = 1\n", OWN),
        ("from .device import *\n", []),
        ("", [*protocol_members(InsidePlatform)]),
    ],
    ids=["complete", "branches", "in_function", "unknown_star", "empty"],
)
def test_missing_inside_compares_text_with_protocol(tmp_path, text, missing):
    (tmp_path / "__init__.py").write_text(text)
    found = _missing_inside(tmp_path / "__init__.py")
    assert found == missing


@pytest.mark.parametrize("name", PLATFORMS.built_in)
def test_platform_settings_are_none_or_implement_the_protocol(name):
    settings = get_platform(name).settings()
    if settings is not None:
        assert members(type(settings)) == members(DeviceSettings)
        for member in members(DeviceSettings):
            assert parameters(getattr(settings, member)) == parameters(getattr(DeviceSettings, member))[1:]


def test_every_platform_says_what_it_has_or_why_not():
    found = host_inventory()
    assert list(found) == list(PLATFORMS.built_in)
    for name, inventory in found.items():
        assert isinstance(inventory, PlatformInventory)
        assert inventory.gpus or inventory.reason
        assert all(gpu.platform == name for gpu in inventory.gpus)


@pytest.mark.parametrize("gpu", every_device(), ids=lambda gpu: gpu.uuid)
def test_every_device_of_this_host_can_be_asked_everything(gpu):
    of = get_platform(gpu.platform)
    with of.opened():
        assert list(of.processes(gpu)) == sorted(of.processes(gpu))
        json.dumps(of.snapshot(gpu))
        assert all(clock is None or clock > 0 for clock in of.clocks(gpu))
        details = of.details(gpu)
        json.dumps(details.values)
        assert details.missing.keys() == {name for name, value in details.values.items() if value is None}
        assert all(details.missing.values())
        assert isinstance(of.modes(gpu), DeviceModes)
        assert isinstance(of.clock_choices(gpu), ClockChoices)
        look = of.sampler(gpu)
        assert look is None or isinstance(look(), TelemetrySample)


@cache
def nodes(path):
    return list(ast.walk(ast.parse(path.read_text())))


def nvml_names(path):
    """Every name, attribute or text in a module that could reach a function of NVML."""
    for node in nodes(path):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_settings_are_changed_from_one_module_alone():
    used = {(path, name) for path in PACKAGE.rglob("*.py") for name in nvml_names(path) if name.startswith("nvml")}
    assert len(used) > 40
    changing = {(path, name) for path, name in used if not (READS.match(name) or VALUES.match(name))}
    assert {path for path, _ in changing} == {NVML / "settings.py"}
    assert {name for _, name in changing} == {
        "nvmlDeviceSetGpuLockedClocks",
        "nvmlDeviceSetMemoryLockedClocks",
        "nvmlDeviceResetGpuLockedClocks",
        "nvmlDeviceResetMemoryLockedClocks",
        "nvmlDeviceSetComputeMode",
    }


def imported(path):
    """Every module that a file imports, and every name it takes from one."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def test_the_bindings_are_used_in_one_package_and_by_plain_names():
    importing = {path for path in PACKAGE.rglob("*.py") if "pynvml" in set(imported(path))}
    assert {path.parent for path in importing} == {NVML}
    assert [path for path in importing if {"getattr", "methodcaller", "__dict__"} & set(nvml_names(path))] == []


def test_settings_module_is_imported_only_by_its_platform():
    module = "kernel_matrix.platforms.cuda.settings"
    importing = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if module in set(imported(path))}
    assert importing == {Path("platforms/cuda/__init__.py")}
