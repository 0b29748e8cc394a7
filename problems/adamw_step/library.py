import torch
import torch.nn as nn
from torch.optim.adamw import adamw


class ModelNew(nn.Module):
    """torch's own fused AdamW, which works in place: on copies, as the problem asks for new tensors."""

    def __init__(self, learning_rate, beta1, beta2, eps, weight_decay, step):
        super().__init__()
        self.options = {"lr": learning_rate, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
        self.steps_before = step - 1

    def forward(self, parameters, gradients, first, second):
        parameters, first, second = parameters.clone(), first.clone(), second.clone()
        steps = torch.full((), self.steps_before, dtype=torch.float32, device=parameters.device)
        moments = [first], [second], []
        adamw([parameters], [gradients], *moments, [steps], fused=True, amsgrad=False, maximize=False, **self.options)
        return parameters, first, second
