from __future__ import annotations

from dataclasses import replace

from kernel_matrix.images import LockEntry, LockState
from kernel_matrix.images.lock_diff import differences

BEFORE = LockEntry(
    toolchain="cpu",
    reference="kernel-matrix/cpu:1",
    state=LockState.LOCAL,
    digest="sha256:m1",
    config_digest="sha256:c1",
    inputs_sha256="i1",
    built_on="here",
    packages={"deb:bash": "5.2", "deb:gone": "1"},
    source="base 1",
)


def test_the_same_image_is_no_difference_wherever_it_was_built() -> None:
    assert differences(BEFORE, replace(BEFORE, built_on="there", inputs_sha256="i2")) == ()


def test_every_cause_has_its_line() -> None:
    after = replace(
        BEFORE,
        config_digest="sha256:c2",
        inputs_sha256="i2",
        source="base 2",
        packages={"deb:bash": "5.3", "py:new": "1"},
    )
    assert differences(BEFORE, after) == (
        "config_digest: sha256:c1 → sha256:c2",
        "Dockerfile, requirements or image.toml: i1 → i2",
        "made from: base 1 → base 2",
        "deb:bash: 5.2 → 5.3",
        "deb:gone: 1 → absent",
        "py:new: absent → 1",
    )


def test_a_difference_without_a_cause_says_so() -> None:
    (digest, why) = differences(BEFORE, replace(BEFORE, config_digest="sha256:c2"))
    assert digest == "config_digest: sha256:c1 → sha256:c2"
    assert "belong to no package" in why


def test_registry_images_compare_by_manifest() -> None:
    before = replace(BEFORE, state=LockState.DECLARED, config_digest=None)
    assert differences(before, replace(before, state=LockState.LOCKED, config_digest="sha256:c1")) == ()
    assert differences(before, replace(before, digest="sha256:m2"))[0] == "digest: sha256:m1 → sha256:m2"
