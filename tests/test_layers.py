"""The CPU kernels and the bounds stand in layers, as their pages draw them: each knows those below."""

import ast
from pathlib import Path

import pytest

import lunette

CPU = Path(lunette.__file__).parent / "kernels" / "cpu"
NAME = "lunette.kernels.cpu"

BELOW = [
    {"jit"},
    {"tuning"},
    {"schedule"},
    {"memory"},
    {"simd"},
    {"micro"},
    {"loops"},
    {"reference"},
    {"threadpool"},
    {"program", "xla"},
    {"layout", "conv"},
    {"select"},
    {"pooling", "convolution"},
    {"integers", "explain"},
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
    text = (Path(__file__).parents[1] / "docs" / "kernel-files.md").read_text()
    top, *parts = text.split("\n`kernels/threads.py`")[0].split("\n### `")
    tables = {"": top} | {part.split("/`")[0]: part for part in parts}
    files = [path.relative_to(CPU) for path in CPU.rglob("*.py") if path.name != "__init__.py"]
    missing = [str(f) for f in files if f"`{f.name}`" not in tables["/".join(f.parts[:-1])]]
    assert not missing


BOUNDS = CPU.parents[1] / "bounds"
BOUNDS_BELOW = [
    {"check", "box"},
    {"affine"},
    {"windows"},
    {"deployed", "relax"},
    {"network"},
    {"pull", "attack", "reading"},
    {"parts"},
    {"tiles"},
    {"tighten"},
    {"outputs"},
    {"certificate", "split"},
]
"""The files of `lunette.bounds`, the lowest first."""

BOUNDS_MAY_KNOW = {
    *("arguments", "cached", "check", "dispatch", "inputs", "ops", "reductions", "regions", "tape"),
}
"""What of the rest of the project bounds are made of; no kernel, no adapter, no spec."""


def imports(path):
    """Modules of lunette that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lunette"):
            parts = node.module.split(".")
            if node.module in ("lunette", "lunette.bounds"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield ".".join(parts)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("lunette"))


def test_a_file_of_the_bounds_knows_only_those_below_it():
    level = {name: n for n, names in enumerate(BOUNDS_BELOW) for name in names}
    files = [path for path in BOUNDS.glob("*.py") if path.stem != "__init__"]
    assert {path.stem for path in files} == set(level)
    for path in files:
        for module in imports(path):
            top, *rest = module.split(".")[1:]
            if top == "bounds":
                assert level[rest[0]] < level[path.stem], (path.name, module)
            else:
                assert top in BOUNDS_MAY_KNOW, (path.name, module)


def test_the_checker_knows_nothing_of_the_project():
    assert not list(imports(BOUNDS / "check.py"))


def test_only_the_front_knows_the_bounds():
    """The command line and the public names may; no layer below does."""
    root = CPU.parents[1]
    for path in root.rglob("*.py"):
        if BOUNDS in path.parents or path.relative_to(root).parts[0] in (
            "__init__.py",
            "cli.py",
            "verify",
        ):
            continue
        assert not [m for m in imports(path) if m.startswith("lunette.bounds")], path


def test_only_the_front_knows_verification_and_the_reader_of_networks():
    """The tape knows no file; the reader knows no bounds; the command line knows both."""
    root = CPU.parents[1]
    allowed = {
        "lunette.onnx": ("__init__.py", "onnx", "verify"),
        "lunette.verify": ("cli.py", "verify"),
    }
    for path in root.rglob("*.py"):
        for name, folders in allowed.items():
            if path.relative_to(root).parts[0] not in folders:
                assert not [m for m in imports(path) if m.startswith(name)], path
