"""The CPU device, against this machine's own /proc."""

import os

from runner.gpus import cpu


def test_there_is_one_cpu_with_a_name_and_this_machines_memory():
    found = cpu.inventory()
    (gpu,) = found.gpus
    assert (gpu.vendor, gpu.uuid, gpu.torch_device, found.reason) == ("cpu", "cpu", "cpu", "")
    assert gpu.name == gpu.name.strip() != ""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert abs(gpu.memory_bytes - pages) <= 0.01 * pages


def test_nobody_is_foreign_on_a_cpu():
    (gpu,) = cpu.inventory().gpus
    assert cpu.processes(gpu) == ()


def test_a_snapshot_tells_load_and_memory_in_use():
    (gpu,) = cpu.inventory().gpus
    seen = cpu.snapshot(gpu)
    assert seen["load_average"] >= 0
    assert 0 < seen["memory_used_bytes"] < gpu.memory_bytes


def test_frequency_is_null_where_the_kernel_hides_it(tmp_path, monkeypatch):
    (gpu,) = cpu.inventory().gpus
    monkeypatch.setattr(cpu, "_FREQUENCIES", tmp_path)
    monkeypatch.setattr(cpu, "_CPUINFO", tmp_path / "absent")
    assert cpu.snapshot(gpu)["frequency_mhz"] is None


def test_frequency_is_the_mean_of_the_cores(tmp_path, monkeypatch):
    for core, kilohertz in enumerate((2_000_000, 3_000_000)):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{kilohertz}\n")
    (gpu,) = cpu.inventory().gpus
    monkeypatch.setattr(cpu, "_FREQUENCIES", tmp_path)
    assert cpu.snapshot(gpu)["frequency_mhz"] == 2500.0


def test_a_cpu_without_a_model_name_is_called_by_its_architecture(tmp_path, monkeypatch):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n")
    monkeypatch.setattr(cpu, "_CPUINFO", cpuinfo)
    assert cpu.model_name() == os.uname().machine
