"""The front page says what is so: its picture, its counts and its links."""

import re
import runpy
from pathlib import Path

import pytest

import lunette as ln
from lunette.drawing import draw

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REPOSITORY = "https://github.com/lunette-ops/lunette/blob/main/"


def test_the_picture_is_what_the_library_draws():
    made = runpy.run_path(str(ROOT / "docs" / "draw_window.py"))["picture"]()
    assert (ROOT / "docs" / "window.svg").read_text(encoding="utf-8") == made
    assert "docs/window.svg" in README


def test_links_are_absolute_and_lead_to_files():
    """A package index shows the page too, and has no files beside it."""
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert len(targets) > 15 and all(t.startswith("https://") for t in targets)
    for target in targets:
        if target.startswith(REPOSITORY):
            assert (ROOT / target.removeprefix(REPOSITORY).partition("#")[0]).exists(), target


def test_the_number_of_findings_is_theirs():
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    found = len(re.findall(r"^\*\*(?:Wrong|Crashed)", text, re.M))
    assert f"**{found} wrong results and crashes**" in README


def test_every_finding_has_an_anchor_and_is_listed():
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    anchors = re.findall(r'^<a id="([\w-]+)"></a>\n\n\*\*(?:Wrong|Crashed)', text, re.M)
    assert len(set(anchors)) == len(re.findall(r"^\*\*(?:Wrong|Crashed)", text, re.M))
    assert re.findall(r'<a href="#([\w-]+)">', text) == anchors
    linked = set(re.findall(r"\((reports/\w+\.md)\)", text))
    assert linked == {f"reports/{path.name}" for path in (ROOT / "docs" / "reports").glob("*.md")}


def test_the_other_numbers_are_in_their_pages():
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    row = next(
        line for line in benchmarks.splitlines() if line.startswith("| max k3s2p1 | 32×64×112")
    )
    ours = float(row.split("|")[3])
    peers = [float(cell) for cell in row.split("|")[6:-1] if cell.strip() != "–"]
    assert f"**{peers[0] / ours:.0f}× torch eager**, {min(peers) / ours:.1f}×" in README
    assert "91,200" in (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


DRAWN = [
    ln.MaxPool((3, 3), 2, 1),
    ln.MinPool((2,), 1, ties="all"),
    ln.ModePool((2, 2)),
    ln.AvgPool((2, 2), 1, "same"),
    ln.SmoothMaxPool((3,), 2.0, padding=1),
    ln.AdaptiveAvgPool((3, None)),
    ln.GlobalMaxPool(3),
    ln.MaxPool((2, 2), axes=(1, 2)),
]


@pytest.mark.parametrize("op", DRAWN, ids=repr)
def test_ops_draw_themselves(op):
    from xml.etree import ElementTree

    root = ElementTree.fromstring(op._repr_svg_())
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert repr(op) in texts and "input" in texts and "output" in texts


def test_a_drawing_has_the_values_and_the_winner():
    svg = draw(ln.MaxPool((2,)), [1.0, 5.0, 2.0, 3.0], (0,))
    assert ">5</text>" in svg and 'x="50" y="38"' in svg  # the ring around the second cell
    moving = draw(ln.MaxPool((2,)), [1.0, 5.0, 2.0, 3.0], moving=True)
    assert moving.count("<animate") > 4


def test_what_cannot_be_drawn_is_not():
    assert ln.MaxPool((500,))._repr_svg_() is None
    with pytest.raises(ValueError, match=r"x has shape \(99,\)"):
        draw(ln.MaxPool((2,)), list(range(99)))


def test_tapes_draw_themselves():
    tape = ln.Tape()
    tape.sum(tape.leaf([1.0, 2.0], "image"))
    assert "<svg" in tape._repr_svg_() and "image" in tape._repr_svg_()


def test_parts_load_as_attributes():
    for name in ("testing", "offsets", "check", "spec", "tape"):
        assert getattr(ln, name).__name__ == f"lunette.{name}"
    pytest.importorskip("torch")
    assert ln.torch.nn.MaxPool


def test_verbs_of_an_op_take_a_backend():
    import numpy as np

    op, x = ln.MaxPool((2,)), np.array([1.0, 5.0, 2.0, 3.0])
    assert op.vjp(x, np.ones(2), backend="spec").tolist() == [0, 1, 0, 1]
    assert op.jvp(x, x, backend="spec").tolist() == [5, 3]
    with pytest.raises(ValueError, match="backend='fast'"):
        op.vjp(x, np.ones(2), backend="fast")
