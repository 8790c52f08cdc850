"""Does with files what it is told, a line at a time, and answers each with a
line: what it read, "ok", or the name of the errno. Descriptors and mappings
have names."""

import errno
import mmap
import os
import shlex
import signal
import sys

fds, maps, children = {}, {}, {}
FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "creat": os.O_CREAT, "trunc": os.O_TRUNC, "excl": os.O_EXCL, "append": os.O_APPEND}


def flags(words):
    value = 0
    for word in words.split("+"):
        value |= FLAGS[word]
    return value


def child(name):
    """A process that has inherited every descriptor, and ends when told to."""
    pid = os.fork()
    if pid == 0:
        signal.sigwait([signal.SIGTERM])
        os._exit(0)
    children[name] = pid


def end(name):
    os.kill(children[name], signal.SIGTERM)
    os.waitpid(children.pop(name), 0)


def read(name, off, size):
    return os.pread(fds[name], int(size), int(off)).decode("latin-1")


def poke(name, off, text):
    maps[name][int(off) : int(off) + len(text)] = text.encode()


DO = {
    "open": lambda name, path, how: fds.__setitem__(name, os.open(path, flags(how), 0o644)),
    "write": lambda name, text: os.write(fds[name], text.encode()),
    "pwrite": lambda name, off, text: os.pwrite(fds[name], text.encode(), int(off)),
    "fill": lambda name, size: os.write(fds[name], b"x" * int(size)),
    "read": read,
    "size": lambda name: str(os.fstat(fds[name]).st_size),
    "links": lambda name: str(os.fstat(fds[name]).st_nlink),
    "dup": lambda name, new: fds.__setitem__(new, os.dup(fds[name])),
    "close": lambda name: os.close(fds.pop(name)),
    "fsync": lambda name: os.fsync(fds[name]),
    "truncate": lambda name, size: os.ftruncate(fds[name], int(size)),
    "map": lambda name, fd: maps.__setitem__(name, mmap.mmap(fds[fd], 0)),
    "poke": poke,
    "unmap": lambda name: maps.pop(name).close(),
    "child": child,
    "end": end,
    "unlink": os.unlink,
    "rename": os.rename,
    "rmdir": os.rmdir,
}

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
for line in sys.stdin:
    words = shlex.split(line)
    try:
        answer = DO[words[0]](*words[1:])
        print(answer if isinstance(answer, str) else "ok", flush=True)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
