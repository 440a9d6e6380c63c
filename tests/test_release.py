"""What a release says of itself is one story: version, citation, changelog."""

import re
from pathlib import Path

import lunette

ROOT = Path(__file__).parents[1]


def test_the_citation_has_the_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", text, re.M)[1] == lunette.__version__


def test_the_changelog_has_the_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\d+\.\d+\.\d+)", text, re.M)[1] == lunette.__version__


def test_what_runs_elsewhere_can_be_run_here():
    """Workflows call make, `.ci/run` and installed tools: no script that only they have."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for command in re.findall(r"- run: (.*)", path.read_text(encoding="utf-8")):
            assert re.match(r"(\.ci/run|make |python -m |twine |gh )", command), (
                path.name,
                command,
            )
