"""Old nights that go, and everything that stays."""

from __future__ import annotations

import shutil

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.nightly import retention
from kernel_matrix.nightly.baselines import set_baseline
from kernel_matrix.nightly.paths import NightPaths
from kernel_matrix.nightly.retention import RemovedNights, check_keep, old_nights, remove_old_nights
from tests.results.factory import make_record, put

RUNNING = "2026-03-09"


@pytest.fixture
def places(tmp_path):
    """Nights of one record each from the first to the fifth of March, and the one that goes on."""
    made = NightPaths(tmp_path / "results", "made")
    for day in (*range(1, 6), 9):
        night(made, f"2026-03-0{day}")
    return made


def night(places, name):
    put(places.nights / name / "records", make_record())
    for folder in ("tables", "runs", "traces"):
        (places.nights / name / folder).mkdir()
    (places.nights / name / "report.html").write_text("")
    return places.nights / name


def left(places):
    return sorted(path.name for path in places.nights.iterdir())


def removed(places, keep, running=RUNNING):
    return remove_old_nights(places, keep, running=running)


def test_the_oldest_nights_go_and_the_last_stay(places):
    other = NightPaths(places.results, "other")
    night(other, "2026-01-01")
    assert removed(places, 3) == RemovedNights(
        names=(
            "2026-03-01",
            "2026-03-02",
            "2026-03-03",
        )
    )
    assert left(places) == ["2026-03-04", "2026-03-05", RUNNING]
    assert left(other) == ["2026-01-01"], "another matrix has nights of its own"
    assert removed(places, 3) == RemovedNights()


def test_looking_removes_nothing(places):
    found = old_nights(places, 2, running=RUNNING)
    assert [path.name for path in found.removable] == [f"2026-03-0{day}" for day in (1, 2, 3, 4)]
    assert len(left(places)) == 6
    assert [path.name for path in old_nights(places, 0).removable] == left(places)


def test_nights_of_one_day_go_in_order(places):
    for number in (2, 9, 10):
        night(places, f"2026-03-05.{number}")
    assert removed(places, 2).names[-1] == "2026-03-05.9"
    assert left(places) == ["2026-03-05.10", RUNNING]


def test_the_running_night_stays_whatever_its_date(places):
    assert removed(places, 1, running="2026-03-02").names == ("2026-03-01",)


def test_failed_nights_push_out_no_results(places):
    for day in range(10, 20):
        (places.nights / f"2026-03-{day}" / "records").mkdir(parents=True)
    assert removed(places, 4, running="2026-03-19").names == (
        "2026-03-01",
        "2026-03-02",
    )
    assert "2026-03-10" in left(places)


def test_old_empty_nights_go_as_well(places):
    (places.nights / "2026-02-28").mkdir()
    assert removed(places, 6) == RemovedNights()
    assert removed(places, 5).names == (
        "2026-02-28",
        "2026-03-01",
    )


@pytest.mark.parametrize(
    "name",
    ["2026-02-30", "2026-3-1", "2026-03-01.0x", "2026-03-01 ", "²026-03-01", "notes", ".2026-03-01", "2026-03-01.-1"],
)
def test_what_has_no_night_s_name_stays(name, places):
    night(places, name)
    assert name not in removed(places, 1).names
    assert name in left(places)


def test_links_and_files_are_no_nights(places, tmp_path):
    outside = night(NightPaths(tmp_path / "elsewhere", "x"), "2020-01-01")
    (places.nights / "2020-01-01").symlink_to(outside)
    (places.nights / ".2020-01-01.0123abcd.old").symlink_to(outside)
    (places.nights / "2020-01-02").write_text("a file")
    assert removed(places, 1).error == ""
    assert (outside / "report.html").is_file()
    assert {"2020-01-01", "2020-01-02"} < set(left(places))


def test_a_link_in_a_night_loses_the_link_alone(places, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("")
    shutil.rmtree(places.nights / "2026-03-01" / "traces")
    (places.nights / "2026-03-01" / "traces").symlink_to(kept)
    assert "2026-03-01" in removed(places, 1).names
    assert (kept / "file").is_file()


def test_a_night_with_a_user_s_file_stays_and_says_so(places):
    (places.nights / "2026-03-01" / "notes\x1b.txt").write_text("mine")
    done = removed(places, 4)
    assert done.names == ("2026-03-02",)
    assert done.spared == ("night 2026-03-01 is kept: it holds what no night writes: 'notes\\x1b.txt'",)


def test_a_baseline_is_a_copy_so_its_night_may_go(places):
    source = places.nights / "2026-03-01"
    shutil.rmtree(source / "tables")
    set_baseline(places.results, "usual", source, made_at="x")
    assert "2026-03-01" in removed(places, 1).names


@pytest.mark.parametrize("damage", ["table", "description", "missing"])
def test_the_night_of_a_damaged_baseline_stays(damage, places):
    source = places.nights / "2026-03-01"
    shutil.rmtree(source / "tables")
    set_baseline(places.results, "usual", source, made_at="x")
    folder = places.results / "baselines" / "usual"
    file = folder / ("baseline.json" if damage == "description" else "cells.parquet")
    file.unlink()
    if damage != "missing":
        file.write_text("{")
    done = removed(places, 1)
    assert "2026-03-01" not in done.names
    assert "night 2026-03-01 is kept: baseline usual is damaged" in done.spared[0]


def test_a_damaged_baseline_of_all_nights_keeps_them(places):
    folder = places.results / "baselines" / "usual"
    for path in places.nights.iterdir():
        shutil.rmtree(path / "tables")
    set_baseline(places.results, "usual", places.nights, made_at="x")
    (folder / "cells.parquet").unlink()
    assert removed(places, 1).names == ()


@pytest.mark.parametrize("whole", [True, False])
def test_a_baseline_of_links_needs_its_night(whole, places):
    source = places.nights / "2026-03-01"
    shutil.rmtree(source / "tables")
    set_baseline(places.results, "usual", source, made_at="x")
    folder = places.results / "baselines" / "usual"
    shutil.move(folder if whole else folder / "cells.parquet", source / "tables")
    (folder if whole else folder / "cells.parquet").symlink_to(source / "tables")
    done = removed(places, 1)
    assert "2026-03-01" not in done.names
    assert "files of baseline usual are links into it" in done.spared[0]


def test_a_removal_that_was_killed_is_ended_by_the_next(places, monkeypatch):
    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(retention.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            removed(places, 5)
    assert "2026-03-01" not in left(places), "no half night is among the others"
    assert len(left(places)) == 6
    assert removed(places, 5) == RemovedNights()
    assert left(places) == [*(f"2026-03-0{day}" for day in range(2, 6)), RUNNING]


def test_what_cannot_be_removed_is_a_sentence(places, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(retention.shutil, "rmtree", refuse)
    done = removed(places, 1)
    assert done.names == ("2026-03-01",)
    assert done.error.startswith("--keep: ")
    assert done.error.endswith("Permission denied")
    assert "2026-03-02" in left(places)


def test_at_least_one_night_is_kept():
    for keep in (0, -3):
        with pytest.raises(UsageError, match=f"--keep {keep}"):
            check_keep(keep)
    check_keep(None)
    check_keep(1)
