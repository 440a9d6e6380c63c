"""Boxes of positions: they cover the array, a box alone is one box, and the tree is always the same."""

from math import prod
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lunette as ln
from lunette import boxes

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=3)
BATCH = st.lists(st.integers(0, 12), max_size=2)


@given(BATCH, st.integers(1, 9), LENGTHS, st.sampled_from([1, 2, 7, 20, 100, 1000, 1 << 14]))
def test_boxes_cover_the_positions_and_a_box_alone_is_one_box(batch, channels, lengths, positions):
    op, shape = ln.Conv((1,) * len(lengths)), (*batch, channels, *lengths)
    with patch.multiple(boxes, NUMBERS=1, POSITIONS=positions):
        ranges = boxes.of_grad(op, shape)
        if 0 in shape:  # an axis of nothing may be longer than any list
            assert list(boxes.boxes(ranges)) == []
            return
        for n, along in zip(shape, ranges, strict=True):
            assert [p for first, last in along for p in range(first, last)] == list(range(n))
        found = list(boxes.boxes(ranges))
        assert len(found) == prod(map(len, ranges))
        for box in (*found[:1], *found[-1:]):
            alone = tuple(last - first for first, last in box)
            assert prod(alone) <= positions * channels
            assert list(boxes.boxes(boxes.of_grad(op, alone))) == [tuple((0, n) for n in alone)]


def test_windows_count_the_cells_between_them():
    """Windows at stride 2 on two axes read four cells each: their boxes have fewer positions."""
    with patch.multiple(boxes, NUMBERS=8 * (3 + 4 * 5), POSITIONS=1):
        ranges = boxes.of_windows(ln.Conv((2, 2), 2), (5, 8, 8), (3, 4, 4))
    assert ranges == [[(0, 3)], [(0, 2), (2, 4)], [(0, 4)]]


def test_batch_items_share_a_box_where_they_fit():
    with patch.multiple(boxes, NUMBERS=1, POSITIONS=40):
        ranges = boxes.of_grad(ln.Conv((1,)), (3, 7, 2, 9))
    # 9 positions an item, 4 items a box; then a box has no room for another row of items.
    assert ranges == [[(0, 1), (1, 2), (2, 3)], [(0, 4), (4, 7)], [(0, 2)], [(0, 9)]]


def shown(parts):
    return boxes.add_up(parts, lambda a, b: f"({a}{b})")


def test_parts_are_added_in_pairs():
    assert shown("0") == "0"
    assert shown("01234") == "(((01)(23))4)"
    assert shown("0123456") == "(((01)(23))((45)6))"
    assert shown("") is None


@pytest.mark.parametrize("count", range(1, 70))
def test_whole_branches_may_be_added_first(count):
    parts = [chr(0x100 + i) for i in range(count)]
    for run in (2, 4, 16):
        branches = [shown(parts[i : i + run]) for i in range(0, count, run)]
        assert shown(branches) == shown(parts)
