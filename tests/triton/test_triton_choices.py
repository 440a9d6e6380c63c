"""Cuts that were measured once are known to other processes, and a file that is damaged or not ours counts for nothing."""

import os

import choosing
import pytest

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no modes of files")


@pytest.fixture
def cache(interpreter, tmp_path):
    """Runs what `choosing` has, with a folder of its own for the file."""
    return lambda name, *arguments: interpreter(choosing.inside, str(tmp_path), name, *arguments)


def test_one_process_measures_and_the_next_knows(cache):
    assert cache("measured", 1 << 20) == {"measured": 3, "ran": "fast", "again": 0}
    assert cache("measured", 1 << 20) == {"measured": 0, "ran": "fast", "again": 0}
    assert cache("measured", 1 << 21) == {"measured": 3, "ran": "fast", "again": 0}


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1]", b'{"x":', b"[" * 100_000, b"\xff\xfe", b"null", b"{}" * 200_000]
)
def test_a_damaged_file_is_as_none(cache, text):
    cache("measured", 1 << 20)
    assert cache("damage", text, False) == 3  # its checksum does not fit
    assert cache("damage", text, True) == 3


@pytest.mark.parametrize("place", [3, -1, 10**30, 1.0, "1", None, [0]])
def test_a_choice_that_is_none_of_the_cuts_is_ignored(cache, place):
    cache("measured", 1 << 20)
    assert cache("chosen", place) == 3


@posix
@pytest.mark.parametrize(("what", "mode"), [("folder", 0o777), ("file", 0o666)])
def test_nothing_is_read_that_others_can_write(cache, what, mode):
    cache("measured", 1 << 20)
    assert cache("opened", what, mode) == 3


def test_the_file_and_the_folder_are_bounded(cache):
    assert cache("many", 40) == {"kept": 10, "newest": True, "files": 4}
