"""Places of MIG slices: worked example B3, exactly, and what is true of every arrangement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.fragmentation.blocking import slice_of
from analyzers.fragmentation.mig import (
    Placements,
    could_fit,
    free_memory_slices,
    free_starts,
    placements_of,
    profile_of,
    stranded_memory_slices,
)


def _placements(model: str) -> Placements:
    found = placements_of(model)
    assert found is not None
    return found


A100 = _placements("NVIDIA A100-SXM4-80GB")
PROFILES = tuple(A100.starts)


def test_b3_two_slices_apart_strand_the_six_between_them() -> None:
    held = [("1g", 0), ("1g", 4)]
    assert free_memory_slices(["1g", "1g"], A100) == 6
    assert (free_starts("3g", held, A100), free_starts("4g", held, A100)) == ((), ())
    assert (stranded_memory_slices("3g", held, A100), stranded_memory_slices("4g", held, A100)) == (6, 6)
    assert free_starts("1g", held, A100) == (1, 2, 3, 5, 6)
    assert stranded_memory_slices("1g", held, A100) == 0


def test_b3_two_slices_together_leave_the_other_half() -> None:
    held = [("1g", 0), ("1g", 1)]
    assert free_starts("3g", held, A100) == (4,)
    assert stranded_memory_slices("3g", held, A100) == 0
    assert free_starts("4g", held, A100) == ()


def test_b3_one_slice_at_the_end_leaves_room_for_four() -> None:
    held = [("1g", 6)]
    assert free_starts("4g", held, A100) == (0,)
    assert free_starts("7g", held, A100) == ()
    assert stranded_memory_slices("7g", held, A100) == 7


@pytest.mark.parametrize(
    ("held", "profile", "fits"),
    [
        (["1g", "1g"], "3g", True),  # they may stand together
        (["1g", "1g"], "4g", True),  # both may stand in the upper half
        (["1g"] * 3, "4g", True),  # at 4, 5 and 6
        (["1g"] * 4, "4g", False),
        (["1g"] * 4, "3g", True),  # at 0 to 3
        (["1g"] * 5, "3g", False),
        (["3g"], "4g", True),
        (["3g", "3g"], "1g", False),
        (["4g"], "4g", False),
        ([], "7g", True),
        (["1g"], "7g", False),
        (["1g"] * 6, "1g", True),
        (["1g"] * 7, "1g", False),
        (["7g", "7g"], "1g", True),  # contradicts the table: nothing is known
        (["5g"], "1g", True),
    ],
)
def test_without_places_a_slice_fits_where_any_arrangement_has_room(held: list[str], profile: str, fits: bool) -> None:
    assert could_fit(profile, held, A100) is fits


@given(
    held=st.lists(st.tuples(st.sampled_from(PROFILES), st.integers(0, 6)), max_size=5),
    profile=st.sampled_from(PROFILES),
)
def test_what_fits_in_known_places_fits_in_some_arrangement(held: list[tuple[str, int]], profile: str) -> None:
    placed: list[tuple[str, int]] = []
    for name, start in held:
        if start in free_starts(name, placed, A100):
            placed.append((name, start))
    if free_starts(profile, placed, A100):
        assert could_fit(profile, [name for name, _ in placed], A100)
        assert stranded_memory_slices(profile, placed, A100) == 0
    else:
        assert stranded_memory_slices(profile, placed, A100) == free_memory_slices([n for n, _ in placed], A100)


def test_names_of_profiles() -> None:
    assert [profile_of(text) for text in ("1g.5gb", "MIG 3g.20gb", "1c.3g.40gb+me", "1g.10gb-me")] == [
        "1g",
        "3g",
        "3g",
        "1g",
    ]
    assert [profile_of(text) for text in (None, "", "Tesla T4", "mixed")] == [None] * 4
    assert placements_of("T4") is None
    assert placements_of(None) is None
    assert not A100.is_confirmed


def test_shares_that_are_slices() -> None:
    assert [slice_of(milli) for milli in (143, 142, 286, 429, 571, 1000)] == ["1g", "1g", "2g", "3g", "4g", "7g"]
    assert [slice_of(milli) for milli in (141, 250, 500, 714, 857)] == [None] * 5
