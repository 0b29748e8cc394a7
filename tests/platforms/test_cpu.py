"""The CPU device, against this machine's own /proc."""

import os

from kernel_matrix.platforms import ClockChoices, DeviceModes, cpu


def test_there_is_one_cpu_with_a_name_and_this_machines_memory():
    found = cpu.inventory()
    (gpu,) = found.gpus
    assert (gpu.platform, gpu.uuid, found.reason) == ("cpu", "cpu", "")
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


def test_cpu_without_model_name_is_named_by_its_architecture(tmp_path, monkeypatch):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n")
    monkeypatch.setattr(cpu, "_CPUINFO", cpuinfo)
    assert cpu.model_name() == os.uname().machine


def machine_with(folder, **settings):
    """A cpufreq folder per core; each setting has one value per core."""
    for name, values in settings.items():
        for core, value in enumerate(values):
            path = folder / f"cpu{core}" / "cpufreq" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
    return folder


def test_details_tell_governors_limits_and_nodes(tmp_path, monkeypatch):
    frequencies = machine_with(
        tmp_path / "cpu",
        scaling_governor=("powersave", "performance", "powersave"),
        scaling_min_freq=(800_000, 1_200_000),
        scaling_max_freq=(3_500_000, 3_800_000),
    )
    for node, cpus in enumerate(("0-3,8-11", "4-7")):
        (tmp_path / "node" / f"node{node}").mkdir(parents=True)
        (tmp_path / "node" / f"node{node}" / "cpulist").write_text(f"{cpus}\n")
    monkeypatch.setattr(cpu, "_FREQUENCIES", frequencies)
    monkeypatch.setattr(cpu, "_NODES", tmp_path / "node")
    (gpu,) = cpu.inventory().gpus
    said = cpu.details(gpu)
    assert said.values == {
        "cores": os.cpu_count(),
        "governors": ["performance", "powersave"],
        "min_mhz": 800.0,
        "max_mhz": 3800.0,
        "numa_nodes": ["0-3,8-11", "4-7"],
    }
    assert said.missing == {}


def test_details_that_the_kernel_hides_are_null_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "_FREQUENCIES", tmp_path)
    monkeypatch.setattr(cpu, "_NODES", tmp_path)
    (gpu,) = cpu.inventory().gpus
    said = cpu.details(gpu)
    assert said.missing.keys() == {"governors", "min_mhz", "max_mhz", "numa_nodes"}
    assert all(said.values[name] is None for name in said.missing)
    assert "cpufreq" in said.missing["governors"]
    assert "NUMA" in said.missing["numa_nodes"]


def test_nothing_of_a_cpu_can_be_locked_or_sampled():
    (gpu,) = cpu.inventory().gpus
    assert cpu.modes(gpu) == DeviceModes()
    assert cpu.clock_choices(gpu) == ClockChoices()
    assert cpu.sampler(gpu) is None
    assert cpu.settings() is None
