"""Who is on a GPU, by its driver's lists."""

from sim.nvml import GTX_1080, H200


def test_processes_are_the_union_of_all_lists(driver, ask):
    driver.set({**H200, "compute": "900 70", "graphics": "70 31", "mps": "5"}, {**GTX_1080, "compute": "1"})
    assert ask("nvidia.processes(gpu)") == [5, 31, 70, 900]


def test_many_processes_are_all_listed(driver, ask):
    pids = list(range(1000, 1100))
    driver.set({**H200, "compute": " ".join(map(str, pids))})
    assert ask("nvidia.processes(gpu)") == pids


def test_device_without_graphics_and_mps_lists_compute_processes(driver, ask):
    bare = {key: value for key, value in H200.items() if key not in ("graphics", "mps")}
    driver.set({**bare, "compute": "42"})
    assert ask("nvidia.processes(gpu)") == [42]


def test_processes_hidden_by_the_driver_are_an_error(driver, ask):
    driver.set({key: value for key, value in H200.items() if key != "compute"})
    said = ask("nvidia.processes(gpu)")
    assert said["error"] == "InfrastructureError"
    assert f"processes on {H200['uuid']}" in said["what"]
    assert "does not offer this" in said["next_step"]


def test_a_list_that_fails_is_an_error_and_not_nobody(driver, ask):
    driver.set({**H200, "graphics": "!999"})
    said = ask("nvidia.processes(gpu)")
    assert said["error"] == "InfrastructureError"
    assert "NVML error 999" in said["what"]
