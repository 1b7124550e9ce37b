"""Answers `auth_hook` from a table of users in SQLite: auth_sql.py PORT DATABASE

Passwords are kept as scrypt hashes. `auth_sql.py add DATABASE USER [RULE...]` reads a password from the terminal, or from standard input,
and stores a user with rules such as "readwrite home/#" (docs/access.md); without rules the ACL of the node applies.
"""

import getpass
import hashlib
import hmac
import http.server
import json
import os
import sqlite3
import sys

TABLE = "CREATE TABLE IF NOT EXISTS users (name TEXT PRIMARY KEY, salt BLOB, hash BLOB, acl TEXT)"
# A password of a user that is not there takes as long to check.
NOBODY = (os.urandom(16), b"", None)


def hashed(password, salt):
    return hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1)


def answer(database, asked):
    """What the node is to do with a client."""
    name, password = asked.get("user_name"), asked.get("password")
    if name is None or password is None:
        return {"result": "ignore"}
    found = database.execute("SELECT salt, hash, acl FROM users WHERE name = ?", (name,)).fetchone()
    salt, expected, acl = found or NOBODY
    if not hmac.compare_digest(hashed(password, salt), expected):
        return {"result": "deny"}
    allowed = {"result": "allow"}
    return allowed | {"acl": json.loads(acl)} if acl else allowed


def add(path, name, *rules):
    for rule in rules:
        if rule.split(" ", 1)[0] not in ("read", "write", "readwrite", "deny"):
            sys.exit(f"expected a rule such as 'readwrite home/#', found {rule!r}")
    password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    salt = os.urandom(16)
    acl = json.dumps(rules) if rules else None
    with sqlite3.connect(path) as database:
        database.execute(TABLE)
        database.execute("REPLACE INTO users VALUES (?, ?, ?, ?)", (name, salt, hashed(password, salt), acl))


def serve(port, path):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            # Each thread has a connection of its own.
            with sqlite3.connect(path) as database:
                body = json.dumps(answer(database, asked)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with sqlite3.connect(path) as database:
        database.execute(TABLE)
    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    # Nobody else reads the hashes.
    os.umask(0o077)
    if sys.argv[1:2] == ["add"] and len(sys.argv) >= 4:
        add(*sys.argv[2:])
    elif len(sys.argv) == 3:
        serve(*sys.argv[1:])
    else:
        sys.exit(__doc__)
