"""Arenas: one memory seen by two processes, whose size only the judge decides, and the places of tensors in it."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import mmap
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.memory import (
    ALIGNMENT,
    GUARD,
    TensorSpec,
    dtype_name,
    guards,
    lay_out,
)
from kernel_matrix.inside.wire import DTYPE_CODES
from kernel_matrix.platforms.cpu import inside as cpu

pytestmark = pytest.mark.torch


def descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def carry(tensors):
    """The tensors as a peer sees them who opens the arena they were put in."""
    specs, nbytes = lay_out(tensors)
    with closing(cpu.create_arena(nbytes)) as ours:
        for spec, tensor in zip(specs, tensors, strict=True):
            spec.view(ours.tensor).copy_(tensor)
        with closing(cpu.open_arena(os.dup(ours.descriptor), nbytes)) as theirs:
            sent = [TensorSpec.from_json(spec.to_json()) for spec in specs]
            return [spec.view(theirs.tensor) for spec in sent]


def same_bits(one, other):
    return torch.equal(one.contiguous().reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("name", DTYPE_CODES)
def test_every_dtype_of_the_wire_crosses_bit_for_bit(name):
    bits = torch.randint(0, 2 if name == "bool" else 256, (16 * 6,), dtype=torch.uint8)
    tensor = bits.view(getattr(torch, name))[:6].reshape(2, 3)
    (seen,) = carry([tensor])
    assert seen.dtype == tensor.dtype
    assert seen.shape == tensor.shape
    assert same_bits(seen, tensor)


STRIDED = {
    "contiguous": torch.arange(24.0).reshape(2, 3, 4),
    "transposed": torch.arange(24.0).reshape(4, 6).T,
    "channels last": torch.arange(48.0).reshape(2, 3, 2, 4).contiguous(memory_format=torch.channels_last),
    "every second": torch.arange(24.0)[::2],
    "a number": torch.tensor(3.5),
    "without elements": torch.empty(0, 5),
    "without elements, transposed": torch.empty(5, 0).T,
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides_are_kept(name):
    tensor = STRIDED[name]
    (seen,) = carry([tensor])
    assert (seen.shape, seen.stride()) == (tensor.shape, tensor.stride())
    assert torch.equal(seen, tensor)


def test_an_expanded_tensor_gets_elements_of_its_own():
    tensor = torch.tensor([[1.0], [2.0]]).expand(2, 3)
    (seen,) = carry([tensor])
    assert seen.stride() == (3, 1)
    assert torch.equal(seen, tensor)


def test_windows_that_overlap_keep_their_values():
    tensor = torch.arange(10.0).unfold(0, 3, 1)
    (seen,) = carry([tensor])
    assert torch.equal(seen, tensor)


def test_tensors_lie_aligned_one_behind_the_other():
    tensors = [torch.ones(3, dtype=torch.bool), torch.empty(0), torch.arange(1000), torch.tensor(7.0)]
    specs, nbytes = lay_out(tensors)
    assert [spec.offset % ALIGNMENT for spec in specs] == [0, 0, 0, 0]
    ends = [spec.offset + spec.span_bytes for spec in specs]
    assert all(end <= after.offset for end, after in zip(ends, specs[1:], strict=False))
    assert ends[-1] <= nbytes
    for seen, tensor in zip(carry(tensors), tensors, strict=True):
        assert torch.equal(seen, tensor)


def test_every_tensor_has_a_guard_on_either_side():
    tensors = [torch.ones(3, dtype=torch.bool), torch.empty(0), torch.arange(1000), torch.arange(8.0)[::2]]
    specs, nbytes = lay_out(tensors)
    zones = guards(specs, nbytes)
    assert len(zones) == len(tensors) + 1
    assert all(stop - start >= GUARD for start, stop in zones)
    covered = sum(stop - start for start, stop in zones) + sum(spec.span_bytes for spec in specs)
    assert covered == nbytes, "every byte is a tensor's or a guard's"


def test_no_tensors_need_an_arena_too():
    specs, nbytes = lay_out([])
    assert specs == []
    assert nbytes == GUARD
    assert carry([torch.empty(0)])[0].numel() == 0


def test_dtypes_have_the_names_that_torch_gives_them():
    assert [dtype_name(getattr(torch, name)) for name in DTYPE_CODES] == list(DTYPE_CODES)


PEER = """
import os, socket, sys
from kernel_matrix.platforms.cpu import inside as cpu
connection = socket.socket(fileno=int(sys.argv[1]))
_, (descriptor,), _, _ = socket.recv_fds(connection, 1, 1)
arena = cpu.open_arena(descriptor, int(sys.argv[2]))
arena.tensor[1] = arena.tensor[0] + 1
for size in (0, 1 << 20):
    try:
        os.ftruncate(descriptor, size)
    except PermissionError:
        connection.send(b"r")
connection.recv(1)
connection.send(bytes([int(arena.tensor[2])]))
"""


def test_arena_is_shared_by_two_processes_and_has_a_fixed_size():
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    peer = subprocess.Popen(
        (sys.executable, "-c", PEER, str(theirs.fileno()), "4096"),
        pass_fds=[theirs.fileno()],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    theirs.close()
    with ours, closing(cpu.create_arena(4096)) as arena:
        arena.tensor[0] = 41
        socket.send_fds(ours, [b"x"], [arena.descriptor])
        assert ours.recv(1) + ours.recv(1) == b"rr", "shrinking or growing was not refused"
        assert int(arena.tensor[1]) == 42
        arena.tensor[2] = 43
        ours.send(b"x")
        assert ours.recv(1) == bytes([43])
        assert os.fstat(arena.descriptor).st_size == 4096
    assert peer.wait(30) == 0


def test_a_closed_arena_leaves_no_descriptor_and_no_mapping():
    before = descriptors()
    arena = cpu.create_arena(1 << 20)
    # Of this arena: others may be there, until somebody collects their garbage.
    file = f" {os.fstat(arena.descriptor).st_ino} "
    assert len(descriptors()) > len(before)
    assert file in Path("/proc/self/maps").read_text()
    arena.close()
    assert descriptors() == before
    assert file not in Path("/proc/self/maps").read_text()


def test_a_view_outlives_the_arena_it_was_taken_of():
    arena = cpu.create_arena(4096)
    view = arena.tensor[:4]
    view.fill_(7)
    arena.close()
    assert view.tolist() == [7, 7, 7, 7]


def test_arena_file_shorter_than_announced_is_refused_untouched():
    with closing(cpu.create_arena(mmap.PAGESIZE)) as arena:
        copy = os.dup(arena.descriptor)
        try:
            with pytest.raises(ValueError, match="mmap length is greater than file size"):
                cpu.open_arena(copy, 2 * mmap.PAGESIZE)
        finally:
            os.close(copy)
