"""Receives the events of hooks, verifies them and stores each once: receiver.py PORT SECRET_FILE DATABASE"""

import hashlib
import hmac
import http.server
import json
import pathlib
import sqlite3
import sys
import time

# Older requests may be recorded ones that somebody sends again. The clocks of node and receiver must agree to this.
OLDEST_S = 300


def verify(secret, timestamp, signature, body, now):
    """Whether a request comes from whoever knows the secret, and is not old."""
    expected = "v1=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), signature.encode()):
        return False
    return timestamp.isdigit() and abs(now - int(timestamp)) <= OLDEST_S


def store(database, batch):
    """All events of a batch or none. An event that came before is ignored."""
    rows = [(event["id"], event["time_ms"], batch["node"], event["event"], json.dumps(event)) for event in batch["events"]]
    with database:
        database.executemany("INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?)", rows)


def main():
    port, secret_file, path = sys.argv[1:]
    secret = pathlib.Path(secret_file).read_bytes().rstrip()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, time_ms INTEGER, node TEXT, event TEXT, fields TEXT)")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            timestamp, signature = (self.headers.get(f"x-thicket-{name}", "") for name in ("timestamp", "signature"))
            if verify(secret, timestamp, signature, body, time.time()):
                store(database, json.loads(body))
                # Only now: the node forgets what was accepted.
                self.send_response(204)
            else:
                self.send_response(401)
            self.end_headers()

    http.server.HTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
