"""The distribution: what a user's installer gets is whole, clean, and says what it needs."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A source archive and a wheel, made without the network."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_wheel_holds_the_package_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.name.startswith("lunette_ops-")
    names = zipfile.ZipFile(wheel).namelist()
    package = {n for n in names if n.startswith("lunette/")}
    source = {
        p.relative_to(ROOT / "src").as_posix()
        for p in (ROOT / "src").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert package == source
    assert all(n.startswith("lunette_ops-") for n in set(names) - package)


def test_source_archive_can_be_tested_and_holds_no_rubbish(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = [n.partition("/")[2] for n in tar.getnames()]
    for needed in ("README.md", "LICENSE", "Makefile", "tests/conftest.py", "docs/semantics.md"):
        assert needed in names
    rubbish = re.compile(r"(^|/)(\.venv|\.git|__pycache__|_build|\.[a-z]+_cache)(/|$)|\.pyc$")
    assert not [n for n in names if rubbish.search(n)]


def test_the_readme_renders_on_a_package_index(built):
    """Strictly: a warning is an error."""
    files = [str(p) for p in built.iterdir()]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_dependency_has_a_lower_bound():
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for line in {line for group in groups for line in group}:
        requirement = Requirement(line)
        if requirement.name != PROJECT["name"]:
            assert any(s.operator in (">=", "==") for s in requirement.specifier), line


def test_pinned_versions_agree_with_the_bounds_and_with_the_lock():
    """What the tests, the linters and the documentation pin is in the lock, and within the bounds that users see."""
    lock = _pins(ROOT / "requirements" / "lock.txt")
    pins = {}
    for page in ("test.txt", "lint.txt", "docs.txt"):
        pins |= _pins(ROOT / "requirements" / page)
    assert {name: lock.get(name) for name in pins} == pins
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for line in {line for group in groups for line in group}:
        requirement = Requirement(line)
        if requirement.name in lock:
            assert requirement.specifier.contains(lock[requirement.name]), line


def test_texts_name_the_distribution_that_exists():
    """`pip install lunette` would install a stranger's package."""
    wrong = re.compile(r"pip install [^\n`]*?['\" ]lunette(\[|['\"` \n]|$)")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    for page in pages:
        assert not wrong.search(page.read_text()), page


def _pins(page):
    lines = (line.partition("#")[0].strip() for line in page.read_text().splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {re.sub(r"[-_.]+", "-", n.partition("[")[0]).lower(): v for n, v in pairs}
