"""What a host forbids, by its environment or its own file."""

import pytest

from kernel_matrix.platforms.permission import HOST_FILE_VARIABLE, SETTINGS_VARIABLE, host_file, why_forbidden


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    """This host's own file, absent at first; and an environment that says nothing."""
    monkeypatch.delenv(SETTINGS_VARIABLE, raising=False)
    monkeypatch.setenv(HOST_FILE_VARIABLE, str(tmp_path / "host.toml"))
    return tmp_path / "host.toml"


def test_a_host_that_says_nothing_permits():
    assert why_forbidden() == ""


def test_the_host_file_is_where_administrators_keep_theirs(monkeypatch):
    monkeypatch.delenv(HOST_FILE_VARIABLE)
    assert str(host_file()) == "/etc/kernel-matrix/host.toml"


@pytest.mark.parametrize(
    ("said", "forbids"), [("forbid", True), ("allow", False), ("", False), ("Forbid ", True), ("0", True)]
)
def test_the_variable_forbids_unless_it_clearly_allows(monkeypatch, said, forbids):
    monkeypatch.setenv(SETTINGS_VARIABLE, said)
    why = why_forbidden()
    assert bool(why) is forbids
    assert not forbids or SETTINGS_VARIABLE in why


@pytest.mark.parametrize(
    ("text", "forbids"),
    [
        ("", False),
        ('gpu_settings = "allow"', False),
        ('gpu_settings = "forbid"', True),
        ('gpu_settings = "no"', True),
        ("gpu_settings = false", True),
        ("gpu_settings = forbid", True),  # no TOML: a text without quotes
        ('something_else = "forbid"', False),
    ],
)
def test_the_file_forbids_unless_it_clearly_allows(file, text, forbids):
    file.write_text(text)
    why = why_forbidden()
    assert bool(why) is forbids
    assert not forbids or str(file) in why


def test_a_file_that_is_no_text_forbids(file):
    file.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in why_forbidden()


def test_a_file_that_cannot_be_opened_forbids(file):
    file.mkdir()
    assert "cannot be read" in why_forbidden()


def test_either_of_both_forbids(file, monkeypatch):
    file.write_text('gpu_settings = "forbid"')
    monkeypatch.setenv(SETTINGS_VARIABLE, "allow")
    assert str(file) in why_forbidden()
    file.write_text('gpu_settings = "allow"')
    monkeypatch.setenv(SETTINGS_VARIABLE, "forbid")
    assert SETTINGS_VARIABLE in why_forbidden()
