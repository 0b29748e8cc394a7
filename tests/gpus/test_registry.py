"""What holds for every vendor in the registry."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import runner
from runner.gpus import VENDORS, Inventory, Vendor, host_inventory, vendor

PACKAGE = Path(runner.__file__).parent
READS = re.compile(r"nvml(Init|Shutdown|(System|Device)Get[A-Z]\w*)$")


@pytest.mark.parametrize("name", VENDORS)
def test_each_vendor_answers_what_the_protocol_asks(name):
    module = vendor(name)
    asked = {member for member in vars(Vendor) if not member.startswith("_")}
    assert asked == {"inventory", "opened", "processes", "snapshot"}
    for member in asked:
        wanted = list(inspect.signature(getattr(Vendor, member)).parameters)[1:]
        assert list(inspect.signature(getattr(module, member)).parameters) == wanted


def test_every_vendor_says_what_it_has_or_why_not():
    found = host_inventory()
    assert list(found) == list(VENDORS)
    for name, inventory in found.items():
        assert isinstance(inventory, Inventory)
        assert inventory.gpus or inventory.reason
        assert all(gpu.vendor == name for gpu in inventory.gpus)


def nvml_names(path):
    """Every name, attribute or text in a module that could reach a function of NVML."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_nothing_in_the_package_changes_a_gpus_settings():
    used = {
        (path.relative_to(PACKAGE), name)
        for path in PACKAGE.rglob("*.py")
        for name in nvml_names(path)
        if name.startswith("nvml")
    }
    assert len(used) > 10
    assert {(path, name) for path, name in used if not READS.match(name)} == set()


def test_nvml_is_reached_from_one_module_and_by_plain_names():
    importing = [path.name for path in PACKAGE.rglob("*.py") if "pynvml" in set(nvml_names(path))]
    assert importing == ["nvidia.py"]
    assert "getattr" not in set(nvml_names(PACKAGE / "gpus" / "nvidia.py"))
