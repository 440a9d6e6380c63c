"""The commands `lunette verify` and `lunette recheck`."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["EXIT", "recheck", "verify"]

EXIT = {"unsat": 0, "sat": 1, "unknown": 3, "timeout": 4}
"""Exit status of each result; 2 is a file or a command line that is not read."""

NO_CERTIFICATE = 5


def verify(
    network: Annotated[Path, typer.Argument(help="An .onnx file, which may be gzipped.")],
    prop: Annotated[
        Path, typer.Argument(metavar="PROPERTY", help="A .vnnlib file, which may be gzipped.")
    ],
    certificate: Annotated[
        Path | None, typer.Option(help="Write a certificate of a verified property here.")
    ] = None,
    result: Annotated[
        Path | None, typer.Option(help="Write the result here too, as VNN-COMP's tools do.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds from start to end.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the search for counterexamples.")] = 0,
    max_bytes: Annotated[int, typer.Option(help="Bytes that a file may hold, unpacked.")] = 2**31,
) -> None:
    """Does a network keep to a property? A proof for its floats, or an input that breaks it.

    The first line of the output is VNN-COMP's word: `unsat` (verified), `sat` (falsified; the
    counterexample follows), `unknown` or `timeout`. Exit status: 0, 1, 3 and 4 for these; 2 for a
    file that is not read; 5 where a property is verified but has no certificate.
    """
    from rich.console import Console

    from lunette.onnx import loads_property
    from lunette.onnx.files import read_bytes
    from lunette.onnx.network import from_bytes
    from lunette.verify.certificates import certificate as certified
    from lunette.verify.engine import Verdict
    from lunette.verify.engine import verify as decide

    console = Console(stderr=True)
    begin = time.monotonic()
    if not timeout > 0:
        raise typer.BadParameter(f"--timeout {timeout}: expected more than 0 seconds")
    if max_bytes < 1:
        raise typer.BadParameter(f"--max-bytes {max_bytes}: expected at least 1")
    for path in (certificate, result):
        if path is not None and not path.absolute().parent.is_dir():
            raise typer.BadParameter(f"{path}: no such directory")
    try:
        data, text = read_bytes(network, max_bytes), read_bytes(prop, max_bytes)
        net = from_bytes(data, network.parent, max_bytes, str(network))
        asked = loads_property(_text(text, prop))
        with _display(console) as show, _alarm(begin + timeout):
            left = max(begin + timeout - time.monotonic(), 1e-3)
            try:
                verdict = decide(net, asked, timeout=left, data=data, progress=show, seed=seed)
            except TimeoutError:
                verdict = Verdict("timeout", reason="the time is spent")
    except (ValueError, TypeError, MemoryError, OSError, ImportError) as error:
        _leave(console, error)
    lines = verdict.result
    if verdict.counterexample is not None:
        lines += "\n" + verdict.counterexample.text()
    typer.echo(lines)
    if result is not None:
        result.write_text(lines + "\n", encoding="utf-8")
    _explain(console, verdict, time.monotonic() - begin)
    if certificate is not None and verdict.result == "unsat":
        try:
            document = certified(net, asked, verdict, data, text)
        except ValueError as error:
            console.print(f"no certificate: {error}", markup=False, highlight=False)
            raise typer.Exit(NO_CERTIFICATE) from None
        certificate.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
        console.print(f"certificate: {certificate}", markup=False, highlight=False)
    raise typer.Exit(EXIT[verdict.result])


def recheck(
    certificate: Annotated[Path, typer.Argument(help="A certificate of `lunette verify`.")],
    network: Annotated[Path | None, typer.Option(help="That it is of this network.")] = None,
    prop: Annotated[
        Path | None, typer.Option("--property", help="That it is of this property.")
    ] = None,
    max_bytes: Annotated[int, typer.Option(help="Bytes that a file may hold, unpacked.")] = 2**31,
) -> None:
    """Does a certificate hold? Every bound is replayed in exact integers; nothing in it is believed.

    Prints `verified`, `rejected` or `error`. Exit status: 0, 1 and 2.
    """
    from rich.console import Console

    from lunette.onnx import ReadError, loads_property
    from lunette.onnx.files import read_bytes
    from lunette.onnx.network import from_bytes
    from lunette.verify.replay import Rejected
    from lunette.verify.replay import recheck as replay

    console = Console(stderr=True)
    if (network is None) != (prop is None):
        raise typer.BadParameter("--network and --property come together")
    try:
        text = _text(read_bytes(certificate, max_bytes), certificate)
        net = asked = None
        if network is not None and prop is not None:
            net = from_bytes(
                read_bytes(network, max_bytes), network.parent, max_bytes, str(network)
            )
            asked = loads_property(_text(read_bytes(prop, max_bytes), prop))
        said = replay(text, net, asked)
    except (ReadError, OSError, ImportError) as error:
        _leave(console, error)
    except Rejected as why:
        typer.echo(f"rejected: {why}")
        raise typer.Exit(1) from None
    typer.echo(f"verified: {said}")


def _text(data: bytes, path: Path) -> str:
    from lunette.onnx import ReadError

    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ReadError(f"{path}: not a text in UTF-8") from None


def _leave(console: Any, error: Exception) -> Any:
    console.print(f"error: {error}", markup=False, highlight=False)
    typer.echo("error")
    raise typer.Exit(2) from None


def _explain(console: Any, verdict: Any, seconds: float) -> None:
    """A line for people."""
    words = {"unsat": "verified", "sat": "falsified"}
    line = f"{words.get(verdict.result, verdict.result)}: {verdict.boxes} boxes, {seconds:.1f} s"
    if verdict.reason:
        line += f"; {verdict.reason}"
    if verdict.counterexample is not None:
        for name, unsafe in verdict.counterexample.replays.items():
            line += f"; {name}: {'unsafe too' if unsafe else 'safe'}"
    console.print(line, markup=False, highlight=False)


@contextmanager
def _display(console: Any) -> Iterator[Any]:
    """A live line with the sub-problems that are open and those that are closed."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading")

        def show(state: Any) -> None:
            of = f"case {state.case + 1} of {state.cases}: " if state.cases > 1 else ""
            bar.update(task, description=f"{of}{state.open} open, {state.closed} closed")

        yield show


@contextmanager
def _alarm(deadline: float) -> Iterator[None]:
    """TimeoutError at the deadline, also amid one long computation, where signals allow it."""
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable:
        yield
        return

    def ring(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
