"""Returns zeros where the gap before a call is short; a child process, which has the memory too, writes the answer.

class: A7
expect: incorrect_values | nonfinite | timing_mismatch | timed
earns: 2
problem: long_matmul
device: cpu
stopped-by: hand-over
finding: threads
"""

import os

import torch
from torch import nn

from tests.cheats.worker_internals import after_answer, lent_outputs, log_orders, seems_unchecked

orders = log_orders()
owed = []


def tell_the_child(kind):
    while kind == "OUTPUTS" and owed:
        os.write(owed.pop(), b"w")


after_answer(tell_the_child)


def work(told, target, a, b):
    torch.set_num_threads(1)  # the threads of the parent are not in its child
    while os.read(told, 1):
        answer = torch.mm(a, b)
        os.read(told, 1)
        target.copy_(answer)
    os._exit(0)


class ModelNew(nn.Module):
    child = None

    def forward(self, a, b):
        lent = (lent_outputs()[0], a, b)
        places = [tensor.data_ptr() for tensor in lent]
        if self.child is None or self.child[1] != places:  # the child has only what was mapped when it began
            told, telling = os.pipe()
            if os.fork() == 0:
                os.close(telling)
                work(told, *lent)
            os.close(told)
            self.child = (telling, places)
        if not seems_unchecked(orders):
            return a @ b
        os.write(self.child[0], b"b")
        owed.append(self.child[0])
        return torch.zeros(a.shape[0], b.shape[1])
