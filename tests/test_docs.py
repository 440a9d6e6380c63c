"""Every example that the documentation shows is run as it stands."""

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("tutorials/*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_run(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    failures, _ = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS)
    assert failures == 0


def test_some_examples_were_run():
    parser = doctest.DocTestParser()
    assert sum(len(parser.get_examples(page.read_text())) for page in PAGES) > 20


def test_the_gallery_draws_each_op_and_option():
    import re

    import lunette
    from lunette.drawing import draw

    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    ops = re.findall(r"```{drawing} (.*)", text)
    assert len(ops) >= 25
    for op in ops:
        assert draw(eval(op, dict(vars(lunette)))).startswith("<svg")
        assert f"`{op}`" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    import re

    for target in re.findall(r"\]\(([^)#:\n]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
