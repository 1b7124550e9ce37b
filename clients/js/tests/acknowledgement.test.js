/** Messages are acknowledged by the application: processes that are killed, and packet by packet against brokers made by hand. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";

import { connect } from "thicket-mqtt";

import { HandBroker } from "./support/hand.js";
import { placement, startCluster } from "./support/nodes.js";

/** @typedef {import("thicket-mqtt").Qos} Qos */
/** @typedef {import("./support/hand.js").HandConnection} HandConnection */

const CONSUMER = fileURLToPath(new URL("support/consumer.js", import.meta.url));
const [COUNT, KILLED_AT] = [300, 26];

/** A process that has subscribed. */
class Consumer {
  /** @type {number[]} What it has handled. */
  handled = [];
  #grown = () => {};
  #isReady = false;

  /** @param {string} url @param {Qos} qos @param {string} acknowledge */
  constructor(url, qos, acknowledge) {
    this.process = spawn(process.execPath, [CONSUMER, url, String(qos), acknowledge], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const lines = createInterface({ input: this.process.stdout });
    this.ended = once(lines, "close");
    lines.on("line", (line) => {
      if (this.#isReady) {
        this.handled.push(Number(line));
      }
      this.#isReady = true;
      this.#grown();
    });
  }

  /** @param {() => boolean} condition */
  async until(condition) {
    while (!condition()) {
      await new Promise((resolve) => (this.#grown = () => resolve(undefined)));
    }
  }

  async ready() {
    await this.until(() => this.#isReady);
    return this;
  }

  async kill() {
    this.process.kill("SIGKILL");
    await this.ended;
  }
}

/**
 * What was handled before the kill, and by the process after it until nothing comes any more.
 * @param {import("node:test").TestContext} t
 * @param {Qos} qos
 * @param {string} acknowledge
 */
async function killInTheMiddle(t, qos, acknowledge) {
  const [node] = await startCluster(t, 1);
  const url = node?.url ?? "";
  const first = await new Consumer(url, qos, acknowledge).ready();
  const publisher = await connect(url);
  const publishing = Array.from({ length: COUNT }, (_, number) => publisher.publish("work", String(number), { qos }));
  await Promise.all(publishing);
  await first.until(() => first.handled.length >= KILLED_AT);
  await first.kill();
  const second = await new Consumer(url, qos, acknowledge).ready();
  await publisher.publish("work", String(COUNT), { qos });
  await second.until(() => second.handled.includes(COUNT));
  await second.kill();
  await publisher.close();
  t.diagnostic(`QoS ${qos}, ${acknowledge}: ${first.handled.length} handled, then ${second.handled.length}`);
  return { before: first.handled, after: second.handled };
}

/** @param {number} one @param {number} other */
const ascending = (one, other) => one - other;

describe("a process that is killed", () => {
  for (const qos of /** @type {Qos[]} */ ([1, 2])) {
    test(`loses nothing at QoS ${qos}`, async (t) => {
      const { before, after } = await killInTheMiddle(t, qos, "next");
      const all = [...new Set([...before, ...after])].sort(ascending);
      assert.deepEqual(all, Array.from({ length: COUNT + 1 }, (_, number) => number)); // prettier-ignore
      assert.deepEqual(after, [...after].sort(ascending));
      const twice = before.filter((number) => after.includes(number));
      assert.ok(twice.length <= 2, "the message that it had, and one whose acknowledgement was not sent yet");
    });
  }

  test("can lose its receive queue if messages are acknowledged at arrival", async (t) => {
    const { before, after } = await killInTheMiddle(t, 1, "arrival");
    assert.deepEqual(before.filter((number) => after.includes(number)), []); // prettier-ignore
    assert.ok(before.length + after.length < COUNT + 1);
  });
});

/**
 * @param {import("node:test").TestContext} t
 * @param {import("thicket-mqtt").Options} options
 */
async function open(t, options = {}) {
  const broker = await HandBroker.start(t);
  const opening = connect(`mqtt://${broker.address}`, { clientId: "c", firstPause: 0.01, quiet: 0.05, ...options });
  const connection = await broker.next();
  connection.accept();
  const client = await opening;
  const messages = client[Symbol.asyncIterator]();
  const next = async () => /** @type {import("thicket-mqtt").Message} */ ((await messages.next()).value);
  /** @param {HandConnection} earlier */
  const reconnected = async (earlier, sessionPresent = true) => {
    earlier.close();
    const connection = await broker.next();
    connection.accept({ sessionPresent });
    await silent(connection);
    return connection;
  };
  /** The client has sent nothing: what it sends afterwards comes next. @param {HandConnection} connection */
  const silent = async (connection) => {
    await client.publish("probe");
    await connection.expect("publish");
  };
  return { broker, connection, client, next, reconnected, silent };
}

/** @param {HandConnection} connection @param {Qos} qos @param {number} messageId @param {{text?: string, dup?: boolean}} how */
function send(connection, qos, messageId, { text = String(messageId), dup = false } = {}) {
  connection.write({ cmd: "publish", topic: "t", payload: text, qos, messageId, dup, retain: false });
}

/** @param {HandConnection} connection @param {"puback" | "pubrec" | "pubcomp"} kind @param {number[]} identifiers */
async function acknowledges(connection, kind, ...identifiers) {
  for (const identifier of identifiers) {
    assert.equal((await connection.expect(kind)).messageId, identifier);
  }
}

describe("acknowledgement", () => {
  test("asking for the next message acknowledges the one before", async (t) => {
    const { connection, client, next, silent } = await open(t);
    assert.equal(connection.connect.properties?.receiveMaximum, 1024);
    send(connection, 1, 1);
    send(connection, 1, 2);
    assert.equal((await next()).text, "1");
    await silent(connection);
    assert.equal((await next()).text, "2");
    await acknowledges(connection, "puback", 1);
    await client.close();
    await connection.expect("disconnect");
  });

  test("acknowledgements leave in the order of arrival", async (t) => {
    const { connection, client, next, silent } = await open(t, { acknowledge: "manual" });
    [1, 2, 3].forEach((identifier) => send(connection, 1, identifier));
    const [one, two, three] = [await next(), await next(), await next()];
    [three, two, three].forEach((message) => message.acknowledge());
    await silent(connection);
    one.acknowledge();
    await acknowledges(connection, "puback", 1, 2, 3);
    await client.close();
  });

  test("QoS 2 is received when the application acknowledges, and delivered once", async (t) => {
    const { connection: first, client, next, reconnected, silent } = await open(t, { acknowledge: "manual" });
    send(first, 2, 1);
    const message = await next();
    await silent(first);
    const second = await reconnected(first);
    send(second, 2, 1, { dup: true });
    await silent(second);
    message.acknowledge();
    await acknowledges(second, "pubrec", 1);
    const third = await reconnected(second);
    send(third, 2, 1, { dup: true });
    await acknowledges(third, "pubrec", 1);
    third.write({ cmd: "pubrel", messageId: 1 });
    await acknowledges(third, "pubcomp", 1);
    send(third, 2, 1, { text: "new" });
    assert.equal((await next()).text, "new");
    await client.close();
  });

  test("QoS 2 that is acknowledged without a connection is received on the next", async (t) => {
    const { broker, connection, client, next } = await open(t, { acknowledge: "manual" });
    send(connection, 2, 1);
    const message = await next();
    connection.close();
    await client.waitForSessions(new Map());
    message.acknowledge();
    const again = await broker.next();
    again.accept({ sessionPresent: true });
    send(again, 2, 1, { dup: true });
    await acknowledges(again, "pubrec", 1);
    await client.close();
  });

  test("an acknowledgement for an earlier connection has no effect at QoS 1", async (t) => {
    const { connection: first, client, next, reconnected, silent } = await open(t, { acknowledge: "manual" });
    [1, 2, 3].forEach((identifier) => send(first, 1, identifier));
    const earlier = await next();
    const second = await reconnected(first);
    // The broker may use an identifier for another message after a message expired.
    send(second, 1, 1, { text: "other" });
    send(second, 1, 3, { dup: true });
    const other = await next();
    assert.equal(other.text, "other", "what is sent again is delivered once: the rest of the queue was dropped");
    earlier.acknowledge();
    await silent(second);
    other.acknowledge();
    await acknowledges(second, "puback", 1);
    assert.equal((await next()).text, "3");
    await client.close();
  });

  for (const qos of /** @type {(1 | 2)[]} */ ([1, 2])) {
    test(`a lost session leaves the queue to the application at QoS ${qos}`, async (t) => {
      const { connection: first, client, next, reconnected, silent } = await open(t);
      send(first, qos, 1);
      send(first, qos, 2);
      assert.equal((await next()).text, "1");
      const second = await reconnected(first, false);
      send(second, qos, 1, { text: "new" });
      assert.deepEqual([(await next()).text, (await next()).text], ["2", "new"]);
      await silent(second);
      void next();
      await acknowledges(second, qos === 1 ? "puback" : "pubrec", 1);
      await client.close();
    });
  }

  test("the window bounds what is not acknowledged, and publishing goes on meanwhile", async (t) => {
    const { broker, connection, client } = await open(t, { receiveQueue: 2 });
    assert.equal(connection.connect.properties?.receiveMaximum, 2);
    send(connection, 1, 1);
    send(connection, 1, 2);
    const publishing = client.publish("mine", "1", { qos: 1 });
    connection.acknowledge(await connection.expect("publish"));
    await publishing;
    send(connection, 1, 3);
    (await broker.next()).accept({ sessionPresent: true });
    assert.match(client.lastProblem, /Receive Maximum/);
    await client.close();
  });

  test("after the end nothing comes that the broker will send again", async (t) => {
    const { connection, client } = await open(t, { resume: true });
    send(connection, 1, 1);
    send(connection, 0, 0);
    const publishing = client.publish("mine", "1", { qos: 1 });
    connection.acknowledge(await connection.expect("publish"));
    await publishing;
    await client.close();
    const left = [];
    for await (const { text } of client) {
      left.push(text);
    }
    assert.deepEqual(left, ["0"]);
  });

  test("a session is not ended before its messages are acknowledged", async (t) => {
    const [here, there] = [await HandBroker.start(t), await HandBroker.start(t)];
    const opening = connect(`mqtt://${here.address}`, {
      clientId: "c", firstPause: 0.01, quiet: 0.05, acknowledge: "manual", subscribe: { a: 1, b: 1 },
    }); // prettier-ignore
    /** @param {HandConnection} connection @param {import("./support/nodes.js").Placed[]} sessions */
    const accept = (connection, sessions, sessionPresent = false) =>
      connection.accept({ sessionPresent, user: { "thicket-placement": JSON.stringify(placement(...sessions)) } });
    const connection = await here.next();
    accept(connection, [["c", here.address, [], ["a"]], ["c~2", there.address, [], ["b"]]]); // prettier-ignore
    connection.grant(await connection.expect("subscribe"), 1);
    const further = await there.next();
    further.accept();
    further.grant(await further.expect("subscribe"), 1);
    const client = await opening;
    send(further, 1, 7);
    const { value: message } = await client[Symbol.asyncIterator]().next();
    connection.close();
    const back = await here.next();
    accept(back, [["c", here.address, [], ["a", "b"]]], true);
    back.grant(await back.expect("subscribe"), 1);
    const { messageId = 0 } = await further.expect("unsubscribe");
    further.write({ cmd: "unsuback", messageId, granted: [0] });
    await further.expect("pingreq");
    further.write({ cmd: "pingresp" });
    // The other session answers after the first one was read to its end.
    await client.publish("probe");
    await back.expect("publish");
    message?.acknowledge();
    await acknowledges(further, "puback", 7);
    await further.expect("disconnect");
    await client.close();
  });
});
