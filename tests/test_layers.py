"""The CPU kernels stand in layers, as `docs/kernels.md` draws them: each knows only those below it."""

import ast
from pathlib import Path

import pytest

import lunette

CPU = Path(lunette.__file__).parent / "kernels" / "cpu"
NAME = "lunette.kernels.cpu"

BELOW = [
    {"compiling"},
    {"plans"},
    {"memory"},
    {"vectors"},
    {"rows"},
    {"small_windows"},
    {"maxima", "means", "smooth", "convolving"},
    {"direct"},
    {"running"},
    {"rearranging"},
    {"choice"},
    {"pooling", "convolution"},
]
"""The layers, the lowest first. What stands side by side does not know of each other."""

LEVEL = {name: level for level, names in enumerate(BELOW) for name in names}


def layer(path):
    """The folder of a module, or the module itself where it is in none."""
    return path.relative_to(CPU).parts[0].removesuffix(".py")


def known(path):
    """The layers that a module imports from."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(NAME):
            inside = node.module.removeprefix(NAME).lstrip(".")
            yield from [inside.split(".")[0]] if inside else [alias.name for alias in node.names]


def test_every_module_has_a_layer():
    assert {layer(path) for path in CPU.rglob("*.py")} - {"__init__"} == set(LEVEL)


@pytest.mark.parametrize("name", sorted(LEVEL))
def test_a_layer_knows_only_those_below_it(name):
    above = [
        (str(path.relative_to(CPU)), other)
        for path in CPU.rglob("*.py")
        if layer(path) == name
        for other in known(path)
        if other != name and LEVEL[other] >= LEVEL[name]
    ]
    assert not above


def test_the_map_names_every_file():
    """In the table of its folder."""
    text = (Path(__file__).parents[1] / "docs" / "kernels.md").read_text()
    top, *parts = text.split("\n`kernels/threads.py`")[0].split("\n### `")
    tables = {"": top} | {part.split("/`")[0]: part for part in parts}
    files = [path.relative_to(CPU) for path in CPU.rglob("*.py") if path.name != "__init__.py"]
    missing = [str(f) for f in files if f"`{f.name}`" not in tables["/".join(f.parts[:-1])]]
    assert not missing
