"""What is asked of the kernel by a process of its own, so that the agent can say so and end: it may hold its caller up for ever.

Each is a program for Python that ends with the number of the system's error. Files of the kernel are read by the agent itself
where it has the answer at hand, which is nearly everywhere: hundreds of them are read with each look. It has to wait for a lock
where it tells how many virtual functions of a device are enabled, for as long as a driver takes that device or gives it up.
"""

from __future__ import annotations

import sys
from typing import Final

PYTHON: Final = (sys.executable, "-I", "-S", "-c")
MNT_DETACH: Final = 2
DELETE_MODULE: Final = {"x86_64": 176, "aarch64": 106}
"""The number of the system call, which the C library has no function for."""
DELETE: Final = """\
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(libc.syscall(int(sys.argv[1]), os.fsencode(sys.argv[2]), os.O_NONBLOCK) and ctypes.get_errno())
"""
UNMOUNT: Final = """\
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(libc.umount2(os.fsencode(sys.argv[1]), int(sys.argv[2])) and ctypes.get_errno())
"""
POKE: Final = """\
import os, sys
try:
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
    os.write(file, os.fsencode(sys.argv[2]))
    os.close(file)
except OSError as error:
    sys.exit(error.errno)
"""
READ: Final = """\
import sys
for path in sys.argv[1:]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            print("=", *file.read().split(), sep="")
    except OSError:
        print("=")
"""
"""Prints a line for each file: a mark, and what the file says where it can be read. All comes at the end, so nothing is lost
where the first look at it is too early.
"""
