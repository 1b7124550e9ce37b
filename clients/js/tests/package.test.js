/** What the package is made of. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

const PERMISSIVE = [
  "0BSD",
  "Apache-2.0",
  "BSD-2-Clause",
  "BSD-3-Clause",
  "CC0-1.0",
  "ISC",
  "MIT",
  "MIT-0",
  "Unlicense",
  "Zlib",
];
const REGISTRY = "https://registry.npmjs.org/";

/** @typedef {{license?: string, resolved?: string, integrity?: string}} Locked */

test("dependencies have permissive licences, are known by their hash, and come from the public registry", async () => {
  /** @type {{packages: Record<string, Locked>}} */
  const lock = JSON.parse(await readFile(new URL("../package-lock.json", import.meta.url), "utf8"));
  const locked = Object.entries(lock.packages).filter(([path]) => path !== "");
  assert.notEqual(locked.length, 0);
  for (const [path, { license = "none", resolved = REGISTRY, integrity }] of locked) {
    assert.ok(PERMISSIVE.includes(license), `${path}: ${license}`);
    assert.ok(resolved.startsWith(REGISTRY), `${path}: ${resolved}`);
    assert.notEqual(integrity, undefined, path);
  }
});
