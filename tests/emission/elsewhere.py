"""Emits kernels for another system, as far as LLVM and Numba can tell: `elsewhere.py TRIPLE CPU`, names of kernels on standard input.

It prints, for each kernel, the symbols that it needs of the system; as JSON.
"""

import json
import platform
import sys
from importlib import import_module

import llvmlite.binding as llvm

HASWELL = "sse sse2 sse3 ssse3 sse4.1 sse4.2 popcnt avx avx2 fma f16c bmi bmi2 lzcnt cx8 cx16 64bit"


def pretend(triple: str, cpu: str) -> None:
    """This process is on a system of a triple, with a processor of a name."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = type(llvm.get_host_cpu_features())()
    if cpu == "haswell":  # Apple's processors are left as LLVM says them: without features
        for feature in HASWELL.split():
            features[feature] = True
    llvm.get_process_triple = llvm.get_default_triple = lambda: triple
    llvm.Target.from_default_triple = classmethod(lambda cls: cls.from_triple(triple))
    llvm.get_host_cpu_features = lambda: features
    llvm.get_host_cpu_name = lambda: cpu
    machine = "x86_64" if triple.startswith("x86_64") else "arm64"
    platform.machine = lambda: machine
    add = llvm.add_symbol

    def with_underscore(name: str, address: int) -> None:
        add(name, address)
        add("_" + name, address)  # as Mach-O spells what Numba has of its own

    llvm.add_symbol = with_underscore


def main() -> None:
    """Emit each kernel and read its symbols."""
    pretend(*sys.argv[1:3])
    from lunette.kernels.cpu.jit import compile as compilation
    from tests.emission.symbols import undefined

    found = {}
    for module, factory, *arguments in json.load(sys.stdin):
        made = getattr(import_module(f"lunette.kernels.cpu.{module}"), factory)(*arguments)
        name = "-".join(map(str, (module, factory, *arguments)))
        found[name] = sorted(undefined(compilation.machine_code(made.py_func)))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
