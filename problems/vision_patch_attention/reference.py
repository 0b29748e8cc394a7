import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 128
SIDE = 224  # of an image, pixels
PATCH = 16  # of a patch, pixels
WIDTH = 384
HEADS = 6


def linear(inputs, outputs):
    """Linear, with weights that keep the size of their input, and biases that are not small."""
    made = nn.Linear(inputs, outputs)
    nn.init.normal_(made.weight, std=inputs**-0.5)
    nn.init.normal_(made.bias, std=0.5)
    return made


class Model(nn.Module):
    """tokens + projection(attention(layer_norm(tokens))), where tokens are embedded patches with positions added."""

    def __init__(self, side, patch, width, heads):
        super().__init__()
        self.heads = heads
        self.embed = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        nn.init.normal_(self.embed.weight, std=(3 * patch * patch) ** -0.5)
        self.positions = nn.Parameter(torch.randn((side // patch) ** 2, width) / 2)
        self.norm = nn.LayerNorm(width)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.5)
        self.qkv = linear(width, 3 * width)
        self.projection = linear(width, width)

    def attend(self, x):
        batch, length, width = x.shape
        heads = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.projection(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, images):
        tokens = self.embed(images).flatten(2).transpose(1, 2) + self.positions
        return (tokens + self.attend(self.norm(tokens))).contiguous()


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE)]


def get_init_inputs():
    return [SIDE, PATCH, WIDTH, HEADS]
