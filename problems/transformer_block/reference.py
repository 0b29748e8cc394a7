import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8
LENGTH = 512
WIDTH = 1024
HEADS = 16


def linear(inputs, outputs):
    """Linear, with weights that keep the size of their input, and biases that are not small."""
    made = nn.Linear(inputs, outputs)
    nn.init.normal_(made.weight, std=inputs**-0.5)
    nn.init.normal_(made.bias, std=0.5)
    return made


def layer_norm(width):
    """Layer normalization, with random scale and shift: forgetting them must show."""
    made = nn.LayerNorm(width)
    nn.init.uniform_(made.weight, 0.5, 1.5)
    nn.init.normal_(made.bias, std=0.5)
    return made


class Model(nn.Module):
    """x + attention(norm1(x)), and to that, called y, feed_forward(norm2(y)) added."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = layer_norm(width)
        self.qkv = linear(width, 3 * width)
        self.projection = linear(width, width)
        self.norm2 = layer_norm(width)
        self.widen = linear(width, 4 * width)
        self.narrow = linear(4 * width, width)

    def attend(self, x):
        batch, length, width = x.shape
        heads = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS]
