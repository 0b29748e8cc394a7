"""Rules that decide if a cell can run on this host; each answer is computed once and cached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kernel_matrix.matrix import DECLARED_LANGUAGES, GpuAxis, Toolchain
from kernel_matrix.model.enums import ClockPolicy, Dtype, Language
from kernel_matrix.plan.cell import Skip, SkipReason
from kernel_matrix.plan.host_inventory import GIB, HostInventory, devices_matching, groups_matching, linked_by
from kernel_matrix.platforms import Gpu, Platform
from kernel_matrix.platforms.links import describe_links
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.platforms.versions import parse_version

ABSENT = frozenset({SkipReason.DTYPE_NOT_SUPPORTED, SkipReason.NO_CODE_FOR_GPU, SkipReason.NO_SUCH_GPU})
"""Reasons due to an absent device, which do not prevent compiling for it."""


def compiles(gpu: GpuAxis, toolchain: Toolchain, language: Language) -> bool:
    """Return whether ``toolchain`` has a compiler of ``language`` for ``gpu``, present or not."""
    if gpu.compute_capability is None:
        return False
    return get_platform(gpu.platform).compiles(language, toolchain.versions)


def pairs(gpu: GpuAxis, toolchain: Toolchain) -> bool:
    """Return whether ``gpu`` and ``toolchain`` are for the same platform.

    An environment that is not known here, and names no platform, may be for any.
    """
    return toolchain.platform in ("", gpu.platform)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """GPU, toolchain and matching device of a cell."""

    gpu: GpuAxis
    toolchain: Toolchain
    device: Gpu | None
    """Matching device; of several, the one with the lowest compute capability. ``None`` if there is none."""

    @property
    def platform(self) -> Platform:
        """Platform of the GPU axis."""
        return get_platform(self.gpu.platform)

    @property
    def compute_capability(self) -> str | None:
        """Compute capability of the device, else of the axis; ``None`` if neither is known."""
        return self.device.compute_capability if self.device else self.gpu.compute_capability

    @property
    def driver(self) -> str | None:
        """Version of the host's driver; ``None`` if the device is absent."""
        return self.device.driver if self.device else None


