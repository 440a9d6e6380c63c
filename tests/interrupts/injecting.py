"""Something happens at the n-th step of some files: at a line, or at an instruction of the interpreter."""

import sys
import threading
from pathlib import Path

import lunette

HOME = Path(lunette.__file__).parent
POOLS = ("kernels/threads.py", "kernels/gates.py", "background.py", "loading.py")
RUNNING = tuple(
    f"kernels/cpu/running/{n}.py" for n in ("crew", "calls", "results", "working_memory")
)
AROUND = (
    *(f"kernels/cpu/{n}.py" for n in ("pooling", "convolution", "compiling/library")),
    *(f"kernels/cpu/rearranging/{n}.py" for n in ("turning", "small_items")),
    *(f"kernels/cpu/convolving/{n}.py" for n in ("correlation", "weight_sums", "position_sums")),
)


class Injector:
    """Counts steps of this thread, or of those that are started later, and acts at one of them."""

    def __init__(self, files, opcodes=True):
        self.files = {str(HOME / name) for name in files}
        self.opcodes, self.event = opcodes, "opcode" if opcodes else "line"
        self.step = self.target = 0
        self.act = None

    def during(self, call, target, act):
        """The result of a call in which `act()` happens at this step, if it has as many."""
        self.step, self.target, self.act = 0, target, act
        sys.settrace(self._enter)
        try:
            return call()
        finally:
            sys.settrace(None)

    def in_new_threads(self, target, act):
        """Act in whichever thread comes to this step, of those that are started from now on."""
        self.step, self.target, self.act = 0, target, act
        threading.settrace(self._enter)

    @property
    def acted(self):
        return self.act is None

    def _enter(self, frame, event, _):
        if self.act is None or frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = self.opcodes, not self.opcodes
        return self._step

    def _step(self, frame, event, _):
        if event == self.event and self.act is not None:
            self.step += 1
            if self.step == self.target:
                act, self.act = self.act, None
                sys.settrace(None)
                frame.f_trace = None
                act()
        return self._step


def interrupt():
    raise KeyboardInterrupt
