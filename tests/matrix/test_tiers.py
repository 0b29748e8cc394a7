from __future__ import annotations

from dataclasses import fields

from kernel_matrix.matrix import Policy, Protocol
from kernel_matrix.matrix.tiers import PUBLISH_SESSIONS, TIERS, read_policy, read_protocol, with_policy, with_protocol
from kernel_matrix.model.enums import InputMode, Tier
from kernel_matrix.model.messages import ProtocolSpec, dumps


def test_screen_is_what_the_dataclasses_default_to():
    assert with_protocol(Protocol(), read_protocol({"tier": "screen"})) == Protocol()


def test_publish_measures_more_and_finer():
    publish = with_protocol(Protocol(), read_protocol({"tier": "publish"}))
    assert publish.tier is Tier.PUBLISH
    assert publish.sessions == PUBLISH_SESSIONS
    assert publish.spec.min_samples > ProtocolSpec().min_samples
    assert publish.spec.target_half_width < ProtocolSpec().target_half_width


def test_a_value_beside_the_tier_wins_wherever_it_stands():
    for table in ({"tier": "publish", "sessions": 9}, {"sessions": 9, "tier": "publish"}):
        assert with_protocol(Protocol(), read_protocol(table)).sessions == 9


def test_every_tier_sets_the_same_keys():
    assert TIERS.keys() == set(Tier)
    assert len({frozenset(values) for values in TIERS.values()}) == 1


def test_a_tier_leaves_what_no_tier_sets():
    base = with_protocol(Protocol(), read_protocol({"check_share": 0.5, "seed": 7, "min_samples": 3}))
    changed = with_protocol(base, read_protocol({"tier": "publish"}))
    assert (changed.spec.check_share, changed.seed, changed.spec.min_samples) == (0.5, 7, 100)


def test_modes_become_words_of_the_program():
    assert with_protocol(Protocol(), read_protocol({"modes": ["outlier"]})).spec.modes == (InputMode.OUTLIER,)


def test_equal_numbers_are_written_alike():
    """A cell's id is a hash of its values; 20 and 20.0 must not be two cells."""
    whole = with_protocol(Protocol(), read_protocol({"budget_s": 20, "trials": 5.0, "time": True}))
    assert dumps(whole) == dumps(Protocol())
    assert dumps(with_policy(Policy(), read_policy({"gpu_wait_s": 300, "pids": 512.0}))) == dumps(Policy())


def test_policy_values_replace_single_fields():
    changed = with_policy(Policy(), read_policy({"clocks": "lock", "call_timeout_s": 1}))
    different = {f.name for f in fields(Policy) if getattr(changed, f.name) != getattr(Policy(), f.name)}
    assert different == {"clocks", "call_timeout_s"}
