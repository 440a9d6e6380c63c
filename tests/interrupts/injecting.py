"""Something happens at the n-th step of some files: at a line, or at an instruction of the interpreter."""

import sys
import threading

from lunette import background, loading
from lunette.kernels import gates, threads
from lunette.kernels.cpu import convolution, pooling
from lunette.kernels.cpu.conv import backward_weights, correlate, position_sums
from lunette.kernels.cpu.jit import cache
from lunette.kernels.cpu.layout import batch_interleave, nhwc_to_nchw
from lunette.kernels.cpu.memory import block_cache, scratchpad
from lunette.kernels.cpu.program import calls
from lunette.kernels.cpu.threadpool import pool

POOLS = threads, gates, background, loading
RUNNING = pool, calls, block_cache, scratchpad
AROUND = (
    *(pooling, convolution, cache, nhwc_to_nchw, batch_interleave),
    *(correlate, backward_weights, position_sums),
)
"""Modules whose steps are counted."""


class Injector:
    """Counts steps of this thread, or of those that are started later, and acts at one of them."""

    def __init__(self, modules, opcodes=True):
        self.files = {module.__file__ for module in modules}
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
