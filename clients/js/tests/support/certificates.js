/** Certificates, made with the openssl command. */

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/**
 * A certificate for 127.0.0.1, which vouches for itself, and its key: in PEM, and the files that have them until the test ends.
 * @param {import("node:test").TestContext} test
 */
export async function selfSigned(test) {
  const folder = await mkdtemp(join(tmpdir(), "thicket-js-"));
  test.after(() => rm(folder, { recursive: true }));
  const files = { key: join(folder, "key.pem"), cert: join(folder, "cert.pem") };
  const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"];
  const whose = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"];
  const isLeaf = ["-addext", "basicConstraints=critical,CA:FALSE"];
  const where = ["-keyout", files.key, "-out", files.cert];
  await promisify(execFile)("openssl", ["req", ...kind, ...whose, ...isLeaf, ...where]);
  return { key: await readFile(files.key, "utf8"), cert: await readFile(files.cert, "utf8"), files };
}
