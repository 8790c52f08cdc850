"""Measures p2pfs against plain programs on the same machine in the same run.

Prints a table and writes JSON. Every figure comes from default flags, from
separate processes in separate network namespaces, and stands beside its own
baseline; a figure that misses its target is marked, and the exit code is 1.

    bench.py [--json FILE] [--only warm,cold,...] [--scale 1.0] [--pairs 7]
"""
from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import random
import sys
import threading
import time
import traceback

from lab import P2PFS, PROBE, ROOT, Etcd, Lab, Node, call, drop_caches, median, page_cache, quantile, random_file, resident, say, touch, warm

MIB, GIB = 1 << 20, 1 << 30
BLOCK = 4 * MIB
LOAD = ROOT / "bench" / "load.py"


class Table:
    """The figures, printed as they come."""

    def __init__(self) -> None:
        self.rows: list[dict] = []
        say(f"{'figure':58} {'p2pfs':>12} {'baseline':>12} {'ratio':>7}  target")

    def add(self, name: str, value: float, unit: str, *, target: str, ok: bool, baseline: float | None = None, ratio: float | None = None) -> None:
        self.rows.append({"name": name, "value": value, "unit": unit, "baseline": baseline, "ratio": ratio, "target": target, "ok": ok})
        base = f"{baseline:9.3g} {unit}" if baseline is not None else ""
        shown = f"{ratio:.3f}" if ratio is not None else ""
        say(f"{name:58} {value:7.3g} {unit:4} {base:>12} {shown:>7}  {target}{'' if ok else '   <-- MISSED'}")

    def at_least(self, name: str, value: float, baseline: float, least: float, unit: str = "GB/s") -> None:
        ratio = value / baseline
        self.add(name, value, unit, baseline=baseline, ratio=ratio, target=f">= {least}", ok=ratio >= least)

    def at_most(self, name: str, value: float, baseline: float, most: float, unit: str = "s") -> None:
        ratio = value / baseline
        self.add(name, value, unit, baseline=baseline, ratio=ratio, target=f"<= {most}", ok=ratio <= most)

    def limit(self, name: str, value: float, most: float, unit: str) -> None:
        self.add(name, value, unit, target=f"<= {most:g} {unit}", ok=value <= most)


