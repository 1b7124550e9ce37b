"""Answers `auth_hook` from a directory: auth_ldap.py PORT URL USERS_DN [GROUPS_DN]

A client may connect if it can bind as `uid=USER_NAME,USERS_DN` with its password. It uses the commands of OpenLDAP (package `ldap-utils`).
With GROUPS_DN, the `description` values of the groups that have the user as `memberUid` are its rules, such as "readwrite home/#"
(docs/access.md); without any it may do nothing. Without GROUPS_DN the ACL of the node applies.
"""

import base64
import http.server
import json
import os
import subprocess
import sys
import tempfile

# LDAP's answer to a wrong password, or to a name that is not there.
INVALID_CREDENTIALS = 49
# What must not stand for itself in a name, and in a filter.
SPECIAL_IN_NAMES, SPECIAL_IN_FILTERS = ',+"\\<>;=# ', "*()\\"


def escaped(value, special):
    """A value with each special character as its code (RFC 4514 2.4 for names, RFC 4515 3 for filters)."""
    return "".join("".join(f"\\{byte:02x}" for byte in char.encode()) if char in special or char < " " else char for char in value)


def ask(command, password):
    """Runs a command that reads the password from a file that nobody else can read: other processes see arguments."""
    with tempfile.NamedTemporaryFile("w", prefix="bind-") as file:
        file.write(password)
        file.flush()
        return subprocess.run([*command, "-y", file.name], capture_output=True, text=True, timeout=5, check=False)


def answer(asked, url, users_dn, groups_dn=None):
    """What the node is to do with a client; `None`: nobody can say now."""
    name, password = asked.get("user_name"), asked.get("password")
    # A bind with an empty password is anonymous, and succeeds (RFC 4513 5.1.2).
    if not name or not password:
        return {"result": "ignore"}
    user = f"uid={escaped(name, SPECIAL_IN_NAMES)},{users_dn}"
    bind = ["-x", "-o", "nettimeout=2", "-H", url, "-D", user]
    bound = ask(["ldapwhoami", *bind], password)
    if bound.returncode == INVALID_CREDENTIALS:
        return {"result": "deny"}
    if bound.returncode != 0:
        return None
    if groups_dn is None:
        return {"result": "allow"}
    groups = f"(&(objectClass=posixGroup)(memberUid={escaped(name, SPECIAL_IN_FILTERS)}))"
    found = ask(["ldapsearch", *bind, "-LLL", "-o", "ldif-wrap=no", "-b", groups_dn, groups, "description"], password)
    if found.returncode != 0:
        return None
    values = [line.split(":", 1)[1] for line in found.stdout.splitlines() if line.startswith("description:")]
    # A value beyond ASCII stands in base64 behind a second colon (RFC 2849).
    rules = [base64.b64decode(it[1:]).decode() if it.startswith(":") else it.removeprefix(" ") for it in values]
    return {"result": "allow", "acl": rules}


def main():
    if not 4 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    port, *directory = sys.argv[1:]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            answered = answer(json.loads(self.rfile.read(int(self.headers["content-length"]))), *directory)
            body = json.dumps(answered).encode()
            # `auth_hook_on_failure` decides about clients while the directory does not answer.
            self.send_response(503 if answered is None else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    os.umask(0o077)
    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
