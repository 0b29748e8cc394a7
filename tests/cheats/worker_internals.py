"""Handles on the worker that runs a candidate, as an attacker finds them through the stack and by replacing methods.

A candidate is one file. So a cheat imports from here as if it could, and :func:`tests.cheats.night.with_internals`
puts this text in the place of the import. Nothing in here cheats: an honest candidate that looks at the same things
uses it too.
"""

import functools
import struct
import sys
import time
from typing import NamedTuple

from kernel_matrix.inside.wire import Channel
from kernel_matrix.inside.worker.call_batches import CallBatches

ANSWERS = ("DONE", "OUTPUTS", "TRACED")
EMPTY = ("OPEN", "LOAD", "MODEL", "BUFFERS", "BYE")  # frames that do not call the model
LEARNT_CALLS = 7  # a verification has more calls than these, and most of them are compared in full


class Order(NamedTuple):
    """A frame of the judge."""

    kind: str
    sequence: int
    gap_s: float  # seconds since the last answer to the judge


def log_orders():
    """Return a list that every frame of the judge is added to from now on."""
    orders, answered_at = [], [time.perf_counter()]

    def remember(kind, sequence):
        orders.append(Order(kind, sequence, time.perf_counter() - answered_at[0]))

    def remember_end(_kind):
        answered_at[0] = time.perf_counter()

    on_order(remember)
    after_answer(remember_end)
    return orders


def on_order(react):
    """Call ``react(kind, sequence)`` when a frame of the judge has come, before the worker sees it."""
    receive = Channel.receive_with_descriptors

    def receive_and_react(self):
        frame = receive(self)
        react(frame[0].name, frame[1])
        return frame

    Channel.receive_with_descriptors = receive_and_react


def on_answer(change):
    """Send the (sequence, payload) that ``change(kind, sequence, payload)`` returns in place of the worker's own."""
    send = Channel.send

    def send_changed(self, kind, sequence=0, payload=b"", descriptors=()):
        if kind.name in ANSWERS:
            sequence, payload = change(kind.name, sequence, payload)
        send(self, kind, sequence, payload, descriptors)

    Channel.send = send_changed


def after_answer(react):
    """Call ``react(kind)`` when the worker has sent an answer to a call, before it waits for the next frame."""
    send = Channel.send

    def send_and_react(self, kind, sequence=0, payload=b"", descriptors=()):
        send(self, kind, sequence, payload, descriptors)
        if kind.name in ANSWERS:
            react(kind.name)

    Channel.send = send_and_react


def change_claims(change):
    """Claim ``change(nanoseconds)`` where the worker has measured so many; what it returns must fit into 64 bits."""

    def claim(kind, sequence, payload):
        claims = kind == "DONE" and payload  # of a batch it claims nothing
        return sequence, (pack_claim(change(read_claim(payload))) if claims else payload)

    on_answer(claim)


def pack_claim(nanoseconds):
    """Return the payload of a ``DONE`` frame; negative numbers become what 64 bits make of them."""
    return struct.pack("<Q", int(nanoseconds) % (1 << 64))


def read_claim(payload):
    """Return the nanoseconds that a ``DONE`` frame claims."""
    return struct.unpack("<Q", payload)[0]


def on_the_stack(name):
    """Return the object of class ``name`` among the local variables of all callers."""
    frame = sys._getframe(1)  # not its own: a frame whose variables are looked at keeps itself alive, and its callers
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if type(value).__name__ == name:
                return value
        frame = frame.f_back
    raise LookupError(name)


def change_batches(**methods):
    """Let ``method(batches, usual, *arguments)`` take the place of methods of the worker's batches.

    These are ``begin`` (the inputs are there), ``call`` (the model on the sets of some chunks) and ``hand_over`` (what
    was returned for them).
    """
    for name, method in methods.items():
        usual = getattr(CallBatches, name)

        def changed(self, *arguments, method=method, usual=usual):
            return method(self, functools.partial(usual, self), *arguments)

        setattr(CallBatches, name, changed)


def is_in_batch():
    """Return True in a call of the model that is one of a batch."""
    try:
        on_the_stack("CallBatches")
    except LookupError:
        return False
    return True


def lent_outputs():
    """Return the tensors in the memory that the judge lent for outputs; call it within a call of the model.

    A batch may run when no memory for single calls is lent.
    """
    lent = [v for v in vars(on_the_stack("Worker")).values() if type(v).__name__ == "CallBuffers"]
    return [tensor for buffers in lent for tensor in buffers.outputs]


def seems_unchecked(orders):
    """Guess by the gap before the present call that the judge has not worked out its answer before it asked.

    Before a compared call the judge runs the reference, which takes longer than all else that it does between calls.
    So gaps are of two kinds, and this one belongs to the shorter kind. Verification has few of the shorter kind, and
    the first gap is spent on getting ready.
    """
    gaps = [order.gap_s for order in orders if order.kind not in EMPTY][1:]
    return len(gaps) > LEARNT_CALLS and gaps[-1] < 0.45 * sorted(gaps[:LEARNT_CALLS])[LEARNT_CALLS // 2]
