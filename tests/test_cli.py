"""The command line reads well and shows what it promises."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import lunette
from lunette.cli import app

runner = CliRunner()


def test_tour_shows_winners_gradients_fractions_and_intervals():
    result = runner.invoke(app, ["tour"])
    assert result.exit_code == 0
    for part in (
        "MaxPool((3, 3), stride=2, padding=1)",
        "winners marked",
        "‹8›",
        "73/48",
        "[7.5, 8.5]",
        "overlap",
    ):
        assert part in result.output
    assert "examples/" not in result.output and "docs/" not in result.output  # no wheel has them


def test_tour_fits_eighty_columns():
    result = runner.invoke(app, ["tour"])
    assert max(map(len, result.output.splitlines())) <= 80


def test_help_names_every_command():
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    for command in ("tour", "check", "pool", "pyramid", "verify", "recheck"):
        assert command in result.output


def test_version_and_unknown_command():
    assert lunette.__version__ in runner.invoke(app, ["--version"]).output
    assert runner.invoke(app, ["telescope"]).exit_code == 2


@pytest.mark.parametrize("module", ["lunette.cli"])
def test_the_module_runs(module):
    run = subprocess.run(
        [sys.executable, "-m", module, "tour"], capture_output=True, text=True, check=True
    )
    assert "Lunette" in run.stdout
