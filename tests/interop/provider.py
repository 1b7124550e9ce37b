"""A provider of tokens for tests: it publishes its keys as a JWK set, with a discovery document, and signs with the openssl command."""

import base64
import http.server
import json
import pathlib
import ssl
import subprocess
import tempfile
import threading

KINDS = {
    "RS256": ("RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
    "ES256": ("EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
    "EdDSA": ("ED25519",),
}


def encoded(data):
    """Base64 as tokens have it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*arguments, stdin=b""):
    done = subprocess.run(["openssl", *map(str, arguments)], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Key:
    """A key pair that signs tokens. `name`: its `kid`."""

    def __init__(self, name, algorithm="ES256"):
        self.name, self.algorithm = name, algorithm
        self.private = openssl("genpkey", "-algorithm", *KINDS[algorithm])

    def listed(self):
        """As the provider publishes it."""
        der = openssl("pkey", "-pubout", "-outform", "DER", stdin=self.private)
        common = {"kid": self.name, "use": "sig", "alg": self.algorithm}
        if self.algorithm == "RS256":
            modulus = openssl("rsa", "-noout", "-modulus", stdin=self.private).decode().strip().partition("=")[2]
            return {**common, "kty": "RSA", "n": encoded(bytes.fromhex(modulus)), "e": "AQAB"}
        if self.algorithm == "EdDSA":
            return {**common, "kty": "OKP", "crv": "Ed25519", "x": encoded(der[-32:])}
        return {**common, "kty": "EC", "crv": "P-256", "x": encoded(der[-64:-32]), "y": encoded(der[-32:])}

    def token(self, claims, name=None):
        """A signed token, under another name if one is given."""
        header = {"alg": self.algorithm, "kid": name or self.name}
        message = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        return f"{message}.{encoded(self.sign(message.encode()))}"

    def sign(self, message):
        with tempfile.TemporaryDirectory() as directory:
            key, text = pathlib.Path(directory, "key"), pathlib.Path(directory, "text")
            key.write_bytes(self.private)
            text.write_bytes(message)
            digest = () if self.algorithm == "EdDSA" else ("-digest", "sha256")
            signature = openssl("pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", text, *digest)
        return fixed(signature) if self.algorithm == "ES256" else signature


def fixed(der):
    """The two numbers of an ECDSA signature, 32 bytes each."""
    numbers, rest = [], der[2:]
    for _ in range(2):
        length = rest[1]
        numbers.append(int.from_bytes(rest[2 : 2 + length], "big").to_bytes(32, "big"))
        rest = rest[2 + length :]
    return b"".join(numbers)


class Provider(http.server.ThreadingHTTPServer):
    """Serves `/keys` and the discovery document; `certificate` and key make it https."""

    daemon_threads = True

    def __init__(self, *keys, certificate=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.keys, self.is_down, self.asked = list(keys), False, []
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.server_port}"
        self.issuer = self.url
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that does not trust the certificate hangs up."""

    def answer(self, path):
        if self.is_down:
            return None
        return {
            "/keys": {"keys": [key.listed() for key in self.keys]},
            "/.well-known/openid-configuration": {"issuer": self.issuer, "jwks_uri": f"{self.url}/keys"},
        }.get(path)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        answer = self.server.answer(self.path)
        body = json.dumps(answer).encode()
        self.send_response(503 if answer is None else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
