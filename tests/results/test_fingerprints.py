"""Salted hashes in place of what identifies a machine."""

from __future__ import annotations

import json
import re

import pytest

from kernel_matrix.json_schemas import is_valid
from kernel_matrix.results.fingerprints import Salter
from kernel_matrix.results.record import record_to_json
from kernel_matrix.results.run_info import run_to_json
from tests.results.factory import full_record, make_run

UNIT = "GPU-28aa25ea-2fc5-e22a-c4a0-1cf43b233adb"
OTHER = "GPU-660c4067-3f20-9101-d4a6-a5b03ec9aaba"
BUILD = "6.18.44-lab-v657"


@pytest.fixture
def salter():
    return Salter(b"s" * 32, ["head-node"])


@pytest.fixture
def record():
    """A record with all that identifies a machine."""
    document = record_to_json(full_record())
    document["host"] |= {
        "hostname": "turing",
        "machine": "5bce98f73f3ed0c8",
        "platform": f"Linux {BUILD} x86_64, Ubuntu 24.04.3 LTS",
        "device": {"uuid": f"{UNIT}+{OTHER}", "name": "a device"},
        "devices": [{"uuid": UNIT}, {"uuid": OTHER, "serial": "1650523018871"}],
        "device_details": {"pci_bus_id": "00000000:3b:00.0", "vbios": "96.00.DA", "missing": {"vbios": "not told"}},
        "warnings": [f"turing: {UNIT} at 0000:3b:00.0 was busy", "head-node told so", "see /home/ada/lab/notes: ok"],
    }
    return document


def test_salted_document_has_nothing_that_identifies(record, salter):
    text = json.dumps(salter.salted(record))
    left = [
        UNIT,
        OTHER,
        BUILD,
        "turing",
        "5bce98f73f3ed0c8",
        "1650523018871",
        "3b:00.0",
        "96.00.DA",
        "head-node",
        "ada",
    ]
    assert [name for name in left if name in text] == []


def test_salted_document_is_valid(record, salter):
    assert is_valid("record", salter.salted(record))
    assert is_valid("run", salter.salted(json.loads(json.dumps(run_to_json(make_run())))))


def test_equal_values_have_equal_hashes(record, salter):
    host = salter.salted(record)["host"]
    first, second = (device["uuid"] for device in host["devices"])
    assert (host["device"]["uuid"], first != second) == (f"{first}+{second}", True)
    assert f"{host['hostname']}: {first} at salted-" in host["warnings"][0]
    assert re.fullmatch(r"see /home/salted-[0-9a-f]{16}/lab/notes: ok", host["warnings"][2])


def test_other_salt_gives_other_hashes(record, salter):
    assert salter.hashed("turing") == Salter(b"s" * 32).hashed("turing") != Salter(b"t" * 32).hashed("turing")


def test_kernel_keeps_its_version(record, salter):
    platform = salter.salted(record)["host"]["platform"]
    assert re.fullmatch(r"Linux 6\.18\.44-salted-[0-9a-f]{16} x86_64, Ubuntu 24\.04\.3 LTS", platform)


def test_environment_names_the_same_kernel(record, salter):
    record["sessions"][0]["environment"]["platform"] = f"Linux-{BUILD}-x86_64-with-glibc2.39"
    salted = salter.salted(record)
    build = salted["host"]["platform"].split()[1]
    assert salted["sessions"][0]["environment"]["platform"] == f"Linux-{build}-x86_64-with-glibc2.39"


def test_what_identifies_nothing_stays(record, salter):
    record["host"] |= {"hostname": "softmax", "device": {"uuid": "cpu"}, "platform": "Linux 6.8.0 x86_64, Debian 12"}
    record["cell"]["problem"] = "softmax"
    salted = salter.salted(record)
    assert (salted["cell"], salted["host"]["device"]["uuid"]) == (record["cell"], "cpu")
    assert salted["host"]["platform"] == record["host"]["platform"]
    assert salted["host"]["device_details"]["missing"] == {"vbios": "not told"}
    assert salted["sessions"][0]["status"] == record["sessions"][0]["status"]


def test_hashes_are_not_hashed_again(record, salter):
    once = salter.salted(record)
    assert Salter(b"t" * 32).salted(once) == once


def test_nodes_of_a_fleet_are_hashed_like_hosts(salter):
    run = run_to_json(make_run(clocks_ahead_s={"lab-1": 2.5}, matrix_path="/home/ada/matrix.toml"))
    salted = salter.salted(run)
    assert salted["clocks_ahead_s"] == {salted["host"]["hostname"]: 2.5}
    assert re.fullmatch("/home/salted-[0-9a-f]{16}/matrix.toml", salted["matrix_path"])
