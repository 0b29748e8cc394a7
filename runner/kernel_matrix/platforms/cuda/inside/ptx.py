"""Parts of PTX that the judge's own kernels have in common."""

from __future__ import annotations

HEADER = """
.version 6.0
.target sm_50
.address_size 64
"""
"""Head of a module that every GPU since Maxwell can run."""

STRIDED = """    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %blocks, %nctaid.x;
    mad.lo.u32 %i, %block, %width, %thread;
    mul.lo.u32 %step, %blocks, %width;
"""
"""Begin of a loop in which thread ``%i`` of all threads takes every ``%step``-th word."""

START_WORK = """    mov.f32 %factor, 0fBF800001;
    mov.f32 %one, 0f3F800000;
    cvt.rn.f32.u32 %x0, %thread;
    add.rn.f32 %x1, %x0, %one;
    add.rn.f32 %x2, %x1, %one;
    add.rn.f32 %x3, %x2, %one;
"""
"""First values of :data:`WORK`."""

# Alternating signs and a factor just above one keep the digits moving for the whole window, without overflow.
WORK = "".join(f"    fma.rn.f32 %x{chain}, %x{chain}, %factor, %one;\n" for _ in range(16) for chain in range(4))
"""64 dependent steps of four chains of arithmetic over ``%x0`` … ``%x3``, ``%factor`` and ``%one``."""

END_WORK = """    add.rn.f32 %x0, %x0, %x1;
    add.rn.f32 %x2, %x2, %x3;
    add.rn.f32 %x0, %x0, %x2;
"""
"""Sum of the four chains in ``%x0``; without a use of them, the work could be left out."""
