import torch
import torch.nn as nn

TOKENS = 8192
HEADS = 32
WIDTH = 128


class Model(nn.Module):
    """(output, log of the sum) of the whole from those of two parts.

    Outputs are (tokens, heads, width), logarithms (heads, tokens).
    """

    def forward(self, prefix, prefix_log, suffix, suffix_log):
        log = torch.logaddexp(prefix_log, suffix_log)
        of_prefix = torch.exp(prefix_log - log).T.unsqueeze(-1)
        of_suffix = torch.exp(suffix_log - log).T.unsqueeze(-1)
        return prefix * of_prefix + suffix * of_suffix, log


def get_inputs():
    parts = [torch.randn(TOKENS, HEADS, WIDTH) for _ in range(2)]
    logs = [2 * torch.randn(HEADS, TOKENS) + 4 for _ in range(2)]
    return [parts[0], logs[0], parts[1], logs[1]]


def get_init_inputs():
    return []
