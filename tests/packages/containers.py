"""Podman as the tests use it.

The environment: `THICKET_PODMAN` is the command with what this machine needs, such as `podman --runtime runc`; `THICKET_IMAGE` the archive
of the image, by default the newest that scripts/package has made.
"""

import os
import pathlib
import shlex
import shutil
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Open files and processes of a container: Podman asks for as many as a machine may have, which not every machine gives.
LIMITS = ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]
PODMAN = shlex.split(os.environ.get("THICKET_PODMAN", "podman"))


def archive():
    """The image in the format with a health check, or None."""
    chosen = os.environ.get("THICKET_IMAGE")
    made = sorted(REPOSITORY.glob("target/package/x86_64/*.docker.tar"))
    return pathlib.Path(chosen) if chosen else (made[-1] if made else None)


def podman(*arguments, check=True):
    """Runs it; what it printed."""
    done = subprocess.run([*PODMAN, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"podman {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr}")
    return done


def is_missing():
    """Why no container can be run here, or None."""
    if not shutil.which(PODMAN[0]):
        return f"{PODMAN[0]} is not here"
    if not archive():
        return "there is no image: scripts/package makes it"
    return refusal()


def refusal():
    """Why the runtime starts no container here, whatever is in it, or None."""
    loaded = podman("load", "--quiet", "--input", archive())
    image = loaded.stdout.split()[-1]
    done = podman("run", "--rm", "--network=host", *LIMITS, image, "--version", check=False)
    of_runtime = [line for line in done.stderr.splitlines() if line.startswith("Error: ") and "OCI" in line]
    return f"no container can be started: {of_runtime[-1]}" if of_runtime else None
