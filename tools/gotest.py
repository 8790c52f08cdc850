#!/usr/bin/env python3
"""Runs go test and prints only what one wants to read: a line for each
package (with --each also one for each test), the whole output of what failed,
and at the end go test's own closing lines and, again, what each failed test
said was wrong. A line that a test logs with "report: "
is printed whatever becomes of the test. A skipped test is a failure: what a
test needs, tools/setup.sh installs.

With --again N, up to N tests that failed run once more, each alone: a test of
real processes on a busy machine may fail by chance. One that passes then is
named at the end, with what it said the first time: its cause is still to be
found. Final at once are a data race, a panic, names or bytes that no model
explains, a test that ran out of time, a package that failed without a test; and
so is the second failure.

    tools/gotest.py [--each] [--again N] ARGUMENTS OF go test
"""
import argparse
import json
import re
import subprocess
import sys

LOG_OF_A_NODE = "--- log of node"
FINAL = re.compile(
    r"WARNING: DATA RACE|race detected during|^panic: |^fatal error: |test timed out"
    r"|no order of the operations explains|the nodes differ from what is allowed"
)


class Report:
    """Collects the events of `go test -json`."""

    def __init__(self, each: bool):
        self.each = each
        self.output: dict[tuple[str, str], list[str]] = {}
        self.failed: list[tuple[str, str]] = []
        self.skipped: list[tuple[str, str]] = []
        self.final = False  # something that another try must not hide
        self.closing: list[str] = []

    def take(self, event: dict) -> None:
        package, test = event.get("Package", event.get("ImportPath", "")), event.get("Test", "")
        action = event["Action"]
        if action in ("output", "build-output"):
            self.output.setdefault((package, test), []).append(event["Output"])
            self.final = self.final or FINAL.search(event["Output"]) is not None
            _, mark, said = event["Output"].partition(": report: ")
            if mark:
                say(f"    {test}: {said.rstrip()}")
        elif action in ("pass", "fail", "skip"):
            self.ended(package, test, action, event.get("Elapsed", 0.0))

    def ended(self, package: str, test: str, action: str, elapsed: float) -> None:
        key = (package, test)
        if test:
            if action == "fail":
                self.failed.append(key)
            elif action == "skip":
                self.skipped.append(key)
            if self.each and "/" not in test:
                say(f"    {action:4}  {test} ({elapsed:.1f}s)")
            if action == "pass":
                self.output.pop(key, None)
            return
        if action == "fail":
            self.failed.append(key)
        line = [o for o in self.output.get(key, []) if o.startswith(("ok ", "ok\t", "FAIL\t", "?"))]
        self.closing.append(line[-1].rstrip() if line else f"{'ok  ' if action == 'pass' else 'FAIL'}\t{package}\t{elapsed:.3f}s")
        if not self.each:
            say(self.closing[-1])

    def close(self, code: int) -> int:
        for key in self.failed:
            say(f"\n=== {' '.join(k for k in key if k)}")
            sys.stdout.write("".join(self.output.get(key, [])))
        if code and not self.failed:  # did not even build
            for lines in self.output.values():
                sys.stdout.write("".join(lines))
        elif self.failed:
            for (package, test), lines in self.output.items():
                if not test and package not in {p for p, _ in self.failed}:
                    build = [line for line in lines if not line.startswith(("ok", "PASS", "?"))]
                    sys.stdout.write("".join(build))
                elif test and (package, test) not in self.failed and (package, test) not in self.skipped:
                    say(f"\n=== {package} {test}, which did not end")
                    sys.stdout.write("".join(lines))
        for package, test in self.skipped:
            say(f"skipped, which counts as failed: {package} {test}")
        if self.skipped:
            code = code or 1
        if self.each or code:
            say("")
            for line in self.closing:
                say(line)
        for key in self.failed:
            for line in self.why(key):
                say(line)
        if code:
            say("FAIL")
        return code

    def chances(self, most: int) -> list[tuple[str, str]]:
        """The tests that may run once more, none if that could hide a fault."""
        tests = sorted({(package, test.split("/")[0]) for package, test in self.failed if test})
        alone = {package for package, test in self.failed if not test} - {package for package, _ in tests}
        return [] if self.final or self.skipped or alone or len(tests) > most else tests

    def why(self, key: tuple[str, str]) -> list[str]:
        """The end of what a failed test said itself, before the logs of its nodes."""
        own = []
        for line in self.output.get(key, []):
            if LOG_OF_A_NODE in line:
                break
            if line.strip() and not line.lstrip().startswith(("=== ", "--- ", "FAIL")):
                own.append(line.rstrip()[:300])
        return ["", f"why {' '.join(k for k in key if k)}:", *own[-20:]] if key[1] and own else []


def say(line: str) -> None:
    print(line, flush=True)


def run(arguments: list[str], each: bool) -> tuple[int, Report]:
    report = Report(each)
    command = ["go", "test", "-json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace", stdin=subprocess.DEVNULL) as go:
        assert go.stdout is not None
        for line in go.stdout:
            try:
                report.take(json.loads(line))
            except ValueError:
                say(line.rstrip())
        code = go.wait()
    return report.close(code), report


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--again", type=int, default=0)
    ours, rest = parser.parse_known_args(arguments)
    code, report = run(rest, ours.each)
    if not code or not (chances := report.chances(ours.again)):
        return code
    flags = [a for a in rest if not a.startswith("github.com/") and not a.startswith("./")]
    for package, test in chances:
        say(f"\n== once more, alone: {package} {test}")
        if (second := run([*flags, "-count=1", "-run", f"^{test}$", package], True)[0]) != 0:
            return second
    for package, test in chances:
        say(f"passed only when it ran once more; what failed is above: {package} {test}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
