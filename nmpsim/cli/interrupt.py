"""Ctrl-C ends a command also where Python does not come to it: in LLVM, in a long sum of NumPy's.

Python raises KeyboardInterrupt between two of its own instructions only. So the signal wakes a
thread as well, and where the command has not ended by itself after a moment, the thread ends the
process, and those that it started: what is half-written goes, the terminal is as it was.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import select
import signal
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nmpsim.atomic import remove_unfinished
from nmpsim.children import kill_children
from nmpsim.diagnostics import EXIT_USER
from nmpsim.host_memory import process_limit_error
from nmpsim.visible import visible

EXIT_INTERRUPTED = 130
GRACE_SECONDS = 0.1
"""What a command has to end by itself."""
WAITS_FOR_SOCKETS_ONLY = sys.platform == "win32"
"""``select`` there takes no pipes."""
_SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"
"""Also away with what is left of a bar."""


class _Interrupts:
    """What the thread knows of the command; the process has one."""

    def __init__(self) -> None:
        self.is_watched = False
        self._telling = threading.Lock()
        self._is_told = False
        """The user has been told that the command was interrupted."""
        self.note: Callable[[], str | None] = _no_note
        """What else the user is told then."""
        self.is_conversation = False
        self.line: object | None = None
        """The line of a conversation that is being done."""
        self._interrupted_line: object | None = None
        self._restore: Callable[[], None] = lambda: None

    def watch(self) -> None:
        """Begin, in the main thread."""
        reading, read, writing = _socket_ends() if WAITS_FOR_SOCKETS_ONLY else _pipe_ends()
        self.is_watched = True
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        sys.unraisablehook = _without_interrupts
        # The last that Python does before it lets the signal itself end what is done already.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        self._restore = _terminal_as_it_is()
        # A host that allows no more threads: Ctrl-C ends the command where Python comes to it.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=self._serve, args=(reading, read), daemon=True).start()

    def _serve(self, reading: int, read: Callable[[], bytes]) -> None:
        while True:
            if signal.SIGINT not in read():
                continue
            if not self.is_conversation:
                select.select([reading], [], [], GRACE_SECONDS)  # a second one does not wait
                self.end()
            elif self.line is not None and self.line is self._interrupted_line:
                self.end()
            self._interrupted_line = self.line

    def end(self) -> None:
        """End the process; the user is told once, whoever of the two threads ends it."""
        raise_no_more()
        kill_children()
        remove_unfinished()
        _release_shared()
        self._restore()
        text, code = self.words(), EXIT_INTERRUPTED
        if not _can_start_thread():
            text, code = (
                str(process_limit_error("can't start new thread").diagnostics[0]),
                EXIT_USER,
            )
        with self._telling:
            if not self._is_told and sys.stderr is not None:
                self._is_told = True
                with contextlib.suppress(OSError, ValueError):
                    os.write(sys.stderr.fileno(), f"{text}\n".encode(errors="replace"))
        os._exit(code)

    def words(self) -> str:
        """What the user is told."""
        note = self.note()
        return "interrupted" if note is None else f"{visible(note)}\ninterrupted"


def _can_start_thread() -> bool:
    """Return False where the system allows no more threads.

    OpenBLAS, which NumPy and SciPy load, interrupts the process if it cannot start one of its own.
    """
    try:
        start_new_thread(lambda: None, ())
    except RuntimeError:
        return False
    return True


def _pipe_ends() -> tuple[int, Callable[[], bytes], int]:
    """Where signals arrive, what waits for some and reads them, and where Python writes them."""
    reading, writing = os.pipe()
    if sys.platform != "win32":
        os.set_blocking(writing, False)
    return reading, lambda: os.read(reading, 64), writing


def _socket_ends() -> tuple[int, Callable[[], bytes], int]:
    """As :func:`_pipe_ends`, of two sockets."""
    import socket

    reading, writing = socket.socketpair()
    writing.setblocking(False)
    return reading.fileno(), lambda: reading.recv(64), writing.detach()


def _release_shared() -> None:
    """Give back what processes share, which Python does at its end only."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        with contextlib.suppress(Exception):
            util._run_finalizers(0)  # without those that wait for threads


def _without_interrupts(error: Any) -> None:
    """Python tells of an exception that nothing can catch; of Ctrl-C the other thread knows."""
    if not issubclass(error.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(error)


def raise_no_more() -> None:
    """From now on Ctrl-C is no exception in the main thread, if that is what calls."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: None)


def _no_note() -> None:
    """There is nothing else to tell."""


def _terminal_as_it_is() -> Callable[[], None]:
    """What brings the terminal back to how it is now."""
    # Windows has no such modes; or there is no stream, or no terminal.
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        termios: Any = importlib.import_module("termios")
        terminal = sys.stderr.fileno()
        if not os.isatty(terminal):
            return lambda: None
        modes = termios.tcgetattr(terminal)

        def restore() -> None:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(terminal, termios.TCSANOW, modes)
                os.write(terminal, _SHOW_CURSOR)

        return restore
    return lambda: None


_interrupts = _Interrupts()


def watch_interrupts() -> None:
    """From now on Ctrl-C ends this process, whatever it does."""
    _interrupts.watch()


def what_is_told() -> str:
    """What the user is to be told of an interruption; the caller tells it."""
    return _interrupts.words()


def end_interrupted() -> None:
    """End a process that :func:`watch_interrupts` watches, and tell the user; in the main thread.

    Python would take its time: a compiler is large. Nor may anything be freed before: who was
    interrupted while he made an object has left half of one, whose end Python would complain of.
    """
    if _interrupts.is_watched:
        _interrupts.end()


@contextmanager
def noting(note: Callable[[], str | None]) -> Iterator[None]:
    """In here, this is told of an interruption too, unless it is None then."""
    before, _interrupts.note = _interrupts.note, note
    yield
    _interrupts.note = before  # but not after an exception: that may be what it is told of


@contextmanager
def conversation() -> Iterator[None]:
    """In here, Ctrl-C is for the line at hand; the session goes on."""
    _interrupts.is_conversation = True
    try:
        yield
    finally:
        _interrupts.is_conversation = False


@contextmanager
def line_of_conversation() -> Iterator[None]:
    """A line is done, and sees to Ctrl-C itself; a second one ends the process all the same."""
    _interrupts.line = object()
    try:
        yield
    finally:
        _interrupts.line = None
