"""Every block of code on every page: run, or its commands and options looked up, or marked with why it is not run.

Blocks with prompts are run by `test_docs.py`. Here are the others: Python without prompts runs as it stands, page by page; of a
shell's lines each command of ours is parsed with its options, each target of make and each extra exists.
"""

import re
import shlex
import tomllib

import pytest
import typer

from lunette.cli import app
from tests.test_front import ROOT

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("*/*.md")),
]
BLOCK = re.compile(
    r"(<!-- not run: (?P<why>.+?) -->\n)?^ *```(?P<kind>\S+).*?\n(?P<text>.*?)^ *```$", re.M | re.S
)
DRAWN = {"text", "{drawing}", "{toctree}", "{include}", "{grid}"}
"""Pictures, and what Sphinx reads."""

COMMANDS = typer.main.get_command(app)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))


def blocks(page):
    return [m for m in BLOCK.finditer(page.read_text(encoding="utf-8")) if not m["why"]]


def name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_of_a_kind_that_is_run(page):
    opened = len(re.findall(r"^ *```\S", page.read_text(encoding="utf-8"), re.M))
    assert opened == len(BLOCK.findall(page.read_text(encoding="utf-8")))
    for block in blocks(page):
        assert block["kind"] in DRAWN | {"python", "pycon", "sh", "yaml"}, block["text"]
        assert (block["kind"] == "pycon") <= (">>> " in block["text"]), block["text"]


def python(page):
    return [b for b in blocks(page) if b["kind"] == "python" and ">>> " not in b["text"]]


@pytest.mark.parametrize("page", [p for p in PAGES if python(p)], ids=name)
def test_python_without_prompts_runs(page, monkeypatch, tmp_path):
    for library in ("torch", "jax", "onnx"):
        if re.search(rf"^(import|from) {library}", page.read_text(encoding="utf-8"), re.M):
            pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for block in python(page):
        exec(compile(block["text"], page.name, "exec"), names)


def parsed(command, words):
    context = COMMANDS.make_context("lunette", [], resilient_parsing=True)
    context.resilient_parsing = False  # which would forgive an unknown option
    context.allow_interspersed_args = True
    return COMMANDS.commands[command].make_parser(context).parse_args(words)


def lines(page):
    """Lines for a shell, from blocks for it and from the steps of workflows."""
    for block in blocks(page):
        if block["kind"] == "sh":
            yield from block["text"].splitlines()
        if block["kind"] == "yaml":
            yield from re.findall(r"run: (.*)", block["text"])


@pytest.mark.parametrize("page", [p for p in PAGES if list(lines(p))], ids=name)
def test_commands_and_their_options_exist(page):
    for line in lines(page):
        if line.startswith("lunette"):  # what may be left out stands in brackets
            line = re.sub(r"[\[\]]", " ", line)  # noqa: PLW2901
        words = shlex.split(line, comments=True)
        if words and words[-1] == "&":
            words.pop()
        if not words:
            continue
        if words[0] == "lunette":
            assert parsed(words[1], words[2:])
        elif words[0] == "make":
            assert words[1] in TARGETS, line
        elif "install" in words:
            named = [w for w in words if w.startswith("lunette-ops")]
            assert named and all(e in EXTRAS for w in named for e in re.findall(r"\[(\w+)\]", w)), (
                line
            )
        else:
            assert words[0] == "dask" or words[:2] == ["python", "-c"], (
                f"{line}: mark the block, or say here how it is checked"
            )


def test_an_option_that_is_not_there_would_be_found():
    with pytest.raises(Exception, match="No such option"):
        parsed("check", ["torch", "--sead", "3"])
