"""Certificates for a test case, made with the openssl command: an authority, and what it signs."""

import pathlib
import subprocess
import tempfile


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
