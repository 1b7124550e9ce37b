/** A plain broker: one session, no placement; and the README's examples. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { connect } from "thicket-mqtt";

import { selfSigned } from "./support/certificates.js";
import { Node, freePort, startCluster, startMosquitto, waitUntil } from "./support/nodes.js";

const HERE = fileURLToPath(new URL(".", import.meta.url));

test("every QoS goes through in both versions", async (t) => {
  const port = await startMosquitto(t);
  if (port === undefined) {
    t.skip("Mosquitto is not installed");
    return;
  }
  for (const version of /** @type {const} */ ([4, 5])) {
    const client = await connect(`mqtt://127.0.0.1:${port}`, { version });
    assert.deepEqual([[...client.sessions.keys()], client.isPlaced], [[1], false]);
    assert.equal(await client.subscribe("a/+", 2), 2);
    for (const qos of /** @type {const} */ ([0, 1, 2])) {
      await client.publish(`a/${qos}`, Uint8Array.of(qos), { qos });
    }
    const found = [];
    for await (const { topic, payload, qos } of client) {
      found.push([topic, ...payload, qos]);
      if (found.length === 3) {
        break;
      }
    }
    assert.deepEqual(found, [0, 1, 2].map((qos) => [`a/${qos}`, qos, qos])); // prettier-ignore
    await client.unsubscribe("a/+");
    await client.close();
  }
});

test("WebSocket goes through in Node", async (t) => {
  const [node] = await startCluster(t, 1);
  const client = await connect(node?.webSocketUrl ?? "", { subscribe: { a: 1 }, maxSessions: 2 });
  await client.publish("a", "x".repeat(100_000), { qos: 2 });
  for await (const { payload } of client) {
    assert.equal(payload.length, 100_000);
    break;
  }
  await client.close();
});

test("a server that says nothing is given up", async (t) => {
  const port = await freePort();
  const server = createServer(() => {}).listen(port, "127.0.0.1");
  t.after(() => server.close());
  const opening = connect(`mqtt://127.0.0.1:${port}`, { dialTimeout: 0.1, connectTimeout: 0.5 });
  await assert.rejects(opening, /connack timeout/);
});

test("the examples of the README run", async (t) => {
  const port = (await startMosquitto(t)) ?? (await startCluster(t, 1))[0]?.ports.mqtt;
  const examples = await examplesOfReadme();
  assert.equal(examples.length, 5);
  for (const example of examples.filter((code) => !code.includes(":18840"))) {
    const stdout = await run(example.replaceAll(/localhost:188[345]/g, `127.0.0.1:${port}`));
    assert.notEqual(stdout, "", example);
  }
});

test("the example of the README is placed by the listener for placements", async (t) => {
  const ports = { mqtt: await freePort(), ws: await freePort(), http: await freePort() };
  const placement = `127.0.0.1:${await freePort()}`;
  const more = ["--placement-listen", placement, "--placement-listener", `127.0.0.1:${ports.mqtt}`];
  const node = new Node("alone", ports, [], more);
  t.after(() => node.kill());
  await waitUntil(() => node.isReady(1), "the node to be ready");
  const [example = ""] = (await examplesOfReadme()).filter((code) => code.includes(":18840"));
  const code = example.replace('localhost:1883"', `127.0.0.1:${ports.mqtt}"`).replace("localhost:18840", placement);
  assert.match(await run(code), / true\n$/);
});

test("the listener for placements is shown the certificate of the client", async (t) => {
  const ports = { mqtt: await freePort(), ws: await freePort(), http: await freePort() };
  const [secure, placement] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
  const [ofNode, ofClient, ofStranger] = [await selfSigned(t), await selfSigned(t), await selfSigned(t)];
  const files = ["--tls-certificate", ofNode.files.cert, "--tls-key", ofNode.files.key];
  const required = ["--tls-client-ca", ofClient.files.cert, "--tls-client-certificate", "required"];
  const listener = `tls://${secure}`;
  const asked = ["--listen", listener, "--placement-listen", placement, "--placement-listener", listener];
  const node = new Node("alone", ports, [], [...asked, ...files, ...required]);
  t.after(() => node.kill());
  await waitUntil(() => node.isReady(1), "the node to be ready");
  const options = { placement: [`https://${placement}`], subscribe: { a: /** @type {const} */ (1) } };
  const tls = { ca: ofNode.cert, cert: ofClient.cert, key: ofClient.key };
  const client = await connect(`mqtts://${secure}`, { ...options, tls });
  assert.equal(client.lastProblem, "");
  assert.equal(client.isPlaced, true);
  await client.close();
  // Over a listener that asks for no certificate, so that it is the control plane that refuses.
  for (const [name, shown] of Object.entries({ none: {}, another: { cert: ofStranger.cert, key: ofStranger.key } })) {
    const refused = await connect(node.url, { ...options, tls: { ca: ofNode.cert, ...shown } });
    assert.equal(refused.isPlaced, false, name);
    assert.match(refused.lastProblem, /^https:/, name);
    await refused.close();
  }
  const unknown = await connect(node.url, { ...options, tls: { ...tls, ca: ofStranger.cert } });
  assert.equal(unknown.isPlaced, false, "nobody vouches for the node");
  await unknown.close();
});

async function examplesOfReadme() {
  const readme = await readFile(`${HERE}../README.md`, "utf8");
  return [...readme.matchAll(/```js\n(.*?)```/gs)].map(([, code = ""]) => code);
}

/**
 * What a program prints that must say nothing on standard error.
 * @param {string} code
 */
async function run(code) {
  const options = { cwd: HERE, timeout: 60_000 };
  const { stdout, stderr } = await promisify(execFile)(
    process.execPath,
    ["--input-type=module", "--eval", code],
    options,
  );
  assert.equal(stderr, "", code);
  return stdout;
}
