"""Handling of Ctrl-C, also while a command executes code that is not Python's.

Python raises KeyboardInterrupt only between two of its own instructions. A watching thread receives
the signal too; if the command has not ended after a moment, the thread ends the process and its
children, removes unfinished files and restores the terminal.
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

from nmpsim.atomic import remove_temporary_files
from nmpsim.diagnostics import EXIT_USER
from nmpsim.escape import escape
from nmpsim.host_memory import make_process_limit_error
from nmpsim.subprocesses import kill_children

EXIT_INTERRUPTED = 130
GRACE_SECONDS = 0.1
"""Time in which a command can end by itself."""
WAITS_FOR_SOCKETS_ONLY = sys.platform == "win32"
"""Whether ``select`` accepts sockets only, and no pipes."""
_SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"
"""Also clears the rest of a progress bar."""


class _InterruptWatcher:
    """The watching thread and its view of the command; there is one in a process."""

    def __init__(self) -> None:
        self.is_watched = False
        self._message_lock = threading.Lock()
        self._has_printed = False
        """Whether the message about the interruption was printed."""
        self.note: Callable[[], str | None] = _no_note
        """Further text of that message."""
        self.is_interactive = False
        self.line: object | None = None
        """The interactive command that is being executed."""
        self._interrupted_line: object | None = None
        self._restore: Callable[[], None] = lambda: None

    def watch(self) -> None:
        """Start watching; to be called in the main thread."""
        reading, read, writing = _open_sockets() if WAITS_FOR_SOCKETS_ONLY else _open_pipe()
        self.is_watched = True
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        sys.unraisablehook = _ignore_interrupts
        # The last action of Python before the default handler of the signal is restored.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        self._restore = _save_terminal()
        # Without the thread, Ctrl-C ends the command at the next instruction of Python.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=self._serve, args=(reading, read), daemon=True).start()

    def _serve(self, reading: int, read: Callable[[], bytes]) -> None:
        while True:
            if signal.SIGINT not in read():
                continue
            if not self.is_interactive:
                select.select([reading], [], [], GRACE_SECONDS)  # a second signal does not wait
                self.end()
            elif self.line is not None and self.line is self._interrupted_line:
                self.end()
            self._interrupted_line = self.line

    def end(self) -> None:
        """End the process; of the two threads that may call this, one prints the message."""
        ignore_interrupts()
        kill_children()
        remove_temporary_files()
        _release_shared()
        self._restore()
        text, code = self.message(), EXIT_INTERRUPTED
        if not _can_start_thread():
            text, code = (
                str(make_process_limit_error("can't start new thread").diagnostics[0]),
                EXIT_USER,
            )
        with self._message_lock:
            if not self._has_printed and sys.stderr is not None:
                self._has_printed = True
                with contextlib.suppress(OSError, ValueError):
                    os.write(sys.stderr.fileno(), f"{text}\n".encode(errors="replace"))
        os._exit(code)

    def message(self) -> str:
        """Return the message for the user."""
        note = self.note()
        return "interrupted" if note is None else f"{escape(note)}\ninterrupted"


def _can_start_thread() -> bool:
    """Return whether the system allows another thread.

    OpenBLAS, which NumPy and SciPy load, interrupts the process if it cannot start a thread.
    """
    try:
        start_new_thread(lambda: None, ())
    except RuntimeError:
        return False
    return True


def _open_pipe() -> tuple[int, Callable[[], bytes], int]:
    """Return the descriptor of signals, the function that reads them, and Python's descriptor."""
    reading, writing = os.pipe()
    if sys.platform != "win32":
        os.set_blocking(writing, False)
    return reading, lambda: os.read(reading, 64), writing


def _open_sockets() -> tuple[int, Callable[[], bytes], int]:
    """Return the same as :func:`_open_pipe`, for two sockets."""
    import socket

    reading, writing = socket.socketpair()
    writing.setblocking(False)
    return reading.fileno(), lambda: reading.recv(64), writing.detach()


def _release_shared() -> None:
    """Release memory that processes share, which Python does only when it exits."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        with contextlib.suppress(Exception):
            util._run_finalizers(0)  # priority 0: none that waits for threads


def _ignore_interrupts(error: Any) -> None:
    """Report an exception that cannot be caught; the thread handles Ctrl-C."""
    if not issubclass(error.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(error)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C from now on; do nothing outside the main thread."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: None)


def _no_note() -> None:
    """Return no further text."""


def _save_terminal() -> Callable[[], None]:
    """Return a function that restores the present modes of the terminal."""
    # Windows has no such modes; there may be no stream, or no terminal.
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


_watcher = _InterruptWatcher()


def watch_interrupts() -> None:
    """Start a thread that ends the process at Ctrl-C, even while compiled code is executed."""
    _watcher.watch()


def get_interrupt_message() -> str:
    """Return the message to print when Ctrl-C interrupts the command."""
    return _watcher.message()


def end_interrupted() -> None:
    """End the process immediately with a message if :func:`watch_interrupts` was called.

    A normal exit would take long, and could fail on an object whose creation was interrupted.
    """
    if _watcher.is_watched:
        _watcher.end()


@contextmanager
def set_interrupt_note(note: Callable[[], str | None]) -> Iterator[None]:
    """Set the note that is printed if Ctrl-C interrupts the ``with`` block."""
    before, _watcher.note = _watcher.note, note
    yield
    _watcher.note = before  # not after an exception, which may be the interruption


@contextmanager
def interactive_session() -> Iterator[None]:
    """Enter a ``with`` block in which Ctrl-C interrupts single commands, not the process."""
    _watcher.is_interactive = True
    try:
        yield
    finally:
        _watcher.is_interactive = False


@contextmanager
def interactive_command() -> Iterator[None]:
    """Enter the ``with`` block of one command; Ctrl-C ends the process only the second time."""
    _watcher.line = object()
    try:
        yield
    finally:
        _watcher.line = None
