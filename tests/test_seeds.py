from __future__ import annotations

from swerve.seeds import derive_seed


def test_seed_is_the_first_63_bits_of_the_digest():
    assert derive_seed(0, "rollout", 3) == 1041685574885780112


def test_parts_of_a_path_do_not_run_together():
    assert (
        len({derive_seed(0, "a", "b"), derive_seed(0, "ab"), derive_seed(0, "a", "b", ""), derive_seed(0, "b", "a")})
        == 4
    )
    assert derive_seed(0, 1) != derive_seed(0, "1")