@dataclass(frozen=True, slots=True)
class SkipRules:
    """Skip rules of one host."""

    host: HostInventory
    _found: dict[tuple[object, ...], Skip | None] = field(default_factory=dict)

    def target(self, gpu: GpuAxis, toolchain: Toolchain) -> Target:
        """Return the target on which cells of this pair run here."""
        devices = devices_matching(gpu, self.host.gpus)
        lowest = min(devices, key=_capability, default=None)
        return Target(gpu=gpu, toolchain=self.host.environments.get(toolchain.name, toolchain), device=lowest)

    def of_cell(self, target: Target, dtype: Dtype, language: Language, clocks: ClockPolicy) -> Skip | None:
        """Return the first reason to skip cells on ``target``, apart from exclusions and unavailable dtypes."""
        key = (target.gpu.name, target.toolchain.name, dtype, language, clocks)
        if key not in self._found:
            self._found[key] = self._first(target, dtype, language, clocks)
        return self._found[key]

    def of_ranks(self, target: Target, ranks: int, language: Language) -> Skip | None:
        """Return the reason to skip cells on ``target`` whose calls are made by several ranks together."""
        key = (target.gpu.name, target.toolchain.name, ranks, language)
        if key not in self._found:
            questions = (
                (SkipReason.LANGUAGE_NOT_SUPPORTED, lambda: self._interpreter(target, language)),
                (SkipReason.NO_SUCH_GPU, lambda: self._devices(target, ranks)),
                (SkipReason.NO_SANDBOX, self._network),
            )
            self._found[key] = None if ranks == 1 else _first_of(questions)
        return self._found[key]

    def link(self, target: Target, ranks: int) -> str | None:
        """Return the kind of link that groups for so many ranks have here; ``None`` without groups, or if unknown."""
        return linked_by(groups_matching(target.gpu, self.host.gpus, ranks)) if ranks > 1 else None

    def of_compiling(self, target: Target, language: Language) -> Skip | None:
        """Return the first reason to skip cells at ``target`` that are only compiled and so need no device."""
        key = (target.gpu.name, target.toolchain.name, language)
        if key not in self._found:
            questions = (
                (SkipReason.LANGUAGE_NOT_SUPPORTED, lambda: self._language(target, language)),
                (SkipReason.NO_SANDBOX, lambda: self._compiler(target, language)),
                (SkipReason.IMAGE_MISSING, lambda: self._image(target)),
            )
            self._found[key] = _first_of(questions)
        return self._found[key]

    def notes(self, target: Target) -> Iterator[str]:
        """Yield warnings about cells at ``target`` that do not prevent them from running."""
        platform, versions, name = target.platform, target.toolchain.versions, target.toolchain.name
        for gap in platform.toolchain_gaps(versions):
            yield f"toolchain {name}: {gap}"
        note = platform.driver_note(versions, target.driver)
        if note and not self._driver(target):
            yield f"toolchain {name}: {note}"

    def _first(self, target: Target, dtype: Dtype, language: Language, clocks: ClockPolicy) -> Skip | None:
        platform, capability = target.platform, target.compute_capability
        questions = (
            (SkipReason.LANGUAGE_NOT_SUPPORTED, lambda: self._language(target, language)),
            (SkipReason.DTYPE_NOT_SUPPORTED, lambda: platform.dtype_skip_reason(dtype, language, capability)),
            (
                SkipReason.NO_CODE_FOR_GPU,
                lambda: platform.code_skip_reason(target.toolchain.versions, capability, target.driver),
            ),
            (SkipReason.NO_SUCH_GPU, lambda: self._device(target)),
            (SkipReason.NO_SANDBOX, lambda: self._sandbox(target)),
            (SkipReason.DRIVER_TOO_OLD, lambda: self._driver(target)),
            (SkipReason.IMAGE_MISSING, lambda: self._image(target)),
            (SkipReason.CLOCKS, lambda: self._clocks(target, clocks)),
        )
        return _first_of(questions)

    def _language(self, target: Target, language: Language) -> str | None:
        reason = target.platform.language_skip_reason(language, target.compute_capability)
        reason = reason or self._declared(target.toolchain, language) or self._local_triton(target, language)
        return reason or self._local_compiler(target, language)

    def _declared(self, toolchain: Toolchain, language: Language) -> str | None:
        """Return a reason if ``language`` needs a compiler that ``toolchain`` does not declare.

        Torch and Triton are in every toolchain.
        """
        if language not in DECLARED_LANGUAGES:
            return None
        if language not in toolchain.languages:
            what = f"toolchain {toolchain.name} has no {language.value}: candidates in it are not run"
            return f'{what}; where its image has it, say languages = ["{language.value}"] in the matrix'
        if self.host.uses_images or toolchain.environment:
            return None
        return f"{language.value} is in images only, and sandbox {self.host.sandbox} has none"

    def _local_triton(self, target: Target, language: Language) -> str | None:
        """Return a reason if Triton candidates lack the toolchain's Triton, in an environment or beside the runner."""
        if self.host.uses_images or language is not Language.TRITON:
            return None
        if target.toolchain.environment:
            is_known = target.toolchain.torch is not None  # else the reason is that it cannot be used at all
            lacks_triton = is_known and target.toolchain.triton is None
            return f"the environment of toolchain {target.toolchain.name} has no Triton" if lacks_triton else None
        if target.platform.NEEDS_IMAGES:
            return None
        return self._installed_triton(target)

    def _local_compiler(self, target: Target, language: Language) -> str | None:
        """Return a reason if an environment lacks the compiler of a language that PyTorch and Triton do not bring."""
        brought = {Language.TORCH, Language.TRITON, *DECLARED_LANGUAGES}
        if not target.toolchain.environment or language in brought or target.gpu.platform in self.host.compilers:
            return None
        what = f"toolchain {target.toolchain.name} is an environment without a compiler of {language.value}"
        return f"{what}: none is installed on this host"

    def _installed_triton(self, target: Target) -> str | None:
        wanted, local = target.toolchain.triton, self.host.local_triton
        if local is None:
            return f"Triton {wanted} is not installed beside the runner (extra `local`)"
        return None if _is_version(local, wanted) else _other_version("triton", target.toolchain, wanted, local)

    def _device(self, target: Target) -> str | None:
        if target.device is not None:
            return None
        here = [_describe(gpu) for gpu in self.host.gpus if gpu.platform == target.gpu.platform]
        kind = target.platform.TITLE
        if not here:
            others = [_describe(gpu) for gpu in self.host.gpus if get_platform(gpu.platform).IS_ACCELERATOR]
            but = f", but {', '.join(others)}" if others else ""
            return f"this host has no {kind}{but}{f': {self.host.gpu_reason}' if self.host.gpu_reason else ''}"
        return f"no {kind} here is {target.gpu.name} ({_conditions(target.gpu)}); here: {', '.join(here)}"

    def _interpreter(self, target: Target, language: Language) -> str | None:
        if not target.platform.interprets(language):
            return None
        return f"{language.value} is interpreted on a {target.platform.TITLE}, where no rank reaches another's memory"

    def _devices(self, target: Target, ranks: int) -> str | None:
        if not target.platform.IS_ACCELERATOR or groups_matching(target.gpu, self.host.gpus, ranks):
            return None
        here, need = devices_matching(target.gpu, self.host.gpus), f"{ranks} ranks need {ranks} devices"
        if len(here) < ranks:
            return f"{need} that match {target.gpu.name}, and this host has {len(here)}"
        how = f"linked by {target.gpu.link} or better" if target.gpu.link else "that can access each other's memory"
        links = describe_links(sorted(here, key=lambda gpu: gpu.index)) or "how devices are linked is not known here"
        return f"{need} {how}; {links}"

    def _network(self) -> str | None:
        if self.host.own_network:
            return None
        return f"ranks need a network of their own, and sandbox {self.host.sandbox} has no namespaces here"

    def _sandbox(self, target: Target) -> str | None:
        if target.toolchain.environment:
            return self._needs_no_images(target)
        if self.host.uses_images:
            return None
        return self._needs_images(target) if target.platform.NEEDS_IMAGES else self._installed_torch(target)

    def _compiler(self, target: Target, language: Language) -> str | None:
        """Return a reason if no sandbox can compile ``language`` here; without images only Triton may be available."""
        if target.toolchain.environment:
            return self._needs_no_images(target)
        if self.host.uses_images:
            return None
        if language is not Language.TRITON:
            return self._needs_images(target)
        return self._installed_torch(target) or self._installed_triton(target)

    def _needs_images(self, target: Target) -> str:
        why = f": {self.host.sandbox_reason}" if self.host.sandbox_reason else ""
        kind = target.gpu.platform.upper()
        what = f"toolchain {target.toolchain.name} for {kind} is an image, sandbox {self.host.sandbox} runs none{why}"
        return f'{what}; without Docker, name the Python that is here: {{ name = "here", environment = "auto" }}'

    def _needs_no_images(self, target: Target) -> str | None:
        if not self.host.uses_images:
            return None
        what = f"toolchain {target.toolchain.name} is a Python environment of this host"
        return f"{what}, and sandbox {self.host.sandbox} runs images: choose --sandbox process"

    def _installed_torch(self, target: Target) -> str | None:
        wanted, local = target.toolchain.torch, self.host.local_torch
        if local is None:
            return f"sandbox {self.host.sandbox} needs torch {wanted} beside the runner (extra `local`), there is none"
        return None if _is_version(local, wanted) else _other_version("torch", target.toolchain, wanted, local)

    def _driver(self, target: Target) -> str | None:
        return (
            None
            if target.device is None
            else target.platform.driver_skip_reason(target.toolchain.versions, target.device)
        )

    def _image(self, target: Target) -> str | None:
        name, of_environment = target.toolchain.name, bool(target.toolchain.environment)
        if self.host.uses_images == of_environment:
            return None
        what = "environment" if of_environment else "image"
        return self.host.images.get(name, f"no {what} is known for toolchain {name}")

    def _clocks(self, target: Target, clocks: ClockPolicy) -> str | None:
        if clocks is not ClockPolicy.REQUIRE or target.platform.settings() is None or not self.host.clocks_reason:
            return None
        return f"the policy requires locked clocks and they cannot be locked here: {self.host.clocks_reason}"


