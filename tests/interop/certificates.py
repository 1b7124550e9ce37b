"""Certificates for a test case, made with the openssl command: an authority, and what it signs."""

import datetime
import pathlib
import subprocess
import tempfile

# What `openssl ca` needs to know, which alone can say at which second a certificate ends.
CONFIGURATION = """
[ca]
default_ca = authority
[authority]
database = {0}/index.txt
serial = {0}/serial
new_certs_dir = {0}
default_md = sha256
policy = names
x509_extensions = extensions
[names]
commonName = supplied
[extensions]
basicConstraints = critical,CA:FALSE
"""


class Authority:
    """An authority in a directory of its own. Use as a context manager, or call `close`."""

    def __init__(self, name="authority"):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        self.certificate, self.key = self.path / "ca.crt", self.path / "ca.key"
        extensions = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
        self.openssl("req", "-x509", *self.new_key(self.key), "-out", self.certificate, "-subj", f"/CN={name}", *extensions)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.directory.cleanup()

    @staticmethod
    def openssl(*arguments):
        done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    @staticmethod
    def new_key(path):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path, "-days", "2")

    def issue(self, name):
        """Certificate and key for `name`, good for the hosts of the tests and for clients."""
        certificate, key = self.path / f"{name}.crt", self.path / f"{name}.key"
        names = ("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE")
        signed = ("-CA", self.certificate, "-CAkey", self.key)
        self.openssl("req", "-x509", *self.new_key(key), *signed, "-out", certificate, "-subj", f"/CN={name}", *names)
        return str(certificate), str(key)

    def issue_for(self, name, seconds):
        """A client's certificate and key that are good for so many seconds."""
        certificate, key, request = (self.path / f"{name}.{ending}" for ending in ("crt", "key", "csr"))
        configuration = self.path / "ca.conf"
        configuration.write_text(CONFIGURATION.format(self.path))
        (self.path / "index.txt").touch()
        (self.path / "serial").write_text("01\n")
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        self.openssl("req", "-new", *self.new_key(key)[:-2], "-out", request, "-subj", f"/CN={name}")
        signed = ("-cert", self.certificate, "-keyfile", self.key, "-enddate", end.strftime("%y%m%d%H%M%SZ"))
        self.openssl("ca", "-batch", "-notext", "-config", configuration, *signed, "-in", request, "-out", certificate)
        return str(certificate), str(key)
