import torch
import torch.nn as nn

BATCH = 8
CHANNELS = 128
HEIGHT = 100
WIDTH = 90
BOXES = 3000
SIZE = 7


class Model(nn.Module):
    """A box (top, left, bottom, right), in pixels, of the image that its index names, read at 7 x 7 places.

    Place i of 7 is at (i + 0.5) / 7 of the box; what lies outside the image is read at its border. Places are told to a
    fraction of a pixel, which 16 bits could not do.
    """

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, images, boxes, index):
        top, bottom, down = self._between(boxes[:, 0], boxes[:, 2], images.shape[2])
        left, right, across = self._between(boxes[:, 1], boxes[:, 3], images.shape[3])
        down, across = down[:, :, None, None], across[:, None, :, None]
        above = torch.lerp(_read(images, index, top, left), _read(images, index, top, right), across)
        below = torch.lerp(_read(images, index, bottom, left), _read(images, index, bottom, right), across)
        return torch.lerp(above, below, down).permute(0, 3, 1, 2).contiguous()

    def _between(self, start, stop, length):
        """Per box and place: the pixels before and behind it, and how far it is from the first to the second."""
        share = (torch.arange(self.size, dtype=start.dtype, device=start.device) + 0.5) / self.size
        place = (start[:, None] + share * (stop - start)[:, None]).clamp(0, length - 1)
        before = place.floor().clamp(max=length - 2)
        return before.long(), before.long() + 1, place - before


def _read(images, index, rows, columns):
    """(boxes, 7, 7, channels)."""
    return images[index[:, None, None], :, rows[:, :, None], columns[:, None, :]]


def get_inputs():
    size = torch.tensor([HEIGHT, WIDTH, HEIGHT, WIDTH])
    corner = torch.rand(BOXES, 2) * 0.8 - 0.1
    boxes = torch.cat([corner, corner + 0.1 + torch.rand(BOXES, 2) * 0.3], dim=1) * size
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH), boxes, torch.randint(0, BATCH, (BOXES,))]


def get_init_inputs():
    return [SIZE]