class Bench:
    """A provider, a reader with passthrough and one without, on three hosts."""

    def __init__(self, table: Table, scale: float, pairs: int):
        self.table, self.scale, self.pairs = table, scale, pairs
        self.lab = Lab()
        for name in ("a", "b", "c", "s"):
            self.lab.host(name)
        self.store = Etcd(self.lab, "s")
        self.a = Node(self.lab, "a", "a", self.store.url)
        self.readers = {"on": Node(self.lab, "b", "b", self.store.url), "off": Node(self.lab, "c", "c", self.store.url, "--passthrough=off")}
        self.src = self.lab.dir / "src"

    def size(self, nominal: int) -> int:
        return max(64 * MIB, int(nominal * self.scale) // BLOCK * BLOCK)

    def file(self, name: str, size: int) -> pathlib.Path:
        path = self.src / name
        if not path.exists():
            random_file(path, size)
            self.a.ask("register", path, self.a.path(name))
        return path

    def drop(self, name: str) -> None:
        """Nobody has the file but its provider: readers would have it of each other."""
        for node in self.readers.values():
            node.drop(name)

    def serve(self, path: pathlib.Path, port: int) -> tuple[int, str]:
        """The plain server of a file on the provider's host; its pid and address."""
        address = f"{self.lab.hosts['a']}:{port}"
        p = self.lab.spawn("a", PROBE, "serve", address, path, log=f"serve{port}")
        time.sleep(0.5)
        return p.pid, address

    # Warm reads of a complete file.

    def warm(self) -> None:
        size = self.size(2 * GIB)
        raw = self.file("warm", size)
        readers = {
            "dd bs=4M": lambda path: size / self.lab.run("b", "dd", f"if={path}", "of=/dev/null", "bs=4M", "status=none").seconds / 1e9,
            "fio 4 KiB random by mmap": self.fio,
            "mmap walk": lambda path: size / self.lab.run("b", PROBE, "walk", path).seconds / 1e9,
        }
        for mode, node in self.readers.items():
            path = node.path("warm")
            node.ask("get", path)
            node.wait_local("warm")
            warm(raw)
            self.lab.run("b", "dd", f"if={path}", "of=/dev/null", "bs=4M", "status=none")
            for what, read in readers.items():
                got, base = [], []
                for i in range(self.pairs):
                    for which in ((base, raw), (got, path)) if i % 2 else ((got, path), (base, raw)):
                        which[0].append(read(which[1]))
                self.table.at_least(f"warm, {what}, passthrough {mode}", median(got), median(base), 0.93, "kIOPS" if "fio" in what else "GB/s")

    def fio(self, path: str | os.PathLike) -> float:
        out = self.lab.run("b", "fio", "--name=r", f"--filename={path}", "--ioengine=mmap", "--rw=randread", "--bs=4k", "--readonly", "--invalidate=0",
                           "--allow_file_create=0", "--time_based", "--runtime=2", "--output-format=json").out
        return json.loads(out[out.index("{"):])["jobs"][0]["read"]["iops"] / 1e3

    # Cold reads from one provider.

    def cold(self) -> None:
        size = self.size(4 * GIB)
        raw = self.file("cold", size)
        server, address = self.serve(raw, 7000)
        out = self.lab.dir / "copy"

        def plain() -> object:
            out.unlink(missing_ok=True)
            drop_caches()
            warm(raw)
            touch(size)
            return self.lab.run("b", PROBE, "copy", address, out, watch=(server,))

        def through(node: Node) -> object:
            self.drop("cold")
            drop_caches()
            warm(raw)
            touch(2 * size)  # the cache's file and the mount's pages
            return self.lab.run(node.host, "dd", f"if={node.path('cold')}", "of=/dev/null", "bs=4M", "status=none", watch=(self.a.pid, node.pid))

        gb = size / 1e9
        for rate, least in (("2gbit", 0.95), (None, 0.5)):
            self.lab.shape("a", rate)
            runs = {"plain": [], "on": [], "off": []}
            for i in range(1 if rate else 4):
                runs["plain"].append(plain())
                for mode in ("on", "off") if i % 2 == 0 else ("off", "on"):
                    runs[mode].append(through(self.readers[mode]))
            base = median([gb / r.seconds for r in runs["plain"]])
            for mode in self.readers:
                self.table.at_least(f"cold, {rate or 'unshaped'}, passthrough {mode}, over a plain copy", median([gb / r.seconds for r in runs[mode]]), base, least)
        out.unlink(missing_ok=True)

        copy = median([r.cpu for r in runs["plain"]]) / gb
        crc = self.lab.run("b", PROBE, "crc", "2").cpu / (2 * GIB / 1e9)
        buffered = self.buffered(gb)
        for mode in self.readers:
            self.table.at_most(f"cold, CPU, passthrough {mode}, over copy {copy:.2f} + FUSE {buffered:.2f} + sum {crc:.2f}",
                               median([r.cpu for r in runs[mode]]) / gb, copy + buffered + crc, 1.15, "s/GB")

    def buffered(self, gb: float) -> float:
        """CPU seconds per GB of a local buffered FUSE read: the file is in the page cache below, not above."""
        node = self.readers["off"]
        node.ask("get", node.path("cold"))
        node.wait_local("cold")
        runs = []
        for _ in range(3):
            drop_caches()
            for file in node.cache.rglob("*"):
                if file.is_file() and file.stat().st_size >= 64 * MIB:
                    warm(file)
            touch(int(gb * 1e9))
            runs.append(self.lab.run(node.host, "dd", f"if={node.path('cold')}", "of=/dev/null", "bs=4M", "status=none", watch=(node.pid,)).cpu)
        return median(runs) / gb

    def mapped(self) -> None:
        size = self.size(2 * GIB)
        raw = self.file("warm", size)
        for mode, node in self.readers.items():
            cat, walk = [], []
            for _ in range(3):
                for into, command in ((cat, ("dd", f"if={node.path('warm')}", "of=/dev/null", "bs=128k", "status=none")), (walk, (PROBE, "walk", node.path("warm")))):
                    self.drop("warm")
                    drop_caches()
                    warm(raw)
                    touch(2 * size)
                    into.append(self.lab.run(node.host, *command).seconds)
            self.table.at_most(f"cold, mmap walk over cat, passthrough {mode}", median(walk), median(cat), 1.3)

    def together(self) -> None:
        size = self.size(2 * GIB)
        self.file("warm", size)
        for mode, node in self.readers.items():
            self.drop("warm")
            drop_caches()
            before = node.received()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda _: self.lab.run(node.host, "dd", f"if={node.path('warm')}", "of=/dev/null", "bs=1M", "status=none"), range(8)))
            self.table.at_most(f"8 readers of one cold file, bytes received, passthrough {mode}", (node.received() - before) / 1e9, size / 1e9, 1.02, "GB")

    def headers(self) -> None:
        for i in range(30):
            random_file(self.src / "model" / f"model-{i:05d}.safetensors", 96 * MIB)
        self.a.ask("register", self.src / "model", self.a.path("model"))
        block = json.loads(self.a.ask("stat", "--json", self.a.path("model", "model-00000.safetensors")).stdout)["block_size"]
        for mode, node in self.readers.items():
            drop_caches()
            before = node.received()
            for i in range(30):
                for skip, count in ((0, 8), (8, 50_000)):
                    self.lab.run(node.host, "dd", f"if={node.path('model', f'model-{i:05d}.safetensors')}", "of=/dev/null", "iflag=skip_bytes,count_bytes",
                                 f"skip={skip}", f"count={count}", "bs=64k", "status=none")
            time.sleep(2)
            self.table.limit(f"headers of 30 files, passthrough {mode}", (node.received() - before) / block, 60, "blk")

    def checkpoint(self) -> None:
        mib = self.size(2 * GIB) // MIB
        model = self.src / "checkpoint"
        call(sys.executable, ROOT / "demo" / "checkpoint.py", "make", model, "--mib", mib, "--shards", 8)
        self.a.ask("register", model, self.a.path("checkpoint"))
        shards = sorted(model.glob("*.safetensors"))
        size = sum(p.stat().st_size for p in shards)
        for mode, node in self.readers.items():
            cat, load, received = [], [], []
            for i in range(3):
                for what in (cat, load) if i % 2 == 0 else (load, cat):
                    self.drop("checkpoint")
                    drop_caches()
                    for p in shards:
                        warm(p)
                    touch(3 * size)  # the cache's files, the mount's pages, the tensors
                    before = node.received()
                    if what is cat:
                        cat.append(self.lab.run(node.host, "sh", "-c", 'cat "$@" >/dev/null', "-", *(node.path("checkpoint", p.name) for p in shards)).seconds)
                        continue
                    load.append(self.lab.run(node.host, sys.executable, LOAD, node.path("checkpoint"), 8, i).numbers()[0])
                    received.append(node.received() - before)
            self.table.at_most(f"8 processes load a cold checkpoint, over cat, passthrough {mode}", median(load), median(cat), 1.3)
            self.table.at_most(f"the same, bytes received, passthrough {mode}", max(received) / 1e9, size / 1e9, 1.02, "GB")

    def scattered(self) -> None:
        """Reads of 4 KiB at random places of 20 cold files, by 4 readers at once."""
        for i in range(20):
            random_file(self.src / "scattered" / f"f{i:02d}", 256 * MIB)
        self.a.ask("register", self.src / "scattered", self.a.path("scattered"))
        block = json.loads(self.a.ask("stat", "--json", self.a.path("scattered", "f00")).stdout)["block_size"]
        rng = random.Random(20)
        reads = [(i, rng.randrange(256 * MIB // 4096)) for i in range(20) for _ in range(5)]
        rng.shuffle(reads)
        touched = len({(i, at * 4096 // block) for i, at in reads})
        for mode, node in self.readers.items():
            before = node.received()
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda r: self.lab.run(node.host, "dd", f"if={node.path('scattered', f'f{r[0]:02d}')}", "of=/dev/null", "bs=4096", "count=1",
                                                     f"skip={r[1]}", "status=none"), reads))
            time.sleep(2)
            self.table.at_most(f"100 reads in 20 cold files, blocks fetched over touched, passthrough {mode}", (node.received() - before) / block, touched, 2, "blk")

    def first(self) -> None:
        size = self.size(10 * GIB)
        raw = self.file("first", size)
        _, address = self.serve(raw, 7010)
        warm(raw)
        bare, got = [], {mode: [] for mode in self.readers}
        for seed in range(10):
            touch(GIB)
            bare += self.lab.run("b", PROBE, "ranges", address, size, BLOCK, 10).numbers()
            for mode, node in self.readers.items():
                got[mode] += self.lab.run(node.host, PROBE, "firsts", node.path("first"), 4096, 10, seed).numbers()
                self.drop("first")
        for mode, seconds in got.items():
            self.table.add(f"first 4 KiB of a cold file, p50, passthrough {mode}", quantile(seconds, 0.5) * 1e3, "ms", baseline=quantile(bare, 0.5) * 1e3,
                           target="<= 10 ms", ok=quantile(seconds, 0.5) <= 0.010)
            self.table.at_most(f"first 4 KiB, p99 over a bare 4 MiB GET, passthrough {mode}", quantile(seconds, 0.99) * 1e3, quantile(bare, 0.99) * 1e3, 5, "ms")

    def names(self) -> None:
        count = int(100_000 * self.scale)
        tree = self.src / "many"
        tree.mkdir(parents=True)
        names = [f"f{i:06d}" for i in range(count)]
        for i, name in enumerate(names):
            (tree / name).write_bytes(b"%d" % i)
        embedded = Node(self.lab, "a", "embedded", None, "--meta-listen", f"{self.lab.hosts['a']}:2389")
        reader = Node(self.lab, "b", "lister", embedded.status()["meta"]["url"])
        began = time.monotonic()
        embedded.ask("register", tree, embedded.path("many"))
        self.table.limit(f"register a tree of {count:,} files, embedded store", time.monotonic() - began, 30, "s")
        url = embedded.status()["meta"]["url"].removeprefix("etcd://")
        endpoint, _, prefix = url.partition("/")
        prefix = (prefix or "p2p").rstrip("/") + "/"
        counted = dict(line.rsplit(" ", 1) for line in self.lab.run("b", PROBE, "count", endpoint, prefix).out.splitlines())
        self.table.limit("records beside the names", sum(int(n) for kind, n in counted.items() if kind != "d"), 100, "")
        listings = {"ls -f": [], "ls -l": []}
        for _ in range(3):
            reader.stop()
            reader.start()
            drop_caches()
            for command, into in listings.items():
                into.append(self.lab.run("b", *command.split(), reader.path("many")).seconds)
        self.table.limit(f"ls -f of {count:,} names", median(listings["ls -f"]), 0.3, "s")
        self.table.limit(f"ls -l of {count:,} names", median(listings["ls -l"]), 3, "s")
        reader.fresh()
        stats, bare = [], []
        for seed in range(5):
            bare += self.lab.run("b", PROBE, "keys", endpoint, prefix + "d/", 200).numbers()
            stats += self.lab.run("b", PROBE, "stats", reader.path("many"), 200, seed, feed="\n".join(names)).numbers()
        self.table.at_most("cold stat, p99, over the store's bare GET", quantile(stats, 0.99) * 1e3, quantile(bare, 0.99) * 1e3, 2, "ms")
        reader.stop()
        embedded.stop()

    def sparse(self) -> None:
        path = self.src / "sparse"
        self.src.mkdir(exist_ok=True)
        with open(path, "wb") as f:
            f.truncate(2 << 40)
            f.seek(1 << 40)
            f.write(b"mark")
        began = time.monotonic()
        self.a.ask("register", path, self.a.path("sparse"))
        self.table.limit("register a sparse file of 2 TiB", time.monotonic() - began, 5, "s")
        node = self.readers["on"]
        before = node.received()
        self.lab.run("b", "dd", f"if={node.path('sparse')}", "of=/dev/null", "bs=4M", "count=256", "skip=100000", "status=none")
        self.table.limit("bytes received for 1 GiB of its zeros", (node.received() - before) / MIB, 8, "MiB")

    def memory(self) -> None:
        for i in range(64):
            random_file(self.src / "parts" / f"p{i}", 48 * MIB)
        self.a.ask("register", self.src / "parts", self.a.path("parts"))
        for mode, node in self.readers.items():
            node.fresh()
            peak, done = [0], threading.Event()

            def watch() -> None:
                while not done.wait(0.05):
                    peak[0] = max(peak[0], node.anonymous())

            watcher = threading.Thread(target=watch)
            watcher.start()
            with concurrent.futures.ThreadPoolExecutor(64) as pool:
                list(pool.map(lambda i: self.lab.run(node.host, "dd", f"if={node.path('parts', f'p{i}')}", "of=/dev/null", "bs=1M", "status=none"), range(64)))
            done.set()
            watcher.join()
            self.table.limit(f"RssAnon with 64 readers, passthrough {mode}", peak[0] / MIB, 300, "MiB")

    def once(self) -> None:
        size = self.size(2 * GIB)
        raw = self.file("warm", size)
        for mode, node in self.readers.items():
            self.drop("warm")
            drop_caches()
            before = page_cache() - resident(raw)
            self.lab.run(node.host, "dd", f"if={node.path('warm')}", "of=/dev/null", "bs=4M", "status=none")
            node.wait_local("warm")
            time.sleep(3)
            self.table.at_most(f"page cache after one cold load, passthrough {mode}", (page_cache() - resident(raw) - before) / 1e9, size / 1e9, 1.2, "GB")

    def churn(self) -> None:
        node = self.readers["on"]

        def held() -> tuple[int, int, int]:
            fds = os.listdir(f"/proc/{node.pid}/fd")
            sockets = sum(os.readlink(f"/proc/{node.pid}/fd/{fd}").startswith("socket:") for fd in fds if os.path.lexists(f"/proc/{node.pid}/fd/{fd}"))
            text = self.lab.run(node.host, sys.executable, "-c", f"import urllib.request as u; print(u.urlopen('http://{node.http}/metrics').read().decode())").out
            goroutines = next(int(float(line.split()[1])) for line in text.splitlines() if line.startswith("go_goroutines "))
            return len(fds), sockets, goroutines

        def turn() -> None:
            for i in range(16):
                self.lab.run(node.host, "dd", f"if={node.path('parts', f'p{i}')}", "of=/dev/null", "bs=1M", "status=none")
            for i in range(16):
                node.drop("parts", f"p{i}")

        if not (self.src / "parts").exists():
            for i in range(16):
                random_file(self.src / "parts" / f"p{i}", 48 * MIB)
            self.a.ask("register", self.src / "parts", self.a.path("parts"))
        turn()
        time.sleep(5)
        before = held()
        for _ in range(4):
            turn()
        time.sleep(5)
        for what, was, now in zip(("descriptors", "sockets", "goroutines"), before, held()):
            self.table.limit(f"{what} gained over a churn (from {was})", now - was, max(5, was // 10), "")


    # Writing: what is closed is published.

    def publish(self) -> None:
        embedded = Node(self.lab, "a", "publisher", None, "--meta-listen", f"{self.lab.hosts['a']}:2399")
        disk = self.lab.dir / "disk"
        disk.mkdir()
        embedded.mkdir("small")
        self.publish_big(embedded, disk)
        self.publish_small(embedded, disk)
        embedded.stop()

    def publish_small(self, node: Node, disk: pathlib.Path) -> None:
        """8 writers of small files, each close a publish, beside the same with an fsync each on the disk below."""
        writers, files = 8, max(50, int(500 * self.scale))

        def rate(into: str | os.PathLike, *sync: str) -> tuple[float, float]:
            began = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(writers) as pool:
                runs = list(pool.map(lambda i: self.lab.run("a", PROBE, "small", into, f"{len(sync)}w{i}", files, 3000, *sync).numbers(), range(writers)))
            return writers * files / (time.monotonic() - began), quantile([t for run in runs for t in run], 0.99) * 1e3

        bare, _ = rate(disk, "sync")
        got, slow = rate(node.path("small"))
        self.table.add("publishes by 8 writers, embedded store", got, "1/s", baseline=bare, ratio=got / bare, target=">= 500 1/s", ok=got >= 500)
        self.table.limit("one publish among those of 8 writers, p99", slow, 100, "ms")

    def publish_big(self, node: Node, disk: pathlib.Path) -> None:
        size, bare, got = self.size(2 * GIB), [], []
        for i in range(3):
            for into, path, sync in ((bare, disk / "big", ["sync"]), (got, pathlib.Path(node.path("small", f"big{i}")), [])):
                drop_caches()
                touch(2 * size)
                into += self.lab.run("a", PROBE, "big", path, size, *sync).numbers()
                path.unlink()
            node.ask("gc")
        self.table.at_most("write and close a file of 2 GiB, over write and fsync", median(got), median(bare), 1.3)


SECTIONS = ("warm", "cold", "mapped", "together", "headers", "checkpoint", "scattered", "first", "names", "sparse", "memory", "once", "churn", "publish")


def machine() -> dict:
    cpu = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "?")
    memory = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) >> 20
    version = call(P2PFS, "version").stdout.strip()
    return {"cpus": os.cpu_count(), "cpu": cpu, "memory_gib": memory, "kernel": platform.release(), "p2pfs": version,
            "load_at_start": os.getloadavg()[0], "taken": time.strftime("%Y-%m-%d %H:%M")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes; below 1 only to try the program itself")
    parser.add_argument("--pairs", type=int, default=7)
    args = parser.parse_args()
    random.seed(1)
    about = machine()
    say(" ".join(f"{k}={v}" for k, v in about.items()))
    table, broken, began = Table(), [], time.monotonic()
    bench = Bench(table, args.scale, args.pairs)
    try:
        for section in args.only.split(","):
            try:
                getattr(bench, section)()
            except Exception as error:  # one section that fails does not take the others along
                broken.append(section)
                traceback.print_exc()
                say(f"{section}: FAILED: {error}")
    finally:
        bench.lab.close()
    if args.json:
        args.json.parent.mkdir(exist_ok=True)
        args.json.write_text(json.dumps({"machine": about, "scale": args.scale, "failed": broken, "figures": table.rows}, indent=1) + "\n")
    missed = [row["name"] for row in table.rows if not row["ok"]]
    say(f"\n{len(table.rows)} figures in {time.monotonic() - began:.0f} s, {len(missed)} missed, {len(broken)} sections failed")
    return 1 if missed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
