"""The command: exit statuses, reports that repeat, one page that needs nothing else."""

from __future__ import annotations

import json
import re

import pytest
import typer
from typer.testing import CliRunner

from lunette.check.command import check
from lunette.check.targets import TARGETS
from tests.check.mutants import adapter_name

app = typer.Typer()
app.command()(check)
MUTANT = f"tests.check.mutants:{adapter_name('padding is zero')}"


def _run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_clean_run_exits_with_zero():
    result = _run("spec", "--op", "max", "--verb", "forward", "--cases", 60)
    assert result.exit_code == 0, result.output
    assert "60 agrees" in result.output


def test_a_finding_exits_with_one_and_is_printed_to_paste(tmp_path):
    page, data = tmp_path / "report.html", tmp_path / "out.json"
    result = _run(
        MUTANT, "--op", "max", "--cases", 150, "--seed", 3, "--report", page, "--json", data
    )
    assert result.exit_code == 1, result.output
    assert "wrong: max forward" in result.output
    assert "import numpy as np" in result.output
    assert "# expected y = [" in result.output
    assert "# actual   y = [" in result.output
    found = json.loads(data.read_text())
    assert found["findings"][0]["verdict"] == "wrong"
    assert found["command"] == f"lunette check {MUTANT} --op max --cases 150 --seed 3"
    html = page.read_text()
    assert not re.search(r'(src|href)="?http', html)
    assert set(found["versions"]) >= {"lunette", "python"}
    for part in ("<svg", "seed 3", found["command"].replace("'", "&#x27;"), "lunette"):
        assert part in html


def test_the_same_seed_gives_the_same_report(tmp_path):
    texts = []
    for name in ("a", "b"):
        page, data = tmp_path / f"{name}.html", tmp_path / f"{name}.json"
        _run(MUTANT, "--cases", 250, "--seed", 1, "--report", page, "--json", data)
        texts.append((page.read_text(), data.read_text()))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("nobody",),
        ("no_module:function",),
        (),
        ("spec", "--op", "polling"),
        ("spec", "--verb", "backward"),
        ("spec", "--cases", 0),
        ("spec", "--seed", -1),
        ("spec", "--time", 0),
        ("spec", "--json", "/no/such/directory/out.json"),
    ],
)
def test_a_bad_command_line_exits_with_two(arguments):
    assert _run(*arguments).exit_code == 2


def test_the_list_names_every_target():
    result = _run("--list")
    assert result.exit_code == 0
    for name in TARGETS:
        assert name in result.output
    assert "installed" in result.output
    assert "ops: max, mean, global-smooth-max\n" in result.output  # SciPy's


def test_time_ends_a_run():
    result = _run("spec", "--op", "global-max", "--verb", "forward", "--time", 1)
    assert result.exit_code == 0
    assert "agrees" in result.output


def test_a_run_that_tries_nothing_is_no_success():
    result = _run("scipy", "--op", "conv")
    assert result.exit_code == 1
    assert "nothing was tried" in result.output
