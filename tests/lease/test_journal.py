"""The journal of what must be given back: whole on disk, and believed only from those who may be."""

import json
import os
import stat

import pytest

from kernel_matrix.errors import GpuSettingError
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.lease.journal import (
    COMPUTE_MODE,
    MEMORY,
    SM,
    ClockNote,
    UnreadableJournalError,
    discard,
    forget,
    journal_file,
    journal_files,
    note,
    read_journal,
)
from kernel_matrix.lease.terms import LeaseTerms
from kernel_matrix.platforms import ComputeMode, Gpu

GPU = Gpu(platform="cuda", uuid="GPU-1/../2", name="NVIDIA H200")
TERMS = LeaseTerms(wait_s=0, run_id="run", cell_id="cell")
NOTED = ClockNote(target_mhz=1500, before_mhz=1980)


@pytest.fixture
def path(tmp_path):
    """Return the path of the journal, in a folder that exists."""
    return journal_file(tmp_path, GPU.uuid)


def test_it_lies_beside_the_lock_file_under_the_same_name(path, tmp_path):
    note(GPU, TERMS, tmp_path, SM, NOTED)
    assert path == tmp_path / "GPU-1____2.settings.json"
    assert journal_files(tmp_path) == [path] == list(tmp_path.iterdir())


def test_what_was_noted_is_read_again(path, tmp_path):
    assert read_journal(tmp_path, GPU.uuid) is None
    note(GPU, TERMS, tmp_path, SM, NOTED)
    note(GPU, TERMS, tmp_path, COMPUTE_MODE, ComputeMode.DEFAULT)
    journal = read_journal(tmp_path, GPU.uuid)
    assert (journal.sm, journal.memory, journal.compute_mode) == (NOTED, None, ComputeMode.DEFAULT)
    assert (journal.uuid, journal.vendor, journal.owner) == (GPU.uuid, "nvidia", owner_token())
    assert (journal.run_id, journal.cell_id) == ("run", "cell")


def test_parts_are_forgotten_one_by_one_and_the_empty_file_goes(path, tmp_path):
    for part, value in ((SM, NOTED), (MEMORY, NOTED), (COMPUTE_MODE, ComputeMode.DEFAULT)):
        note(GPU, TERMS, tmp_path, part, value)
    forget(GPU, tmp_path, COMPUTE_MODE)
    assert read_journal(tmp_path, GPU.uuid).compute_mode is None
    forget(GPU, tmp_path, SM, MEMORY)
    assert not path.exists()
    forget(GPU, tmp_path, SM)  # nothing there: nothing to do


def test_everybody_may_read_it_and_only_its_owner_write(path, tmp_path):
    old = os.umask(0o077)
    try:
        note(GPU, TERMS, tmp_path, SM, NOTED)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_what_a_killed_writer_left_aside_is_in_nobodys_way(path, tmp_path):
    path.with_suffix(".new").write_text("half")
    note(GPU, TERMS, tmp_path, SM, NOTED)
    assert read_journal(tmp_path, GPU.uuid).sm == NOTED
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_in_its_place_is_not_followed(path, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.with_suffix(".new").symlink_to(victim)
    note(GPU, TERMS, tmp_path, SM, NOTED)
    path.unlink()
    path.symlink_to(victim)
    with pytest.raises(UnreadableJournalError, match="is a symbolic link"):
        read_journal(tmp_path, GPU.uuid)
    discard(GPU, tmp_path)
    assert victim.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [victim]


def changed(**keys):
    def change(path):
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))

    return change


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.write_text(""), "cannot be understood"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "cannot be understood"),
        (lambda path: path.write_text("[" * 20_000), "cannot be understood"),
        (lambda path: path.write_text("[]"), "cannot be understood"),
        (lambda path: path.write_text("{}"), "cannot be understood"),
        (lambda path: path.write_text(" " * 70_000), "is larger than 64 KiB: 70000 of at most 65536 bytes"),
        (changed(sm="1500"), "cannot be understood"),
        (changed(sm={"target_mhz": "1500", "before_mhz": None}), "cannot be understood"),
        (changed(memory=0), "cannot be understood"),
        (changed(compute_mode="hard"), "cannot be understood"),
        (changed(owner=7), "cannot be understood"),
        (changed(command="rm"), "unknown key 'command'"),
        (changed(uuid="GPU-2"), "speaks of another GPU, GPU-2"),
        (lambda path: path.with_name("second").hardlink_to(path), "has another name"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is not a regular file"),
        (lambda path: (path.unlink(), path.mkdir()), "is not a regular file"),
    ],
)
def test_what_cannot_be_understood_is_said_to_be_so(path, tmp_path, spoil, why):
    note(GPU, TERMS, tmp_path, SM, NOTED)
    spoil(path)
    with pytest.raises(UnreadableJournalError, match=why):
        read_journal(tmp_path, GPU.uuid)
    with pytest.raises(GpuSettingError, match=r"cannot be kept track of"):
        note(GPU, TERMS, tmp_path, SM, NOTED)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_a_strangers_word_is_not_believed(path, tmp_path):
    note(GPU, TERMS, tmp_path, SM, NOTED)
    os.chown(path, 65534, 65534)
    with pytest.raises(UnreadableJournalError, match="belongs to user 65534"):
        read_journal(tmp_path, GPU.uuid)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(GpuSettingError, match="cannot be written") as caught:
        note(GPU, TERMS, tmp_path / "absent", SM, NOTED)
    assert str(tmp_path / "absent") in caught.value.next_step


def test_note_and_forget_are_on_disk_when_they_return(path, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode)))
    note(GPU, TERMS, tmp_path, SM, NOTED)
    assert synced == [False, True], "the content, then its name"
    forget(GPU, tmp_path, SM)
    assert synced == [False, True, True], "that the name is gone"
