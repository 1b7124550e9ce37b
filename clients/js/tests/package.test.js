/** What the package is made of. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { access, mkdir, mkdtemp, readFile, readdir, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const run = promisify(execFile);

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

test("the packed file is complete and works where it is installed", async (t) => {
  const project = await mkdtemp(join(tmpdir(), "thicket-"));
  t.after(() => rm(project, { recursive: true }));
  const { stdout } = await run("npm", ["pack", "--silent", "--pack-destination", project], { cwd: PACKAGE });
  const modules = join(project, "node_modules");
  const installed = join(modules, "thicket-mqtt");
  await mkdir(installed, { recursive: true });
  await run("tar", ["-xzf", join(project, stdout.trim()), "--strip-components=1", "-C", installed]);
  // Its dependencies as npm would install them beside it, without the network.
  for (const name of (await readdir(join(PACKAGE, "node_modules"))).filter((it) => !it.startsWith("."))) {
    await symlink(join(PACKAGE, "node_modules", name), join(modules, name));
  }
  /** @type {{exports: {".": {types: string, default: string}, "./browser": string}, types: string}} */
  const described = JSON.parse(await readFile(join(installed, "package.json"), "utf8"));
  const { exports, types } = described;
  const files = [types, exports["."].types, exports["."].default, exports["./browser"], "README.md", "LICENSE"];
  await Promise.all(files.map((file) => access(join(installed, file))));
  const licence = await readFile(join(PACKAGE, "../../LICENSE"), "utf8");
  assert.equal(await readFile(join(installed, "LICENSE"), "utf8"), licence);
  const code = `
    import { Message, connect } from "thicket-mqtt";
    const error = await connect("mqtt://127.0.0.1:1", { connectTimeout: 0.1 }).catch((error) => error);
    console.log(error.name, new Message("a", "text").text, import.meta.resolve("thicket-mqtt"));`;
  const printed = await run(process.execPath, ["--input-type=module", "--eval", code], { cwd: project });
  assert.match(
    printed.stdout,
    /^ConnectError text file:.*\/thicket-[^/]+\/node_modules\/thicket-mqtt\/dist\/index\.js\n$/,
  );
});
