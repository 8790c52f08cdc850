"""Namespaces, nodes and measurements for bench.py.

Every node is a process of its own in a network namespace of its own, joined
by veth pairs to one bridge. Nothing leaves the machine and nothing stays.
"""
from __future__ import annotations

import atexit
import contextlib
import json
import mmap
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
P2PFS = ROOT / "bin" / "p2pfs"
PROBE = ROOT / "build" / "probe"
PREFIX = f"p2b{os.getpid()}"
SUBNET = "198.18.79"
MADV_POPULATE_WRITE = 23  # since Linux 5.14; Python has no name for it


def say(text: str = "") -> None:
    print(text, flush=True)


def call(*args: object, check: bool = True, **kw: object) -> subprocess.CompletedProcess:
    return subprocess.run([str(a) for a in args], check=check, text=True, capture_output=True, stdin=kw.pop("stdin", subprocess.DEVNULL), **kw)


def drop_caches() -> None:
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def touch(size: int) -> None:
    """Writes to as much free memory as what is measured next will take. A virtual machine may have given it back to
    its host, which then backs it page by page as it is written, at several times the cost of a copy."""
    free = next(int(line.split()[1]) << 10 for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemFree:"))
    with mmap.mmap(-1, min(size + size // 4, free // 10 * 9), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        with contextlib.suppress(OSError):  # only makes it quicker
            memory.madvise(mmap.MADV_HUGEPAGE)
        memory.madvise(MADV_POPULATE_WRITE)


def median(values: list[float]) -> float:
    return statistics.median(values)


def quantile(values: list[float], q: float) -> float:
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


class Run:
    """What one command took: wall seconds, CPU seconds of it and of the daemons watched."""

    def __init__(self, seconds: float, cpu: float, out: str):
        self.seconds, self.cpu, self.out = seconds, cpu, out

    def numbers(self) -> list[float]:
        return [float(line) for line in self.out.split()]


class Lab:
    """Namespaces and all that runs in them; close() removes everything."""

    def __init__(self) -> None:
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="p2pfs-bench.", dir=os.environ.get("BENCH_DIR", "/var/tmp")))
        self.processes: list[subprocess.Popen] = []
        self.hosts: dict[str, str] = {}
        atexit.register(self.close)
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, lambda *_: sys.exit(130))
        self.switch = f"{PREFIX}sw"
        call("ip", "netns", "add", self.switch)
        call("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
        call("ip", "-n", self.switch, "link", "set", "br0", "up")

    def host(self, name: str) -> str:
        """Adds a namespace and returns its address."""
        ns, address = f"{PREFIX}{name}", f"{SUBNET}.{10 + len(self.hosts)}"
        self.hosts[name] = address
        call("ip", "netns", "add", ns)
        call("ip", "-n", self.switch, "link", "add", f"p{name}", "type", "veth", "peer", "name", "eth0", "netns", ns)
        call("ip", "-n", self.switch, "link", "set", f"p{name}", "master", "br0", "up")
        call("ip", "-n", ns, "link", "set", "lo", "up")
        call("ip", "-n", ns, "addr", "add", f"{address}/24", "dev", "eth0")
        call("ip", "-n", ns, "link", "set", "eth0", "up")
        return address

    def shape(self, name: str, rate: str | None) -> None:
        """Limits what a host sends; None lifts the limit."""
        call("tc", "-n", f"{PREFIX}{name}", "qdisc", "del", "dev", "eth0", "root", check=False)
        if rate:
            call("tc", "-n", f"{PREFIX}{name}", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "1mb", "latency", "25ms")

    def inside(self, name: str, *args: object) -> list[str]:
        # ip netns exec would give a mount namespace too, and hide the mounts.
        return ["nsenter", f"--net=/run/netns/{PREFIX}{name}", *map(str, args)]

    def spawn(self, name: str, *args: object, log: str) -> subprocess.Popen:
        with open(self.dir / f"{log}.log", "ab") as out:
            p = subprocess.Popen(self.inside(name, *args), stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
                                 env=os.environ | {"P2PFS_RUNTIME_DIR": str(self.dir / "run" / log)})
        self.processes.append(p)
        return p

    def run(self, name: str, *args: object, watch: tuple[int, ...] = (), feed: str | None = None) -> Run:
        """Runs a command to its end. CPU is its own, its children's and that of the processes watched."""
        before, began = sum(map(cpu_of, watch)), time.monotonic()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, tempfile.TemporaryFile("w+") as fed:
            fed.write(feed or "")
            fed.seek(0)
            p = subprocess.Popen(self.inside(name, *args), stdin=fed, stdout=out, stderr=err)
            _, code, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(code)
            seconds = time.monotonic() - began
            cpu = usage.ru_utime + usage.ru_stime + sum(map(cpu_of, watch)) - before
            out.seek(0)
            err.seek(0)
            if p.returncode != 0:
                raise RuntimeError(f"{args}: exit {p.returncode}: {err.read()[-2000:]}")
            return Run(seconds, cpu, out.read())

    def close(self) -> None:
        atexit.unregister(self.close)
        for p in reversed(self.processes):
            if p.poll() is None:
                p.terminate()
        for p in reversed(self.processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                p.wait(20)
            if p.poll() is None:
                p.kill()
                p.wait()
        for line in reversed(pathlib.Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{self.dir}/"):
                call("umount", "-l", line.split()[1], check=False)
        for ns in [f"{PREFIX}{name}" for name in self.hosts] + [self.switch]:
            call("ip", "netns", "del", ns, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


def cpu_of(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Node:
    """One p2pfs daemon with default flags: only addresses and places are given."""

    def __init__(self, lab: Lab, host: str, name: str, url: str | None, *flags: str):
        self.lab, self.host, self.name = lab, host, name
        self.dir = lab.dir / name
        self.cache, self.mnt = self.dir / "cache", self.dir / "mnt"
        self.mnt.mkdir(parents=True, exist_ok=True)
        address = lab.hosts[host]
        self.http = f"{address}:{9100 + len(lab.processes)}"
        self.args = [P2PFS, "mount", *([url] if url else []), self.mnt, "--cache-dir", self.cache, "--name", name,
                     "--listen", f"{address}:0", "--http", self.http, "--insecure", *flags]
        self.start()

    def start(self) -> None:
        self.process = self.lab.spawn(self.host, *self.args, log=self.name)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"node {self.name} ended: {(self.lab.dir / f'{self.name}.log').read_text()[-2000:]}")
            if os.path.ismount(self.mnt) and self.ask("status", check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError(f"node {self.name} was not ready within 60 s")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def fresh(self) -> None:
        """The same node with nothing in its cache."""
        self.stop()
        shutil.rmtree(self.cache)
        self.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, *args: object, check: bool = True) -> subprocess.CompletedProcess:
        return call(*self.lab.inside(self.host, P2PFS, *args, "--node", self.cache), check=check,
                    env=os.environ | {"P2PFS_RUNTIME_DIR": str(self.lab.dir / "run" / self.name)})

    def status(self) -> dict:
        return json.loads(self.ask("status", "--json").stdout)

    def received(self) -> int:
        return int(self.status()["counters"]["received_bytes"])

    def path(self, *names: str) -> str:
        return "/".join([str(self.mnt), *names])

    def mkdir(self, *names: str) -> None:
        os.mkdir(self.path(*names))

    def drop(self, *names: str) -> None:
        self.ask("drop", self.path(*names))

    def wait_local(self, name: str) -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            s = json.loads(self.ask("stat", self.path(name), "--json").stdout)
            if int(s["local_bytes"]) == int(s["size"]):
                return
            time.sleep(0.2)
        raise RuntimeError(f"{name} does not become complete on {self.name}")

    def anonymous(self) -> int:
        """RssAnon in bytes."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
        raise RuntimeError("no RssAnon")


class Etcd:
    """A metadata store of its own process on a host."""

    def __init__(self, lab: Lab, host: str):
        address = lab.hosts[host]
        self.endpoint = f"{address}:2379"
        self.url = f"etcd://{self.endpoint}"
        lab.spawn(host, "etcd", "--name", "bench", "--data-dir", lab.dir / "etcd", "--quota-backend-bytes", str(8 << 30),
                  "--listen-client-urls", f"http://{self.endpoint}", "--advertise-client-urls", f"http://{self.endpoint}",
                  "--listen-peer-urls", f"http://{address}:2380", "--initial-advertise-peer-urls", f"http://{address}:2380",
                  "--initial-cluster", f"bench=http://{address}:2380", log="etcd")
        deadline = time.monotonic() + 30
        while call(*lab.inside(host, "bash", "-c", f"exec 3<>/dev/tcp/{address}/2379"), check=False).returncode:
            if time.monotonic() > deadline:
                raise RuntimeError("etcd does not listen")
            time.sleep(0.1)


def random_file(path: pathlib.Path, size: int) -> pathlib.Path:
    """A file none of whose blocks is zero or equal to another; written at disk speed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unit = bytearray(os.urandom(16 << 20))
    with open(path, "wb") as f:
        done = 0
        while done < size:
            unit[:8] = done.to_bytes(8, "little")
            f.write(unit[: min(len(unit), size - done)])
            done += len(unit)
    return path


def warm(path: str | os.PathLike) -> None:
    call("vmtouch", "-qt", path)


def resident(path: str | os.PathLike) -> int:
    """Bytes of a file in the page cache."""
    for line in call("vmtouch", path).stdout.splitlines():
        if "Resident Pages" in line:
            return int(line.split(":")[1].split("/")[0]) * 4096
    raise RuntimeError("vmtouch said nothing")


def page_cache() -> int:
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Cached:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("no Cached")