def _first_of(questions: Iterable[tuple[SkipReason, Callable[[], str | None]]]) -> Skip | None:
    return next((Skip(kind=kind, text=text) for kind, ask in questions if (text := ask())), None)


def _capability(gpu: Gpu) -> tuple[int, ...]:
    return parse_version(gpu.compute_capability) or ()


def _is_version(local: str, wanted: str | None) -> bool:
    """Return whether ``local`` equals ``wanted`` or is a more precise version of it: 2.13.0+cpu is 2.13.0 and 2.13."""
    mine, theirs = parse_version(local) or (), parse_version(wanted) or ()
    return mine[: len(theirs)] == theirs


def _other_version(package: str, toolchain: Toolchain, wanted: str | None, local: str) -> str:
    return f"toolchain {toolchain.name} is {package} {wanted}, beside the runner is {package} {local}"


def _describe(gpu: Gpu) -> str:
    details = [gpu.compute_capability, f"{gpu.memory_bytes / GIB:.0f} GiB" if gpu.memory_bytes else None]
    known = ", ".join(detail for detail in details if detail)
    return f"{gpu.name} ({known})" if known else gpu.name


def _conditions(axis: GpuAxis) -> str:
    memory = None if axis.min_memory_gib is None else f"{axis.min_memory_gib:g} GiB"
    named = {
        "model": axis.model,
        "uuid": axis.uuid,
        "compute capability": axis.compute_capability,
        "at least": memory,
    }
    given = [f"{key} {value}" for key, value in named.items() if value]
    return ", ".join(given) or f"any {get_platform(axis.platform).TITLE}"
