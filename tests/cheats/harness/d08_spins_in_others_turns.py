"""Keeps the GPU busy in the baseline's turns, with a kernel that ends when its own next call comes.

class: D8
expect: timing_mismatch
earns: 1.2
problem: long_matmul
device: cuda
stopped-by: quiet device
"""

import ctypes

import torch
from torch import nn

from tests.cheats.worker_internals import after_answer, on_order

SPIN = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 flag)
{
    .reg .pred %waiting;
    .reg .b32 %seen;
    .reg .b64 %place;
    ld.param.u64 %place, [flag];
again:
    ld.volatile.global.u32 %seen, [%place];
    setp.eq.u32 %waiting, %seen, 0;
    @%waiting bra again;
    ret;
}
"""

driver = ctypes.CDLL("libcuda.so.1")
flag = torch.zeros(1, dtype=torch.int32, pin_memory=True)
stream = torch.cuda.Stream()
module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
driver.cuModuleLoadData(ctypes.byref(module), SPIN)
driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"spin")


def spin(kind):
    if kind == "OUTPUTS":
        flag.zero_()
        place = ctypes.c_uint64(flag.data_ptr())
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(place))
        queue = ctypes.c_void_p(stream.cuda_stream)
        driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, queue, arguments, None)


def stop(_kind, _sequence):
    flag.fill_(1)
    stream.synchronize()


after_answer(spin)
on_order(stop)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
