"""Mosquitto's command line clients as processes."""

import collections
import queue
import subprocess
import threading

from nodes import PATIENCE_S

# One line a message: what a test wants to see of it, and a mark that sets it apart from the client's own talk.
MARK = "message:"
FORMAT = MARK + "%t|%q|%r|%p"


def run(program, *arguments, text=""):
    """Runs a client that ends by itself, with this text for its input; what it printed."""
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, f"{program} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def publish(port, topic, message, *arguments):
    """mosquitto_pub."""
    run("mosquitto_pub", "-p", port, "-t", topic, *(("-m", message) if message else ("-n",)), *arguments)


class Subscriber:
    """A mosquitto_sub that has its SUBACK. Use as a context manager. Several may share a queue of lines."""

    def __init__(self, port, *arguments, line_format=FORMAT, lines=None):
        command = ["stdbuf", "-oL", "mosquitto_sub", "-d", "-p", port, "-F", line_format, *arguments]
        self.process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines = queue.Queue() if lines is None else lines
        # Ends with the process: that closes the pipe.
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        # What a resumed session had waiting may come before the SUBACK.
        self.early = collections.deque()
        try:
            self.wait_for("Subscribed")
        except AssertionError:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def wait_for(self, start):
        """The rest of the next line that starts so; the client's own talk before it is passed over."""
        passed = []
        if start == MARK and self.early:
            return self.early.popleft()
        while True:
            try:
                line = self.lines.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"no line {start!r} among {passed}") from None
            assert line is not None, f"mosquitto_sub ended after {passed}"
            if line.startswith(start):
                return line[len(start) :]
            if line.startswith(MARK):
                self.early.append(line[len(MARK) :])
            passed.append(line)

    def take(self):
        """The next message, as topic, QoS, RETAIN and payload."""
        return tuple(self.wait_for(MARK).split("|", 3))

    def wait_for_end(self):
        """Waits until the client has left by itself (`-C`, `-W`)."""
        assert self.process.wait(PATIENCE_S) == 0
        self.reader.join(PATIENCE_S)

    def kill(self):
        """SIGKILL: the connection breaks without a DISCONNECT."""
        self.process.kill()
        self.process.wait()
        self.reader.join(PATIENCE_S)
        self.process.stdout.close()
