"""Runs the few instructions of PTX that the core's kernels are written in, one thread after the other.

Enough to see that a kernel computes what it says; that it is PTX at all is for ``ptxas`` to say. Memory is a dictionary
from address to the value last stored there. Whatever is not declared or not known is a KeyError.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

COMPUTE: Mapping[str, Callable[..., Any]] = {
    "mov": lambda a: a,
    "cvt": lambda a: a,
    "cvt.rn": float,
    "cvt.rzi": int,
    "add": lambda a, b: a + b,
    "add.rn": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "and": lambda a, b: a & b,
    "xor": lambda a, b: a ^ b,
    "mul.lo": lambda a, b: a * b,
    "mul.wide": lambda a, b: a * b,
    "mad.lo": lambda a, b, c: a * b + c,
    "fma.rn": lambda a, b, c: a * b + c,  # float64 rounds the product and sum of two float32 well enough here
    "setp.lt": lambda a, b: a < b,
    "setp.ge": lambda a, b: a >= b,
    "setp.ne": lambda a, b: a != b,
    "setp.lt.and": lambda a, b, also: a < b and also,
}
FITTED = {
    "pred": bool,
    "b32": lambda value: value & 0xFFFFFFFF,
    "b64": lambda value: value & 0xFFFFFFFFFFFFFFFF,
    "f32": lambda value: struct.unpack("f", struct.pack("f", value))[0],
}
_TYPE = re.compile(r"\.(?:[usbf](?:16|32|64)|pred)")


class Kernel:
    """One entry of a PTX text."""

    def __init__(self, text: str, name: str) -> None:
        header, body = re.search(rf"\.entry {name}\((.*?)\)\s*{{(.*?)\n}}", text, re.DOTALL).groups()
        self.parameters = re.findall(r"(\w+)\s*(?:,|$)", header.strip())
        self.types = dict(_declared(body))
        self.labels: dict[str, int] = {}
        self.code: list[str] = []
        for line in filter(None, map(str.strip, body.splitlines())):
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.code)
            elif not line.startswith(".reg"):
                self.code.append(line.rstrip(";"))

    def run(self, arguments: tuple[int, ...], special: Mapping[str, Any], memory: dict[int, Any]) -> None:
        """Run one thread; ``special`` names its special registers, a function is asked anew at each reading."""
        thread = _Thread(self, dict(zip(self.parameters, arguments, strict=True)), special, memory)
        while thread.at is not None:
            thread.step()


def _declared(body: str):
    for kind, names in re.findall(r"\.reg \.(\w+) ([^;]+);", body):
        for name in names.split(", "):
            stem, several, count = name.partition("<")
            yield from ((f"{stem}{n}", kind) for n in range(int(count[:-1]))) if several else ((name, kind),)


class _Thread:
    def __init__(self, kernel, parameters, special, memory):
        self.kernel = kernel
        self.parameters = parameters
        self.special = special
        self.memory = memory
        self.registers = {}
        self.at = 0

    def step(self):
        line = self.kernel.code[self.at]
        self.at += 1
        guard, _, instruction = line.rpartition("@")[2].partition(" ") if line.startswith("@") else ("", "", line)
        if guard and not self.registers[guard]:
            return
        operation, _, rest = instruction.strip().partition(" ")
        operands = [operand.strip() for operand in rest.split(",")]
        if operation == "ret":
            self.at = None
        elif operation == "bra":
            self.at = self.kernel.labels[operands[0]]
        elif "global" in operation or "param" in operation:
            self._access(operation, operands)
        else:
            target, *sources = operands
            self._set(target, COMPUTE[_TYPE.sub("", operation)](*map(self._value, sources)))

    def _access(self, operation, operands):
        if operation.startswith("ld.param"):
            self._set(operands[0], self.parameters[operands[1].strip("[]")])
        elif operation.startswith("ld.global"):
            self._set(operands[0], self.memory[self._address(operands[1])])
        elif operation.startswith("st.global"):
            self.memory[self._address(operands[0])] = self._value(operands[1])
        else:
            assert operation == "red.global.add.u64"
            self.memory[self._address(operands[0])] += self._value(operands[1])

    def _address(self, operand):
        base, _, offset = operand.strip("[]").partition("+")
        return self._value(base) + int(offset or 0)

    def _set(self, register, value):
        self.registers[register] = FITTED[self.kernel.types[register]](value)

    def _value(self, operand):
        if operand in self.kernel.types:
            return self.registers[operand]
        if operand.startswith("%"):
            value = self.special[operand[1:]]
            return value() if callable(value) else value
        if operand.startswith("0f"):
            return struct.unpack(">f", bytes.fromhex(operand[2:]))[0]
        return int(operand, 0)
