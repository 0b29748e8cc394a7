import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def turn(x, out, heads, half, cosine, sine, factor, BLOCK_HEADS: tl.constexpr, BLOCK_HALF: tl.constexpr):
    """Turn all heads of one token; ``x`` and ``out`` point at the first."""
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    feature = tl.arange(0, BLOCK_HALF)[None, :]
    inside = (head < heads) & (feature < half)
    at = head * 2 * half + feature
    left = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(x + at + half, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (left * cosine - right * sine) * factor, mask=inside)
    tl.store(out + at + half, (right * cosine + left * sine) * factor, mask=inside)


@triton.jit
def rotary_kernel(
    q,
    k,
    cosines,
    sines,
    new_q,
    new_k,
    length,
    heads,
    shared,
    half,
    factor,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_SHARED: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    feature = tl.arange(0, BLOCK_HALF)
    at = (token % length) * half + feature
    # The angles are the same for all heads, of queries and of keys: read once.
    cosine = tl.load(cosines + at, mask=feature < half, other=0.0).to(tl.float32)[None, :]
    sine = tl.load(sines + at, mask=feature < half, other=0.0).to(tl.float32)[None, :]
    of_q, of_k = token * heads * 2 * half, token * shared * 2 * half
    turn(q + of_q, new_q + of_q, heads, half, cosine, sine, factor, BLOCK_HEADS, BLOCK_HALF)
    turn(k + of_k, new_k + of_k, shared, half, cosine, sine, 1.0, BLOCK_SHARED, BLOCK_HALF)


class ModelNew(nn.Module):
    def forward(self, q, k, cosine, sine):
        inputs = [tensor.contiguous() for tensor in (q, k, cosine, sine)]
        new_q, new_k = torch.empty_like(inputs[0]), torch.empty_like(inputs[1])
        batch, length, heads, width = q.shape
        sizes = (length, heads, k.shape[2], width // 2)
        blocks = [triton.next_power_of_2(size) for size in sizes[1:]]
        rotary_kernel[(batch * length,)](*inputs, new_q, new_k, *sizes, width**-0.5, *blocks)
        return new_q, new_k
