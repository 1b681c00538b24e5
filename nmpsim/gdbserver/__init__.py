"""Server of GDB's remote serial protocol for the debugger of a simulated device.

Each core is a thread: thread N of gdb is core N - 1. All cores stop and run together, in simulated
time. The modules, in reading order:

- :mod:`~nmpsim.gdbserver.packets` encodes and parses packets,
  :mod:`~nmpsim.gdbserver.connection` exchanges packets with a client.
- :mod:`~nmpsim.gdbserver.session` contains the state of a session.
- :mod:`~nmpsim.gdbserver.packet_table` lists all packets and finds the function of a packet. The
  functions are in ``queries``, ``registers``, ``memory`` and ``execution``.
- :mod:`~nmpsim.gdbserver.server` listens for clients.

The protocol is defined in https://sourceware.org/gdb/current/onlinedocs/gdb/Remote-Protocol.html.
"""
