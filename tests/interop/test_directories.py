"""Users in a database and in a directory: the examples of docs/hooks behind `auth_hook`, with a real OpenLDAP."""

import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from nodes import REPOSITORY, Node, free_port, wait_until
from wire import Kind, RawClient, publish

EXAMPLES = REPOSITORY / "docs" / "hooks"
SLAPD = shutil.which("slapd", path="/usr/sbin:/usr/bin:/usr/local/libexec")
SCHEMA = pathlib.Path("/etc/ldap/schema")
SLAPD_CONF = """
include {schema}/core.schema
include {schema}/cosine.schema
include {schema}/nis.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {directory}/slapd.pid
database mdb
suffix "dc=example"
rootdn "cn=admin,dc=example"
rootpw secret
directory {directory}/data
access to attrs=userPassword by anonymous auth by * none
access to * by users read
"""
ENTRIES = """
dn: dc=example
objectClass: dcObject
objectClass: organization
o: example
dc: example

dn: ou=people,dc=example
objectClass: organizationalUnit
ou: people

dn: uid=ada\\2c l,ou=people,dc=example
objectClass: account
objectClass: simpleSecurityObject
uid: ada, l
userPassword: right

dn: uid=eve,ou=people,dc=example
objectClass: account
objectClass: simpleSecurityObject
uid: eve
userPassword: right

dn: ou=groups,dc=example
objectClass: organizationalUnit
ou: groups

dn: cn=lamps,ou=groups,dc=example
objectClass: posixGroup
cn: lamps
gidNumber: 1000
memberUid: ada, l
description: readwrite lamps/#
description: deny lamps/tür
"""


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Directories(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_process(self, *command):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def start(self, example, *arguments):
        """The example, and a node that asks it."""
        port = free_port()
        self.run_process(sys.executable, EXAMPLES / example, str(port), *map(str, arguments))
        wait_until(lambda: listens(port), f"{example} to listen")
        hook = ["--auth-hook", f"http://127.0.0.1:{port}/", "--auth-hook-timeout-ms", "5000", "--auth-hook-cache-s", "0"]
        self.node = Node("n1", [], hook)
        self.addCleanup(self.node.log.close)
        self.addCleanup(self.node.stop)
        self.assertTrue(self.node.wait_until_ready(1), self.node.log_from(0))

    def connect(self, user, password):
        client = RawClient(self.node.port)
        self.addCleanup(client.close)
        return client, client.try_connect("c", user=user, password=password and password.encode()).reason_code

    def check(self, user, other):
        """`user` has its rules, `other` may do nothing; both have the password `right`."""
        client, code = self.connect(user, "right")
        self.assertEqual(code, 0, self.node.log_from(0))
        for topic, expected in (("lamps/1", 0x10), ("doors/1", 0x87), ("lamps/tür", 0x87)):
            client.send(publish(topic, b"on", qos=1, packet_id=1))
            self.assertEqual(client.expect(Kind.PUBACK).reason_code, expected, topic)
        client.close()
        client, code = self.connect(other, "right")
        self.assertEqual(code, 0)
        client.send(publish("lamps/1", b"on", qos=1, packet_id=1))
        self.assertEqual(client.expect(Kind.PUBACK).reason_code, 0x87)
        client.close()
        for name, password, refused in (
            (user, "wrong", 0x87),
            ("nobody", "right", 0x87),
            (f"{other})(uid=*", "right", 0x87),
            ("' OR 1=1 --", "right", 0x87),
        ):
            self.assertEqual(self.connect(name, password)[1], refused, name)

    def test_users_of_a_database_have_their_passwords_and_rules(self):
        database = self.directory / "users.sqlite"
        for name, *rules in (("ada, l", "readwrite lamps/#", "deny lamps/tür"), ("eve", "deny #")):
            command = [sys.executable, EXAMPLES / "auth_sql.py", "add", database, name, *rules]
            subprocess.run(command, input="right\n", text=True, check=True)
        self.start("auth_sql.py", database)
        self.check("ada, l", "eve")

    @unittest.skipUnless(SLAPD and shutil.which("ldapwhoami") and SCHEMA.is_dir(), "needs slapd and ldap-utils")
    def test_users_of_a_directory_bind_with_their_passwords_and_have_the_rules_of_their_groups(self):
        (self.directory / "data").mkdir()
        configuration = self.directory / "slapd.conf"
        configuration.write_text(SLAPD_CONF.format(schema=SCHEMA, directory=self.directory))
        port = free_port()
        url = f"ldap://127.0.0.1:{port}"
        self.run_process(SLAPD, "-f", configuration, "-h", url, "-d", "0")
        wait_until(lambda: listens(port), "slapd to listen")
        admin = ["-x", "-H", url, "-D", "cn=admin,dc=example", "-w", "secret"]
        subprocess.run(["ldapadd", *admin], input=ENTRIES, text=True, check=True, capture_output=True)
        self.start("auth_ldap.py", url, "ou=people,dc=example", "ou=groups,dc=example")
        self.check("ada, l", "eve")


if __name__ == "__main__":
    unittest.main()
