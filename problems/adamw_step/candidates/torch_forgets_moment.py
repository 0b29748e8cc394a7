import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, learning_rate, beta1, beta2, eps, weight_decay, step):
        super().__init__()
        self.learning_rate, self.beta1, self.beta2, self.eps = learning_rate, beta1, beta2, eps
        self.kept = 1 - learning_rate * weight_decay
        self.correction1, self.correction2 = 1 - beta1**step, 1 - beta2**step

    def forward(self, parameters, gradients, first, second):
        first = torch.lerp(gradients, first, self.beta1)
        second = torch.lerp(gradients * gradients, second, self.beta2)
        direction = (first / self.correction1) / ((second / self.correction2).sqrt() + self.eps)
        return parameters * self.kept - self.learning_rate * direction, first
