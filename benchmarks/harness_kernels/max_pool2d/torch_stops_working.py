"""Wrong: works for its first twelve calls, and then returns its last answer again."""

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    calls = 0
    answer = None

    def forward(self, x):
        self.calls += 1
        if self.calls <= 12 or self.answer.shape[2] != (x.shape[2] + 1) // 2:
            self.answer = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        return self.answer.clone()
