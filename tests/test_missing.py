"""What is not installed is said in one sentence, with the line to install it."""

import subprocess
import sys

import pytest

HIDE = """
import sys, warnings
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
import numpy as np
import lunette as ln
"""


def run(names, program):
    done = subprocess.run(
        [sys.executable, "-c", HIDE.format(names=names) + program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_numba_the_specification_answers_with_its_warning():
    out = run(
        {"numba", "llvmlite"},
        """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(ln.max_pool(np.array([1.0, 5.0, 2.0, 3.0]), (2,)).tolist())
print(caught[0].category.__name__, caught[0].message)
try:
    ln.max_pool(np.ones(2), (2,), backend="cpu")
except TypeError as error:
    print(error)
""",
    )
    assert out.startswith("[5.0, 3.0]\nSlowPathWarning")
    assert out.count("pip install numba") == 2


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_missing_library_is_named_with_its_extra(name):
    out = run(
        {name},
        f"""
try:
    ln.{name}
except ModuleNotFoundError as error:
    print(error)
""",
    )
    assert out == f"lunette.{name} needs {name}: pip install 'lunette-ops[{name}]'\n"


def test_a_target_that_is_missing_is_named_with_the_line_to_install_it(monkeypatch):
    from typer.testing import CliRunner

    from lunette.check.targets import find_target
    from lunette.check.targets.base import Target
    from lunette.cli import app

    assert (
        find_target("torch").missing() == "torch is not installed: pip install 'lunette-ops[torch]'"
    )
    assert find_target("opencv").missing().endswith("pip install opencv-python-headless")
    monkeypatch.setattr(Target, "installed", lambda self: False)
    said = CliRunner().invoke(app, ["check", "scipy"], env={"COLUMNS": "100"})
    assert said.exit_code == 2 and "pip install scipy" in said.output
