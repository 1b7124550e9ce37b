"""Runs the files of tests side by side, each in a process of its own: `run.py [-j N] [FILE...]`, such as `run.py test_wills.py`.

A file that fails is printed whole; of the others a line, and at the end why tests were skipped. The longest begin first. Each process
has ports of its own, so that none takes what another one was about to listen on (`free_port` in nodes.py).
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import queue
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
# What takes longest, the longest first.
LONGEST = [
    "test_placement",
    "test_otlp",
    "test_power",
    "test_kafka",
    "test_token_keys",
    "test_wills",
    "test_page",
    "test_durability",
    "test_transports",
    "test_operating",
    "test_splitter",
    "test_redirection",
    "test_lab",
]
# Below those that the kernel gives to connections.
PORTS = range(12_000, 32_000)
# Processes a core. The tests wait for three quarters of their time; with more at once some of them find nodes that stand still.
JOBS = 1
TESTS = re.compile(rb"^Ran (\d+) tests?", re.MULTILINE)
# In what a verbose run prints.
SKIPPED = re.compile(rb" \.\.\. skipped (['\"])(.*)\1$", re.MULTILINE)


def run(name, ports):
    """Runs one file; whether it passed, how many tests, why some were skipped, seconds by the clock and of CPU, and what it printed."""
    own = ports.get()
    environment = os.environ | {"THICKET_TEST_PORTS": f"{own[0]}-{own[-1]}"}
    began = time.monotonic()
    command = [sys.executable, "-m", "unittest", "--verbose", name]
    with subprocess.Popen(command, cwd=HERE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        output = process.stdout.read()
        # Its brokers count too, as far as it has waited for them.
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    ports.put(own)
    count = TESTS.search(output)
    skipped = [found[2].decode() for found in SKIPPED.finditer(output)]
    times = time.monotonic() - began, used.ru_utime + used.ru_stime
    return name, process.returncode == 0, int(count[1]) if count else 0, skipped, times, output


def main():
    """Runs all, and tells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-j", "--jobs", type=int, default=JOBS * (os.cpu_count() or 1), help="files at the same time")
    parser.add_argument("files", nargs="*", help="such as test_wills.py; all without them")
    arguments = parser.parse_args()
    names = [pathlib.Path(file).stem for file in arguments.files] or [file.stem for file in HERE.glob("test_*.py")]
    place = {name: index for index, name in enumerate(LONGEST)}
    names.sort(key=lambda name: (place.get(name, len(place)), name))
    if len(names) == 1:
        # As if it were called by itself: what it prints is seen while it runs.
        return subprocess.run([sys.executable, "-m", "unittest", names[0]], cwd=HERE, check=False).returncode
    ports = queue.SimpleQueue()
    each = len(PORTS) // arguments.jobs
    for number in range(arguments.jobs):
        ports.put(PORTS[number * each : (number + 1) * each])
    failed, tests, skips = [], 0, collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(run, name, ports) for name in names]):
            name, passed, count, skipped, (seconds, cpu_s), output = future.result()
            tests += count
            skips.update((name, why) for why in skipped)
            print(f"{'ok    ' if passed else 'FAILED'} {name:<28} {count:>4} tests {seconds:>6.1f} s, {cpu_s:.1f} s of CPU", flush=True)
            if not passed:
                failed.append(name)
                sys.stdout.buffer.write(output)
                sys.stdout.flush()
    for (name, why), count in sorted(skips.items()):
        print(f"skipped: {count} of {name}: {why}")
    print(f"{tests} tests, {skips.total()} of them skipped; files that failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
