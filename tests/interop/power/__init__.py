"""A disk that loses what was not synced when the power goes; a node on it is run with `synced.c` preloaded."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).with_name("synced.c")
BLOCK = 4096
# Longest time a sync takes, by chance: more nodes die in the middle of one.
DELAY_US = 2000


def build(directory):
    """Compiles what is preloaded; skips the test where there is no compiler."""
    library = pathlib.Path(directory) / "synced.so"
    compiler = shutil.which("cc")
    if compiler is None:
        raise unittest.SkipTest("no C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-pthread"], check=True)
    return library


class Disk:
    """A directory, and beside it what was synced of it.

    What of the rest is there after a loss of power is up to chance, block by block and directory by directory: a file
    system writes what it likes when it likes. In half of all cases it is nothing.
    """

    def __init__(self, library, chance):
        self.library, self.chance = library, chance
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="thicket-power-"))
        self.root = self.home / "disk"
        self.synced = self.home / "synced"
        self.root.mkdir()
        self.settle()

    def environment(self):
        """What a node is started with."""
        return {
            "LD_PRELOAD": str(self.library),
            "POWER_ROOT": str(self.root),
            "POWER_SYNCED": str(self.synced),
            "POWER_DELAY_US": str(DELAY_US),
            # The library writes beside the data directory, as the node itself.
            "THICKET_SANDBOX": "off",
        }

    def remove(self):
        shutil.rmtree(self.home, ignore_errors=True)

    def settle(self):
        """All that is there is on the disk."""
        shutil.rmtree(self.synced, ignore_errors=True)
        (self.synced / "files").mkdir(parents=True)
        (self.synced / "names").mkdir()
        for path, directories, files in os.walk(self.root):
            here = pathlib.Path(path)
            names = [(here / name, "d") for name in directories] + [(here / name, "f") for name in files]
            lines = [f"{entry.lstat().st_ino} {kind} {entry.name}\n" for entry, kind in names]
            (self.synced / "names" / str(here.stat().st_ino)).write_text("".join(lines))
            for entry, kind in names:
                if kind == "f":
                    write_sparse(self.synced / "files" / str(entry.stat().st_ino), entry.read_bytes())

    def lose_power(self):
        """Drops what was not synced; the nodes on the disk are dead. Returns how many files lost something."""
        found = {path.lstat().st_ino: path for path in self.root.rglob("*")}
        after = self.home / "after"
        losses = self.rebuild(self.root.stat().st_ino, self.root, after, found)
        shutil.rmtree(self.root)
        after.rename(self.root)
        self.settle()
        return losses

    def rebuild(self, number, before, after, found):
        """Makes the directory with inode `number` as it is after the loss; `before`: where it was, if it is still there."""
        after.mkdir()
        listing = self.synced / "names" / str(number)
        entries = [line.split(" ", 2) for line in listing.read_text().splitlines()] if listing.exists() else []
        if before is not None and self.chance.random() < 0.3:
            # The file system was quicker than it had to be.
            entries = [(path.lstat().st_ino, "d" if path.is_dir() else "f", path.name) for path in before.iterdir()]
        losses = 0
        for inode, kind, name in entries:
            path = found.get(int(inode))
            if kind == "d":
                losses += self.rebuild(int(inode), path, after / name, found)
            else:
                losses += self.rebuild_file(inode, path, after / name)
        return losses

    def rebuild_file(self, inode, before, after):
        copy = self.synced / "files" / str(inode)
        synced = copy.read_bytes() if copy.exists() else b""
        written = before.read_bytes() if before is not None else synced
        if written == synced:
            write_sparse(after, synced)
            return 0
        kept = self.chance.choice((0.0, 0.0, 0.5, 1.0))
        size = len(written) if self.chance.random() < kept else len(synced)
        write_sparse(after, mixed(synced.ljust(size, b"\0")[:size], written.ljust(size, b"\0")[:size], self.chance, kept))
        return int(kept < 1.0)

    def unsynced(self):
        """Something that is there and was not synced; None after a stop in order."""
        for path, directories, files in os.walk(self.root):
            here = pathlib.Path(path)
            listing = self.synced / "names" / str(here.stat().st_ino)
            if not listing.exists():
                return f"{here} was never synced"
            names = {line.split(" ", 2)[2] for line in listing.read_text().splitlines()}
            if missing := set(directories + files) - names:
                return f"{missing} in {here}"
            for name in files:
                copy = self.synced / "files" / str((here / name).stat().st_ino)
                content = (here / name).read_bytes()
                if content and (not copy.exists() or copy.read_bytes() != content):
                    return f"the content of {here / name}"
        return None


def mixed(synced, written, chance, kept):
    """Of each block that differs the written version with this probability, otherwise the synced one."""
    out = bytearray(synced)
    for at in range(0, len(out), 64 * BLOCK):
        if synced[at : at + 64 * BLOCK] == written[at : at + 64 * BLOCK]:
            continue
        for block in range(at, min(at + 64 * BLOCK, len(out)), BLOCK):
            if chance.random() < kept:
                out[block : block + BLOCK] = written[block : block + BLOCK]
    return bytes(out)


def write_sparse(path, content):
    """Writes a file; what is zero takes no room."""
    with path.open("wb") as file:
        for at in range(0, len(content), 16 * BLOCK):
            part = content[at : at + 16 * BLOCK]
            if part.strip(b"\0"):
                file.seek(at)
                file.write(part)
        file.truncate(len(content))
