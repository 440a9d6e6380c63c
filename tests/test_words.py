"""The pages speak the words of the field, not those that the code once had for the same things."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [
    DOCS.parent / "README.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("tutorials/*.md")),
]
MAP = {"kernels.md", "kernel-files.md"}
"""Pages that name files: what those are called is for them to say."""

WORDS = {
    "crew": "thread pool",
    "attendance": "worker loop",
    "asking ahead": "software prefetch",
    "ask for memory": "software prefetch",
    "past the caches": "non-temporal stores",
    "marked passes": "argmax passes",
    "winning rows": "argmax of small windows",
    "following rows": "tangents through the select",
    "folded rows": "vertical-then-horizontal reduction",
    "folded lanes": "vertical-then-horizontal reduction",
    "rows alike": "register-blocked rows",
    "whole items": "full-window reduction",
    "lane ties": "tie mask",
    "narrow means": "row-batched sums",
    "straight means": "1-D box filter",
    "finished means": "normalisation",
    "pair rooms": "scratchpad",
    "pair lines": "streaming log-sum-exp",
    "small items": "batch-interleaved layout",
    "same work": "canonical problem",
    "said anew": "canonical problem",
    "give way": "yield",
    "one exact meaning": "a reference implementation that also runs on exact fractions and intervals",
    "decided, not accidental": "edge cases are specified",
}
"""Old word → the field's."""


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in MAP], ids=lambda p: p.name)
def test_old_words_are_gone(page):
    text = " ".join(page.read_text(encoding="utf-8").lower().split())
    found = {old: new for old, new in WORDS.items() if re.search(rf"\b{old}\b", text)}
    assert not found, f"{page.name}: say the field's words instead"


def test_an_old_word_would_be_found():
    assert re.search(r"\bcrew\b", "a crew of threads") and len(WORDS) > 20
