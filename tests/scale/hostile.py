"""A pooling of a file that may be anything: the law that its message and its exit status keep."""

import signal

import pytest
from typer.testing import CliRunner

from lunette.cli import app

HANG = 300


@pytest.fixture(autouse=True)
def no_hang():
    """A generous limit, so that a pipe that is waited for fails a test rather than stopping them all."""

    def late(number, frame):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANG)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def attempt(source, folder, *options):
    """The exit status and the message of a pooling, which is one line; no output if it failed."""
    out = folder / "out.npy"
    out.unlink(missing_ok=True)
    arguments = ["pool", "max", "--kernel", "1,1", "--memory", "4GB", "--quiet", "--force"]
    result = CliRunner().invoke(app, [*arguments, str(source), str(out), *options])
    assert isinstance(result.exception, (SystemExit, type(None))), repr(result.exception)
    text = result.output
    if result.exit_code == 0:
        assert text == ""
    else:
        assert result.exit_code == 1, text
        assert text.startswith("error: "), text
        assert text.count("\n") == 1, text
        assert len(text) < 1200
        assert not out.exists()
    assert not (folder / "out.npy.lock").exists()
    return result.exit_code, text


def refused(source, folder, words=""):
    """The message of a pooling that was refused before anything was made."""
    before = sorted(folder.rglob("*"))
    code, text = attempt(source, folder)
    assert code == 1, text
    assert sorted(folder.rglob("*")) == before
    assert words in text
    return text
