"""The agreement checks notice every kernel that is made wrong on purpose."""

import json
import os
import subprocess
import sys
from pathlib import Path

import mutants
import pytest

from cases.directed import CHECKS

BATCHES = 2
NUMBERS = range(len(mutants.MUTATIONS))
IN_BRIEF = NUMBERS[::40]
THE_OTHERS = [number for number in NUMBERS if number not in IN_BRIEF]


def outcomes(arguments):
    """What became of each mutation, by its number."""
    finished = subprocess.run(
        [sys.executable, mutants.__file__, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=Path(mutants.__file__).parent,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    assert finished.returncode == 0, finished.stderr
    return dict(json.loads(line) for line in finished.stdout.splitlines())


def test_there_are_enough_mutations_and_each_still_has_its_line():
    assert len(mutants.MUTATIONS) >= 20
    assert len({m.what for m in mutants.MUTATIONS}) == len(mutants.MUTATIONS)
    for mutation in mutants.MUTATIONS:
        assert mutants.source(mutation) != (mutants.KERNELS / mutation.file).read_text()


def check_kernels_as_they_are(numbers):
    """Otherwise a check that always fails would seem to notice everything."""
    for check in sorted({mutants.MUTATIONS[number].check for number in numbers}):
        assert not CHECKS[check](), check


def test_kernels_as_they_are_pass_the_checks():
    check_kernels_as_they_are(IN_BRIEF)


@pytest.mark.full
def test_kernels_as_they_are_pass_all_checks():
    check_kernels_as_they_are(NUMBERS)


def missed(numbers):
    """Mutations that no check notices, with what became of them."""
    found = outcomes(numbers)
    return {
        mutants.MUTATIONS[number].what: found[str(number)]
        for number in numbers
        if not found[str(number)].startswith("disagreed")
    }


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_fortieth_mutation_is_noticed(batch):
    assert not missed(IN_BRIEF[batch::BATCHES])


@pytest.mark.full
@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_mutation_is_noticed(batch):
    assert not missed(THE_OTHERS[batch::BATCHES])
