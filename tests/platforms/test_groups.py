"""Groups of devices, and what gives a process all devices of one."""

from __future__ import annotations

from kernel_matrix.platforms import NO_ACCESS, DeviceAccess, Gpu, group_of
from kernel_matrix.platforms.registry import gpu_document


def gpu(uuid, **values):
    return Gpu(platform="cpu", uuid=uuid, name="one", **values)


def test_group_has_the_uuids_of_all_and_the_least_memory():
    group = group_of([gpu("b", memory_bytes=3, index=0), gpu("a", memory_bytes=5, index=1)])
    assert (group.uuid, group.memory_bytes) == ("a+b", 3)
    assert [one.uuid for one in group.members] == ["a", "b"]
    assert gpu("a").members == (gpu("a"),)


def test_group_document_has_no_list_of_devices():
    assert gpu_document(group_of([gpu("a"), gpu("b")])) == {**gpu_document(gpu("a")), "uuid": "a+b"}


def test_joined_access_lists_the_devices_of_both_in_one_request():
    one, other = (
        DeviceAccess(
            way="toolkit",
            requests=({"device_ids": [name], "capabilities": [["gpu"]]},),
            nodes=(f"/dev/{name}", "/dev/control"),
            groups=(44,),
            libraries=(("/lib", "/lib"),),
            system_files=("/sys/class",),
            environment={"DEVICES": name, "LIBRARIES": "/lib"},
        )
        for name in ("a", "b")
    )
    assert one.joined(other) == DeviceAccess(
        way="toolkit",
        requests=({"device_ids": ["a", "b"], "capabilities": [["gpu"]]},),
        nodes=("/dev/a", "/dev/control", "/dev/b"),
        groups=(44,),
        libraries=(("/lib", "/lib"),),
        system_files=("/sys/class",),
        environment={"DEVICES": "a,b", "LIBRARIES": "/lib"},
    )


def test_joined_access_of_different_ways_is_none():
    assert DeviceAccess(way="cdi").joined(DeviceAccess(way="devices")).way == NO_ACCESS


def test_joined_access_keeps_requests_of_different_kinds():
    one = DeviceAccess(way="w", requests=({"device_ids": ["a"], "driver": "x"},))
    other = DeviceAccess(way="w", requests=({"device_ids": ["b"], "driver": "y"},))
    assert len(one.joined(other).requests) == 2
