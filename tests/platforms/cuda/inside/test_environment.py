"""Versions of the driver, as it tells them."""

import pytest

pytest.importorskip("torch")

from kernel_matrix.platforms.cuda.inside import environment

pytestmark = pytest.mark.torch


def test_the_driver_is_asked_only_where_there_is_one(monkeypatch):
    def absent(_name):
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(environment.ctypes, "CDLL", absent)
    assert environment._driver_version() is None


@pytest.mark.parametrize(("code", "number", "version"), [(0, 12080, "12.8"), (0, 13000, "13.0"), (100, 0, None)])
def test_the_drivers_number_is_read_as_it_is_meant(code, number, version, monkeypatch):
    class Driver:
        @staticmethod
        def cuDriverGetVersion(pointer):  # noqa: N802  # the driver's own name
            pointer._obj.value = number
            return code

    monkeypatch.setattr(environment.ctypes, "CDLL", lambda _name: Driver)
    assert environment._driver_version() == version
