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
# Seconds on two cores, of what takes longest; the order matters, not the number.
LONGEST = {
    "test_power": 200,
    "test_splitter": 120,
    "test_hostile": 100,
    "test_rolling": 90,
    "test_lab": 80,
    "test_durability": 60,
    "test_cluster": 60,
    "test_otlp": 50,
    "test_kafka": 45,
    "test_token_keys": 40,
}
# Below those that the kernel gives to connections.
FIRST_PORT, PORTS = 12_000, 4_000
TESTS = re.compile(rb"^Ran (\d+) tests?", re.MULTILINE)
# In what a verbose run prints.
SKIPPED = re.compile(rb" \.\.\. skipped (['\"])(.*)\1$", re.MULTILINE)


def run(name, ports):
    """Runs one file; whether it passed, how many tests, why some were skipped, seconds, and what it printed."""
    first = ports.get()
    environment = os.environ | {"THICKET_TEST_PORTS": f"{first}-{first + PORTS - 1}"}
    began = time.monotonic()
    command = [sys.executable, "-m", "unittest", "--verbose", name]
    done = subprocess.run(command, cwd=HERE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    ports.put(first)
    count = TESTS.search(done.stdout)
    skipped = [found[2].decode() for found in SKIPPED.finditer(done.stdout)]
    return name, done.returncode == 0, int(count[1]) if count else 0, skipped, time.monotonic() - began, done.stdout


def main():
    """Runs all, and tells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="files at the same time")
    parser.add_argument("files", nargs="*", help="such as test_wills.py; all without them")
    arguments = parser.parse_args()
    names = [pathlib.Path(file).stem for file in arguments.files] or [file.stem for file in HERE.glob("test_*.py")]
    names.sort(key=lambda name: (-LONGEST.get(name, 0), name))
    if len(names) == 1:
        # As if it were called by itself: what it prints is seen while it runs.
        return subprocess.run([sys.executable, "-m", "unittest", names[0]], cwd=HERE, check=False).returncode
    ports = queue.SimpleQueue()
    for number in range(arguments.jobs):
        ports.put(FIRST_PORT + number * PORTS)
    failed, tests, skips = [], 0, collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(run, name, ports) for name in names]):
            name, passed, count, skipped, seconds, output = future.result()
            tests += count
            skips.update((name, why) for why in skipped)
            print(f"{'ok    ' if passed else 'FAILED'} {name:<28} {count:>4} tests {seconds:>6.1f} s", flush=True)
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
