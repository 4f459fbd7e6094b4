"""What a parser remembers, what it forgets first, and what too many series cost."""

from __future__ import annotations

import tracemalloc

import pytest

from collector.exposition import ExpositionParser, Series
from collector.exposition.cache import KEPT_PAGES, SWEEP_PAGES

HOLDERS = ("exported_pod",)


class Asked:
    """A `resolve` that keeps what it was asked."""

    def __init__(self) -> None:
        self.series: list[Series] = []

    def __call__(self, series: Series) -> Series:
        self.series.append(series)
        return series

    def labels(self, name: str) -> list[str]:
        """The values of one label, in the order in which they were asked."""
        return [series.labels[name] for series in self.series]


def page(*numbers: int) -> bytes:
    return b"".join(b'a{x="%d"} %d\n' % (number, number) for number in numbers)


def test_what_was_seen_last_stays_and_the_oldest_goes_first():
    asked = Asked()
    reader = ExpositionParser(asked, max_series=8)
    reader.parse(page(0, 1, 2, 3))
    reader.parse(page(2, 3, 4, 5))
    reader.parse(page(4, 5, 6, 7))
    assert reader.remembered == 8
    asked.series.clear()
    # A quarter (two of eight) makes room: of the four that were not on the last page 0 and 1 are older than 2 and 3.
    assert reader.parse(page(4, 5, 6, 7, 8, 9)).uncached_series == 0
    assert asked.labels("x") == ["8", "9"]
    asked.series.clear()
    reader.parse(page(4, 5, 6, 7, 0))
    assert asked.labels("x") == ["0"]


def test_a_page_larger_than_the_cache_keeps_what_it_holds():
    asked = Asked()
    reader = ExpositionParser(asked, max_series=4)
    for _ in range(3):
        asked.series.clear()
        read = reader.parse(page(*range(6)))
        assert [value for _, value, _ in read.samples] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        assert read.uncached_series == 2
    assert asked.labels("x") == ["4", "5"]
    assert reader.remembered == 4


def test_what_is_not_seen_for_an_hour_of_scrapes_is_forgotten():
    reader = ExpositionParser(Asked())
    reader.parse(page(*range(100)))
    for _ in range(KEPT_PAGES - 1):
        reader.parse(page(0))
    assert reader.remembered == 100
    for _ in range(2 * SWEEP_PAGES):
        reader.parse(page(0))
    assert reader.remembered == 1
    assert reader.parse(page(0, 1)).samples == [
        (Series("a", {"x": "0"}), 0.0, None),
        (Series("a", {"x": "1"}), 1.0, None),
    ]


def test_meanings_that_were_handed_out_stay_right_when_the_cache_forgets():
    reader = ExpositionParser(lambda series: series.labels["x"], max_series=4)
    before = reader.parse_columns(page(0, 1, 2, 3)).samples
    reader.parse(page(3))
    reader.parse(page(3, 7, 8))
    assert [before.meanings[slot] for slot in before.series] == ["0", "1", "2", "3"]


def churn(pods: int, gpus: int = 8) -> bytes:
    return b"".join(
        b'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-%d",exported_pod="pod-%d"} %d\n'
        % (pod * gpus // pods, pod, pod * gpus // pods)
        for pod in range(pods)
    )


def test_beyond_the_cap_a_series_loses_its_holder_and_every_card_keeps_a_value():
    reader = ExpositionParser(Asked(), max_series=50, spare_labels=HOLDERS)
    for _ in ("cold", "warm"):
        read = reader.parse(churn(400))
        assert read.uncached_series == 350
        # 50 with their pods, all of card 0; then one for each of the other cards without.
        assert len(read.samples) == 50 + 7
        assert read.refused == {"series beyond the cap": 343}
        assert [series.labels["UUID"] for series, _, _ in read.samples[50:]] == [f"GPU-{n}" for n in range(1, 8)]
        assert all("exported_pod" not in series.labels for series, _, _ in read.samples[50:])
        assert reader.remembered == 50


def test_a_bad_line_beyond_the_cap_does_not_cost_its_card_the_value():
    reader = ExpositionParser(Asked(), max_series=1, spare_labels=HOLDERS)
    content = b'a{x="0"} 1\na{x="1",exported_pod="p"} N/A\na{exported_pod="q",x="1"} 2\na{x="1",exported_pod="r"} 3\n'
    read = reader.parse(content + b'a{x="1",exported_pod="s"} 4\na{x="1",exported_pod="t"} N/A\n')
    assert [value for _, value, _ in read.samples] == [1.0, 2.0]
    assert read.refused == {"not a number": 2, "series beyond the cap": 2}
    assert read.uncached_series == 3


def test_a_dropped_label_leaves_one_series_a_card_and_the_target_is_named_still():
    reader = ExpositionParser(Asked(), max_series=50, drop_labels=HOLDERS)
    for _ in ("cold", "warm"):
        read = reader.parse(churn(400))
        assert [(series.labels, value) for series, value, _ in read.samples] == [
            ({"UUID": f"GPU-{n}"}, float(n)) for n in range(8)
        ]
        assert read.refused == {"duplicate series": 392}
        assert read.uncached_series == 350


def test_a_dropped_label_that_churns_does_not_fill_the_cache_for_good():
    reader = ExpositionParser(Asked(), max_series=8, drop_labels=HOLDERS)
    for number in range(30):
        read = reader.parse(b'a{exported_pod="%d-a"} 1\nb{exported_pod="%d-a"} 2\n' % (number, number))
        assert ([value for _, value, _ in read.samples], read.uncached_series) == ([1.0, 2.0], 0)


def test_a_page_gives_at_most_ten_times_the_cap():
    reader = ExpositionParser(Asked(), max_series=5)
    read = reader.parse(page(*range(100)))
    assert len(read.samples) == 55
    assert read.refused == {"series beyond the cap": 45}
    assert read.uncached_series == 95


def test_memory_does_not_grow_with_what_a_target_invents():
    reader = ExpositionParser(lambda series: series.name, max_series=200, spare_labels=HOLDERS)
    reader.parse(churn(1000))
    tracemalloc.start()
    try:
        for round_ in range(5):
            reader.parse(churn(1000).replace(b"pod-", b"r%d-" % round_))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reader.remembered <= 200
    assert kept < 200 * 1500


def test_one_target_s_bomb_is_nothing_to_another():
    bombed = ExpositionParser(lambda series: series, max_series=100, spare_labels=HOLDERS)
    healthy = ExpositionParser(lambda series: series, max_series=100, spare_labels=HOLDERS)
    expected = healthy.parse(page(1, 2, 3)).samples
    assert bombed.parse(churn(5000)).uncached_series == 4900
    read = healthy.parse(page(1, 2, 3))
    assert (read.samples, read.uncached_series) == (expected, 0)


@pytest.mark.slow
def test_a_million_series_are_read_in_bounded_memory_and_named():
    """About 60 bytes a line, 58 MB: more than half of what a page may have."""
    content = b"".join(
        b'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-%d",exported_pod="p%07d"} 1\n' % (n % 8, n) for n in range(1_000_000)
    )
    reader = ExpositionParser(lambda series: series, spare_labels=HOLDERS)
    read = reader.parse_columns(content)
    assert read.uncached_series == 950_000
    assert len(read.samples) == 50_008
    assert reader.remembered == 50_000
    assert read.refused == {"series beyond the cap": 949_992}
