/** The bundle and the README's page in a real Chromium, over WebSocket. Without Chromium they are skipped. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

import { TIMEOUT_MS, startCluster } from "./support/nodes.js";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const CHROMIUM = process.env.CHROMIUM ?? PLACES.find(existsSync);
const BUNDLE = "/node_modules/thicket-mqtt/dist/thicket.browser.js";

/**
 * Serves the bundle, and any page that is given.
 * @param {import("node:test").TestContext} t
 * @param {string} html
 */
async function serve(t, html) {
  const bundle = await readFile(`${PACKAGE}dist/thicket.browser.js`);
  const server = createServer(({ url }, response) => {
    const isBundle = url === BUNDLE;
    response.setHeader("content-type", isBundle ? "text/javascript" : "text/html").end(isBundle ? bundle : html);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return `http://127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (server.address()).port}/`;
}

/**
 * A page of its own browser; what it complains about fails the test.
 * @param {import("node:test").TestContext} t
 * @param {string} html
 */
async function open(t, html) {
  const browser = await chromium.launch({ executablePath: CHROMIUM ?? "", args: ["--no-sandbox"] });
  t.after(() => browser.close());
  const page = await browser.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  /** @type {string[]} */
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.goto(await serve(t, html));
  return { page, errors };
}

test("the page of the README runs", { skip: CHROMIUM === undefined && "Chromium is not installed" }, async (t) => {
  const [node] = await startCluster(t, 1);
  const readme = await readFile(`${PACKAGE}README.md`, "utf8");
  const example =
    /```html\n(.*?)```/s.exec(readme)?.[1]?.replace("ws://localhost:8083", node?.webSocketUrl ?? "") ?? "";
  const { page, errors } = await open(t, `<!doctype html><title></title>${example}`);
  await page.waitForFunction(() => document.title === "site/1/temp 21");
  assert.deepEqual(errors, []);
});

test(
  "in a page nothing of QoS 2 is lost or comes twice while nodes die, and the client is placed",
  { skip: CHROMIUM === undefined && "Chromium is not installed" },
  async (t) => {
    const nodes = await startCluster(t, 3);
    const { page, errors } = await open(t, "<!doctype html><title>test</title>");
    const count = 200;
    const running = page.evaluate(
      async ({ bundle, servers, count }) => {
        /** @type {typeof import("thicket-mqtt")} */
        const { connect } = await import(bundle);
        const refused = await connect("mqtt://localhost").catch(String);
        const options = /** @type {const} */ ({ subscribe: { "w/#": 2 } });
        const reader = await connect(servers, options);
        const writer = await connect(servers, { publish: ["w/1"] });
        /** @type {number[]} */
        const seen = [];
        const reading = (async () => {
          for await (const { text } of reader) {
            seen.push(Number(text));
            if (text === "end") {
              break;
            }
          }
        })();
        for (let number = 0; number < count; number += 1) {
          document.title = `${number} ${writer.sessions.get(1)}`;
          await writer.publish("w/1", String(number), { qos: 2 });
        }
        await writer.publish("w/1", "end", { qos: 2 });
        await reading;
        const placed = [reader.isPlaced, writer.isPlaced];
        await Promise.all([reader.close(), writer.close()]);
        return { seen: seen.slice(0, -1), placed, refused };
      },
      { bundle: BUNDLE, servers: nodes.map((node) => node.webSocketUrl), count },
    );
    await page.waitForFunction(() => Number(document.title.split(" ")[0]) >= 50);
    const [, address = ""] = (await page.title()).split(" ");
    await nodes.find((node) => node.webSocketUrl.endsWith(address))?.kill();
    const { seen, placed, refused } = await running;
    assert.match(String(refused), /RangeError: servers: mqtt: expected ws or wss/);
    assert.deepEqual(seen, [...Array(count).keys()]);
    assert.deepEqual(placed, [true, true]);
    assert.deepEqual(errors, []);
  },
);
