"""SIGKILL at any moment, then --resume: the same bytes, and nothing of the user's is lost.

`LUNETTE_KILLS` is how many moments are tried for each output, spread over the whole run, and
`LUNETTE_SEED` says which; `LUNETTE_KILLS=all` tries every one.
"""

import os
import random
import shutil
from itertools import pairwise

import numpy as np
import pytest

from tests.scale.commands import lunette, volume
from tests.scale.kills import run

SEED = int(os.environ.get("LUNETTE_SEED", "0"))
KILLS = os.environ.get("LUNETTE_KILLS", "")


def contents(folder):
    """Every file below a folder with its bytes, and every empty folder."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
        if p.is_file() or not any(p.iterdir())
    }


class Job:
    """A small job in a folder of its own, which it leaves as it found it, with the output in it."""

    def __init__(self, folder, name, force):
        self.folder, self.name, self.force = folder / "place", name, force
        self.folder.mkdir()
        np.save(self.folder / "in.npy", volume((20, 24)))
        (self.folder / "notes.txt").write_text("my own")
        lunette(*self.arguments("--op", "max"))  # forks find here all that this loads
        if not force:  # else it is an earlier output, of another operator
            for path in self.folder.glob("out.*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.before = contents(self.folder)
        self.saved = folder / "saved"
        shutil.copytree(self.folder, self.saved)
        code, output, self.steps = run(self.begin(), self.folder)
        assert code == 0, output
        self.after = contents(self.folder)

    def arguments(self, *more):
        source, out = self.folder / "in.npy", self.folder / self.name
        options = ("--levels", 2, "--chunks", "8,8", "--threads", 1, "--quiet")
        return ["pyramid", source, out, *options, *more]

    def begin(self):
        return self.arguments(*["--force"] * self.force)

    def reset(self):
        # In place: the journal knows the time of the input.
        for path in self.folder.iterdir():
            if path.name != "in.npy":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in self.saved.iterdir():
            if path.name != "in.npy":
                copy = shutil.copytree if path.is_dir() else shutil.copy2
                copy(path, self.folder / path.name)

    def visible(self):
        """What stands under final names now, if it is not simply gone."""
        now = contents(self.folder)
        keys = [k for k in now if ".partial" not in k and not k.endswith((".journal", ".lock"))]
        return {k: now[k] for k in keys}


def check_kill(job, moment=None, after=None):
    """Whether the run was killed at all; a resume brings it to the same end."""
    job.reset()
    code, output, _ = run(job.begin(), job.folder, kill_at=moment, after=after)
    assert code in (-9, 0), output
    seen = job.visible()
    for name, data in seen.items():  # old or new, never half of it
        assert data in (job.before.get(name), job.after.get(name)), (moment, name)
    resumed, output, _ = run(job.arguments("--resume"), job.folder)
    if resumed != 0:  # killed after the last step, or before it had begun to replace an output
        assert resumed == 1, (moment, output)
        assert "there is no journal" in output or "nothing was begun" in output, (moment, output)
        if seen == job.before:
            resumed, output, _ = run(job.begin(), job.folder)
            assert resumed == 0, (moment, output)
    now = contents(job.folder)
    now.pop(f"{job.name}.lock", None)  # of a process that died after its last step
    assert now == job.after, (moment, sorted(set(now) ^ set(job.after)))
    return code == -9


OUTPUTS = [("out.zarr", False), ("out.zarr", True), ("out.npy", True), ("out.png", False)]


@pytest.mark.parametrize(("name", "force"), OUTPUTS)
def test_killed_at_a_step_and_resumed(tmp_path, name, force):
    job = Job(tmp_path, name, force)
    for moment in moments(job.steps, 2 if name != "out.zarr" else 3):
        assert check_kill(job, moment)


@pytest.mark.full
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["out.zarr", "out.npy", "out.png", "out.tif", "out.precomputed"])
def test_killed_at_many_steps_and_resumed(tmp_path, name, force):
    job = Job(tmp_path, name, force)
    for moment in moments(job.steps, 30):
        assert check_kill(job, moment)


@pytest.mark.full
@pytest.mark.parametrize("name", ["out.zarr", "out.npy"])
def test_killed_at_random_times_and_resumed(tmp_path, name):
    job = Job(tmp_path, name, True)
    rng = random.Random(SEED)
    kills = [check_kill(job, after=rng.uniform(0, 0.3)) for _ in range(20)]
    assert any(kills)


def moments(steps, count):
    """One step at random out of each of so many stretches of the run: setup, work and finish."""
    if KILLS == "all":
        return range(1, steps + 1)
    count = min(int(KILLS or count), steps)
    rng = random.Random(SEED)
    cuts = [1 + steps * i // count for i in range(count + 1)]
    return [rng.randrange(a, b) for a, b in pairwise(cuts)]
