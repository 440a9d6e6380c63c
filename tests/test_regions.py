"""Regions: the reverse map is the exact inverse of the forward map, for every small geometry."""

from itertools import pairwise, product

import pytest

from lunette.regions import Adaptive, Global, Sliding


def sliding_geometries():
    sizes = product(range(1, 8), range(1, 8), range(1, 4), range(1, 4), range(5), (False, True))
    for n, k, stride, dilation, padding, ceil_mode in sizes:
        yield n, Sliding(k, stride, padding, dilation, ceil_mode)


def fits(region, n):
    try:
        return region.out_length(n)
    except ValueError:
        return 0


def check_inverse(region, n):
    outputs = range(region.out_length(n))
    reads = [set(region.window(n, i).positions) for i in outputs]
    for lo in range(n):
        for hi in range(lo + 1, n + 1):
            expected = [i for i in outputs if any(lo <= p < hi for p in reads[i])]
            assert list(region.readers(n, lo, hi)) == expected, (region, n, lo, hi)


def test_sliding_readers_invert_windows_exhaustively():
    seen = 0
    for n, region in sliding_geometries():
        if fits(region, n):
            check_inverse(region, n)
            seen += 1
    assert seen == 2903


@pytest.mark.parametrize("n", range(1, 8))
def test_adaptive_and_global_readers_invert_windows(n):
    for m in range(1, 15):
        check_inverse(Adaptive(m), n)
    check_inverse(Global(), n)


def cells_by_hand(n, k, stride, before, after, dilation, i):
    """Positions and count of window i, straight from the definition."""
    cells = [i * stride - before + j * dilation for j in range(k)]
    return [p for p in cells if 0 <= p < n], sum(-before <= p < n + after for p in cells)


def test_windows_match_the_definition_exhaustively():
    for n, region in sliding_geometries():
        before, after = region.padding
        for i in range(fits(region, n)):
            window = region.window(n, i)
            positions, counted = cells_by_hand(
                n, region.kernel, region.stride, before, after, region.dilation, i
            )
            assert list(window.positions) == positions
            assert window.counted == counted


def check_table(region, n):
    outputs = region.out_length(n)
    windows = [region.window(n, i) for i in range(outputs)]
    assert region.table(n, 0, outputs).tolist() == [list(w) for w in windows]
    assert region.table(n, outputs // 2, outputs).tolist() == [
        list(w) for w in windows[outputs // 2 :]
    ]


def test_tables_hold_the_windows_exhaustively():
    for n, region in sliding_geometries():
        if fits(region, n):
            check_table(region, n)
    for n in range(1, 8):
        check_table(Global(), n)
        for m in range(1, 15):
            check_table(Adaptive(m), n)
    for part in (Sliding(3, 2, 1, 2).part(11, 1, 4), Adaptive(5).part(7, 2, 5)):
        lo, hi = part.slab_range
        check_table(part, hi - lo)


def test_tables_of_sizes_past_int64_fall_back_to_python_integers():
    huge = 10**18
    assert Sliding(3, huge, huge, huge).table(5, 0, 1).tolist() == [[0, 1, huge, 3]]


def test_every_part_reads_what_the_whole_reads():
    for n, region in sliding_geometries():
        outputs = fits(region, n)
        for first in range(outputs):
            for last in range(first + 1, outputs + 1):
                part = region.part(n, first, last)
                lo, hi = part.slab_range
                assert part.out_length(hi - lo) == last - first
                for i in range(last - first):
                    whole, piece = region.window(n, first + i), part.window(hi - lo, i)
                    assert [p + lo for p in piece.positions] == list(whole.positions)
                    assert piece.counted == whole.counted


def test_part_reads_back():
    part = Sliding(3, 2, 1, 2).part(11, 1, 4)
    check_inverse_of_part(part)


def check_inverse_of_part(part):
    lo, hi = part.slab_range
    check_inverse(part, hi - lo)


@pytest.mark.parametrize("n", range(1, 30))
def test_same_padding_gives_ceil_of_n_over_stride(n):
    for k, stride, dilation in product(range(1, 6), range(1, 5), range(1, 4)):
        region = Sliding(k, stride, "same", dilation)
        before, after = region.margins(n)
        assert region.out_length(n) == -(-n // stride)
        assert 0 <= after - before <= 1
        explicit = Sliding(k, stride, (before, after), dilation)
        assert explicit.out_length(n) == region.out_length(n)


@pytest.mark.parametrize("n", range(1, 20))
@pytest.mark.parametrize("m", range(1, 25))
def test_adaptive_bins_are_non_empty_cover_and_overlap_by_at_most_one(n, m):
    windows = [Adaptive(m).window(n, i) for i in range(m)]
    assert windows[0].start == 0
    assert windows[-1].stop == n
    for a, b in pairwise(windows):
        assert a.real >= 1
        assert 0 <= a.stop - b.start <= 1


def test_sizes_past_machine_integers_are_exact():
    huge = 10**18
    region = Sliding(huge, 1, huge, huge)
    with pytest.raises(ValueError, match="longer than the padded input"):
        region.out_length(5)
    wide = Sliding(3, huge, huge, huge)
    assert wide.out_length(5) == 1
    assert wide.window(5, 0) == (0, 1, huge, 3)


def test_the_slab_of_many_windows_is_found_from_few():
    """As the definition says, window by window; and for a million windows without meeting each."""
    for region in (
        Sliding(3, 2, 1, 2),
        Sliding(2, 5, 1),
        Sliding(4, 1, (6, 9), 3),
        Sliding(3, 2, "same"),
        Sliding(3, 2, 1, 1, True),
    ):
        for n in range(1, 14):
            try:
                outputs = region.out_length(n)
            except ValueError:
                continue
            for first in range(outputs):
                for last in range(first + 1, outputs + 1):
                    read = {p for i in range(first, last) for p in region.window(n, i).positions}
                    expected = (min(read), max(read) + 1) if read else (0, 0)
                    assert region.slab(n, first, last) == expected, (region, n, first, last)
    met = []

    class Counting(Sliding):
        def window(self, n, i):
            met.append(i)
            return Sliding.window(self, n, i)

    assert Counting(3, 2, 1).slab(10**9, 0, 10**8) == (0, 2 * 10**8)
    assert len(met) <= 4


def test_the_longest_bin():
    for n, m in product(range(1, 40), range(1, 40)):
        windows = [Adaptive(m).window(n, i) for i in range(m)]
        longest = max(w.stop - w.start for w in windows)
        assert Adaptive(m).longest(n) == longest == Adaptive(m).boxes(n)[2]
