/** What the client says and does, packet by packet, against brokers made by hand. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { ConnectError, Message, OutcomeUnknown, Refused, connect } from "thicket-mqtt";

import { selfSigned } from "./support/certificates.js";
import { HandBroker } from "./support/hand.js";
import { Control, freePort, placement, problem, sleep } from "./support/nodes.js";

const [USE_ANOTHER_SERVER, SERVER_MOVED, NOT_AUTHORIZED, BAD_LOGIN] = [0x9c, 0x9d, 0x87, 0x86];
const [SESSION_TAKEN_OVER, IDENTIFIER_NOT_FOUND] = [0x8e, 0x92];

/** @param {import("node:test").TestContext} t */
async function twoBrokers(t) {
  const [first, second] = [await HandBroker.start(t), await HandBroker.start(t)];
  /** @param {import("thicket-mqtt").Options} options */
  const open = (options = {}) =>
    connect(`mqtt://${first.address}`, { clientId: "c", firstPause: 0.01, quiet: 0.05, ...options });
  return { first, second, open };
}

describe("redirection", () => {
  test("CONNACK with a Server Reference is followed and said", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open();
    const connection = await first.next();
    assert.ok(connection.says("thicket-max-sessions", "4") && connection.says("thicket-place", "1"));
    assert.ok(!connection.says("thicket-redirected", "1"));
    connection.refuse(USE_ANOTHER_SERVER, second.address);
    const there = await second.next();
    assert.ok(there.says("thicket-redirected", "1"));
    there.refuse(SERVER_MOVED, `bad@host ${first.address}`);
    const back = await first.next();
    assert.ok(back.says("thicket-redirected", "2"));
    back.accept();
    const client = await opening;
    assert.deepEqual(client.sessions, new Map([[1, first.address]]));
    await client.close();
  });

  test("a circle of redirections is left", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open();
    for (let turn = 0; turn < 5; turn += 1) {
      const [broker, other] = turn % 2 === 0 ? [first, second] : [second, first];
      (await broker.next()).refuse(USE_ANOTHER_SERVER, other.address);
    }
    const last = await first.next();
    assert.ok(!last.connect.properties?.userProperties?.["thicket-redirected"], "it begins anew");
    last.accept();
    await (await opening).close();
  });

  test("DISCONNECT with a Server Reference takes the session along", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open({ subscribe: { a: 1 } });
    const connection = await first.next();
    connection.accept();
    connection.grant(await connection.expect("subscribe"), 1);
    const client = await opening;
    const publishing = client.publish("t", "1", { qos: 1 });
    const sent = await connection.expect("publish");
    const properties = { serverReference: second.address };
    connection.write({ cmd: "disconnect", reasonCode: SERVER_MOVED, properties });
    const there = await second.next();
    assert.equal(there.connect.clean, false);
    there.accept({ sessionPresent: true });
    const again = await there.expect("publish");
    assert.deepEqual([again.messageId, again.payload, again.dup], [sent.messageId, sent.payload, true]);
    there.acknowledge(again);
    await publishing;
    const closing = client.close();
    assert.equal((await there.expect("disconnect")).properties?.sessionExpiryInterval, 0);
    there.close();
    await closing;
  });

  test("topics that nobody declared are named when the client connects again", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open();
    const connection = await first.next();
    assert.ok(!connection.says("thicket-publish", "undeclared"));
    connection.accept();
    const client = await opening;
    const publishing = client.publish("undeclared", "1", { qos: 1 });
    connection.acknowledge(await connection.expect("publish"));
    await publishing;
    const properties = { serverReference: second.address };
    connection.write({ cmd: "disconnect", reasonCode: USE_ANOTHER_SERVER, properties });
    const there = await second.next();
    assert.ok(there.says("thicket-publish", "undeclared"));
    there.accept({ sessionPresent: true });
    there.close();
    await client.close();
  });

  test("topics that the broker refuses are not named", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open();
    const connection = await first.next();
    connection.accept();
    const client = await opening;
    const publishing = client.publish("secret", "1", { qos: 1 });
    const { messageId = 0 } = await connection.expect("publish");
    connection.write({ cmd: "puback", messageId, reasonCode: NOT_AUTHORIZED });
    await assert.rejects(publishing, Refused);
    const properties = { serverReference: second.address };
    connection.write({ cmd: "disconnect", reasonCode: USE_ANOTHER_SERVER, properties });
    const there = await second.next();
    assert.ok(!there.says("thicket-publish", "secret"), "the whole request could be refused for it");
    there.accept({ sessionPresent: true });
    there.close();
    await client.close();
  });

  test("of several servers in a reference the first that answers is asked, as redirected", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open();
    (await first.next()).refuse(USE_ANOTHER_SERVER, `127.0.0.1:${await freePort()} ${second.address}`);
    const there = await second.next();
    assert.ok(there.says("thicket-redirected", "1"));
    there.accept();
    const client = await opening;
    assert.deepEqual(client.sessions, new Map([[1, second.address]]));
    there.close();
    await client.close();
  });

  test("what a control plane denies is left out, and the rest is asked for at once", async (t) => {
    const { first, open } = await twoBrokers(t);
    const control = await Control.start(t);
    control.denied = ["denied", "no", "secret"];
    control.answer = placement(["c", first.address, ["ok"], ["yes"]]);
    const opening = open({ placement: [control.url], publish: ["denied", "ok"], subscribe: { no: 1, yes: 1 } });
    const connection = await first.next();
    assert.deepEqual(
      control.requests.map(({ publish, subscribe }) => [publish, subscribe]),
      [
        [
          ["denied", "ok"],
          ["no", "yes"],
        ],
        [["ok"], ["no", "yes"]],
        [["ok"], ["yes"]],
      ],
    );
    control.requests.length = 0;
    connection.accept();
    connection.grant(await connection.expect("subscribe"), 1);
    connection.grant(await connection.expect("subscribe"), 1);
    const client = await opening;
    assert.ok(client.isPlaced && client.lastProblem.includes("denied"), client.lastProblem);
    // The broker has granted the filter, so it is named again. Nobody refuses a message of QoS 0.
    while (control.requests.length < 2) {
      await sleep(0.01);
    }
    const filters = control.requests.map(({ subscribe }) => subscribe);
    assert.deepEqual(filters, [["no", "yes"], ["yes"]]);
    control.requests.length = 0;
    await client.publish("secret", "1");
    await client.publish("open", "1");
    while (control.requests.at(-1)?.publish.join() !== "ok,open") {
      await sleep(0.01);
    }
    assert.ok(control.requests.filter(({ publish }) => publish.includes("secret")).length <= 1);
    connection.close();
    await client.close();
  });

  test("what a broker denies in CONNACK is left out, and the rest is asked for at once", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open({ publish: ["denied", "ok"], subscribe: { no: 1 } });
    let named = ["denied", "ok", "no"];
    let connection;
    // A field that names nothing is no reason to ask again.
    for (const { field, name } of [
      { field: "publish[0]", name: "denied" },
      { field: "subscribe[0]", name: "no" },
      { field: "publish[7]", name: "" },
    ]) {
      connection = await first.next();
      for (const topic of ["denied", "ok", "no"]) {
        const key = topic === "no" ? "thicket-subscribe" : "thicket-publish";
        assert.equal(connection.says(key, topic), named.includes(topic), topic);
      }
      named = named.filter((topic) => topic !== name);
      const user = { "thicket-placement": JSON.stringify(problem(field)) };
      connection.accept({ sessionPresent: field !== "publish[0]", user });
    }
    assert.ok(connection);
    connection.grant(await connection.expect("subscribe"), 1);
    const client = await opening;
    assert.ok(client.lastProblem.includes("publish[7]"), client.lastProblem);
    const properties = { serverReference: second.address };
    connection.write({ cmd: "disconnect", reasonCode: USE_ANOTHER_SERVER, properties });
    const there = await second.next();
    assert.ok(there.says("thicket-subscribe", "no"), "it was granted");
    assert.ok(!there.says("thicket-publish", "denied"));
    there.accept({ sessionPresent: true });
    there.close();
    await client.close();
  });

  test("a client that is sent elsewhere asks its control plane anew", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const control = await Control.start(t);
    const opening = open({ placement: [control.url] });
    const connection = await first.next();
    connection.accept();
    const client = await opening;
    const publishing = client.publish("undeclared", "1", { qos: 1 });
    connection.acknowledge(await connection.expect("publish"));
    await publishing;
    const properties = { serverReference: second.address };
    connection.write({ cmd: "disconnect", reasonCode: USE_ANOTHER_SERVER, properties });
    const there = await second.next();
    control.requests.length = 0;
    control.answer = placement(["c", first.address, ["undeclared"], []]);
    there.accept({ sessionPresent: true });
    const back = await first.next();
    back.accept({ sessionPresent: true });
    assert.deepEqual(control.requests[0]?.publish, ["undeclared"]);
    back.close();
    await client.close();
  });

  test("messages do not cut the pause before the next attempt short", async (t) => {
    const { first, open } = await twoBrokers(t);
    const opening = open({ firstPause: 1000, longestPause: 1000 });
    const connection = await first.next();
    connection.accept();
    const client = await opening;
    t.mock.method(Math, "random", () => 0.99);
    connection.close();
    await client.waitForSessions(new Map());
    for (let count = 0; count < 20; count += 1) {
      await client.send(new Message("t", "1", { qos: 1 }));
      await sleep(10);
    }
    assert.equal(first.waiting, 0);
    await client.close();
  });

  test("a session is left when it is silent and a ping is answered", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open({ subscribe: { a: 1, b: 1 } });
    const connection = await first.next();
    const both = placement(["c", first.address, [], ["a"]], ["c~2", second.address, [], ["b"]]);
    connection.accept({ user: { "thicket-placement": JSON.stringify(both) } });
    connection.grant(await connection.expect("subscribe"), 1);
    const there = await second.next();
    there.accept();
    there.grant(await there.expect("subscribe"), 1);
    const client = await opening;
    connection.close();
    const back = await first.next();
    const one = placement(["c", first.address, [], ["a", "b"]]);
    back.accept({ sessionPresent: true, user: { "thicket-placement": JSON.stringify(one) } });
    back.grant(await back.expect("subscribe"), 1);
    const { messageId = 0 } = await there.expect("unsubscribe");
    there.write({ cmd: "unsuback", messageId, granted: [0] });
    await there.expect("pingreq");
    const late = { topic: "b", payload: "late", qos: /** @type {const} */ (1), retain: false, dup: false };
    there.write({ cmd: "publish", ...late, messageId: 7 }, { cmd: "pingresp" });
    await there.expect("pingreq");
    there.write({ cmd: "pingresp" });
    for await (const message of client) {
      assert.equal(message.text, "late");
      message.acknowledge();
      break;
    }
    await there.expect("puback");
    assert.equal((await there.expect("disconnect")).properties?.sessionExpiryInterval, 0);
    [back, there].forEach((it) => it.close());
    await client.close();
  });

  test("a session is moved without a gap: the connection there is accepted before the one here ends", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open({ subscribe: { a: 1 } });
    const connection = await first.next();
    connection.accept();
    connection.grant(await connection.expect("subscribe"), 1, undefined);
    const client = await opening;
    // The first session asks again at its next CONNECT only; so a control plane is played by that of a lost connection.
    connection.close();
    const back = await first.next();
    const answer = placement(["c", second.address, [], ["a"]]);
    back.accept({ sessionPresent: true, user: { "thicket-placement": JSON.stringify(answer) } });
    const there = await second.next();
    const publishing = client.publish("t", "1", { qos: 1 });
    back.acknowledge(await back.expect("publish"));
    await publishing;
    there.accept({ sessionPresent: true });
    await client.waitForSessions(new Map([[1, second.address]]));
    const afterwards = client.publish("t", "2", { qos: 1 });
    there.acknowledge(await there.expect("publish"));
    await afterwards;
    there.close();
    await client.close();
  });

  test("a session goes on where it was sent although the control plane wants it back", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const control = await Control.start(t);
    control.answer = placement(["c", first.address, [], []]);
    const opening = open({ placement: [control.url] });
    const connection = await first.next();
    connection.accept();
    const client = await opening;
    control.answer = placement(["c", second.address, [], ["a"]]);
    const subscribing = [client.subscribe("a")];
    connection.grant(await connection.expect("subscribe"), 0);
    const there = await second.next();
    control.answer = placement(["c", first.address, [], ["a"]], ["c~2", first.address, [], ["b"]]);
    subscribing.push(client.subscribe("b"));
    connection.grant(await connection.expect("subscribe"), 0);
    const other = await first.next();
    assert.equal(other.connect.clientId, "c~2", "so the answer was followed");
    other.accept();
    other.grant(await other.expect("subscribe"), 0);
    connection.write({ cmd: "disconnect", reasonCode: SESSION_TAKEN_OVER });
    await connection.closed();
    there.accept({ sessionPresent: true });
    const back = await first.next();
    back.accept({ sessionPresent: true });
    await Promise.all(subscribing);
    [back, other].forEach((it) => it.close());
    await client.close();
  });
});

describe("leaving", () => {
  /** A client whose only session is wanted at the second broker, which has its CONNECT. @param {import("node:test").TestContext} t */
  async function moving(t) {
    const { first, second, open } = await twoBrokers(t);
    const opening = open();
    const here = await first.next();
    const answer = placement(["c", second.address, [], []]);
    here.accept({ user: { "thicket-placement": JSON.stringify(answer) } });
    return { client: await opening, here, there: await second.next() };
  }

  /** @param {import("./support/hand.js").HandConnection} connection */
  async function endsSession(connection) {
    assert.equal((await connection.expect("disconnect")).properties?.sessionExpiryInterval, 0);
    connection.close();
  }

  test("a session that moves when the client closes is ended where it has moved", async (t) => {
    const { client, there } = await moving(t);
    const closing = client.close();
    there.accept({ sessionPresent: true });
    await endsSession(there);
    await closing;
  });

  test("so is one whose old connection ends before the new one is accepted", async (t) => {
    const { client, here, there } = await moving(t);
    const closing = client.close();
    here.write({ cmd: "disconnect", reasonCode: SESSION_TAKEN_OVER });
    await here.closed();
    there.accept({ sessionPresent: true });
    await endsSession(there);
    await closing;
  });

  test("a session that the other broker refuses when the client closes is ended where it was", async (t) => {
    const { client, here, there } = await moving(t);
    const closing = client.close();
    there.refuse(NOT_AUTHORIZED);
    await endsSession(here);
    await closing;
  });

  test("a session that the other broker does not answer for is ended where it was", async (t) => {
    const { client, here, there } = await moving(t);
    const closing = client.close();
    await there.closed();
    await endsSession(here);
    await closing;
  });

  test("a session that is sent elsewhere when the client closes is ended there", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open();
    const here = await first.next();
    here.accept();
    const client = await opening;
    const publishing = client.publish("t", "1", { qos: 1 });
    await here.expect("publish");
    const closing = client.close();
    here.write({ cmd: "disconnect", reasonCode: SERVER_MOVED, properties: { serverReference: second.address } });
    const there = await second.next();
    there.accept({ sessionPresent: true });
    there.acknowledge(await there.expect("publish"));
    await publishing;
    await endsSession(there);
    await closing;
  });

  test("a session whose CONNECT is not answered when the client closes is ended when it is", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open();
    const here = await first.next();
    const answer = placement(["c", first.address, [], []], ["c~2", second.address, ["t"], []]);
    here.accept({ user: { "thicket-placement": JSON.stringify(answer) } });
    const client = await opening;
    const there = await second.next();
    const closing = client.close();
    await endsSession(here);
    there.accept();
    await endsSession(there);
    await closing;
  });
});

describe("exchanges", () => {
  test("a message of QoS 2 that was received is released after attempts that fail", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open();
    const connection = await first.next();
    connection.accept();
    const client = await opening;
    const publishing = client.publish("t", "1", { qos: 2 });
    const { messageId = 0 } = await connection.expect("publish");
    connection.write({ cmd: "pubrec", messageId });
    assert.equal((await connection.expect("pubrel")).messageId, messageId);
    const properties = { serverReference: second.address };
    connection.write({ cmd: "disconnect", reasonCode: USE_ANOTHER_SERVER, properties });
    (await second.next()).refuse(USE_ANOTHER_SERVER, first.address);
    (await first.next()).close();
    const back = await first.next();
    back.accept({ sessionPresent: true });
    assert.equal((await back.expect("pubrel")).messageId, messageId);
    back.write({ cmd: "pubcomp", messageId, reasonCode: IDENTIFIER_NOT_FOUND });
    await publishing;
    back.close();
    await client.close();
  });

  test("a lost session has QoS 1 published anew and QoS 2 reported", async (t) => {
    const { first, open } = await twoBrokers(t);
    const opening = open({ subscribe: { a: 1 } });
    const connection = await first.next();
    connection.accept();
    connection.grant(await connection.expect("subscribe"), 1);
    const client = await opening;
    const once = client.publish("one", "1", { qos: 1 });
    await connection.expect("publish");
    const twice = assert.rejects(client.publish("two", "2", { qos: 2 }), OutcomeUnknown);
    const { messageId = 0 } = await connection.expect("publish");
    connection.write({ cmd: "pubrec", messageId });
    await connection.expect("pubrel");
    connection.close();
    const lost = await first.next();
    lost.accept();
    lost.grant(await lost.expect("subscribe"), 1);
    const again = await lost.expect("publish");
    assert.deepEqual([again.topic, again.dup], ["one", false]);
    lost.acknowledge(again);
    await once;
    await twice;
    lost.close();
    await client.close();
  });

  test("a subscription in doubt is asked for again or ended", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open();
    const connection = await first.next();
    connection.accept();
    const client = await opening;
    const subscribing = [client.subscribe("goes", 1), client.subscribe("stays", 1)];
    await connection.expect("subscribe");
    await connection.expect("subscribe");
    connection.close();
    const back = await first.next();
    const answer = placement(["c", first.address, [], ["stays"]], ["c~2", second.address, [], ["goes"]]);
    back.accept({ sessionPresent: true, user: { "thicket-placement": JSON.stringify(answer) } });
    const request = await back.expect("subscribe");
    assert.deepEqual([request.subscriptions[0]?.topic, request.subscriptions[0]?.rh], ["stays", 1]);
    back.grant(request, 1);
    const { messageId = 0, unsubscriptions } = await back.expect("unsubscribe");
    assert.deepEqual(unsubscriptions, ["goes"]);
    back.write({ cmd: "unsuback", messageId, granted: [0] });
    const there = await second.next();
    there.accept();
    there.grant(await there.expect("subscribe"), 1);
    assert.deepEqual(await Promise.all(subscribing), [1, 1]);
    [back, there].forEach((it) => it.close());
    await client.close();
  });

  test("a message of QoS 2 is delivered once although its exchange goes over two connections", async (t) => {
    const { first, open } = await twoBrokers(t);
    const opening = open({ subscribe: { a: 2 }, acknowledge: "arrival" });
    const connection = await first.next();
    connection.accept();
    connection.grant(await connection.expect("subscribe"), 2);
    const client = await opening;
    /** @type {import("mqtt-packet").IPublishPacket} */
    const message = { cmd: "publish", topic: "a", payload: "once", qos: 2, retain: false, dup: false, messageId: 7 };
    connection.write(message);
    await connection.expect("pubrec");
    connection.close();
    const back = await first.next();
    back.accept({ sessionPresent: true });
    back.write({ ...message, dup: true });
    await back.expect("pubrec");
    back.write({ cmd: "pubrel", messageId: 7 });
    await back.expect("pubcomp");
    // The PUBCOMP may have been lost.
    back.write({ cmd: "pubrel", messageId: 7 });
    await back.expect("pubcomp");
    back.write({ ...message, payload: "last", messageId: 8 }, { cmd: "pubrel", messageId: 8 });
    const seen = [];
    for await (const { text } of client) {
      seen.push(text);
      if (text === "last") {
        break;
      }
    }
    assert.deepEqual(seen, ["once", "last"]);
    back.close();
    await client.close();
  });

  test("the properties of a message go both ways", async (t) => {
    const { first, open } = await twoBrokers(t);
    const opening = open({ will: new Message("w", "gone", { qos: 1, retain: true }) });
    const connection = await first.next();
    const { will } = connection.connect;
    assert.deepEqual([will?.topic, String(will?.payload), will?.qos, will?.retain], ["w", "gone", 1, true]);
    connection.accept();
    const client = await opening;
    const options = {
      expiry: 9,
      contentType: "text/plain",
      responseTopic: "r",
      correlationData: Uint8Array.of(1, 2),
      userProperties: /** @type {[string, string][]} */ ([
        ["k", "1"],
        ["k", "2"],
      ]),
    };
    await client.publish("t", "ü", options);
    const sent = await connection.expect("publish");
    connection.write({ ...sent, cmd: "publish", payload: sent.payload });
    for await (const message of client) {
      const { expiry, contentType, responseTopic, correlationData, userProperties } = message;
      assert.deepEqual(
        { expiry, contentType, responseTopic, correlationData: Uint8Array.from(correlationData ?? []), userProperties },
        options,
      );
      assert.deepEqual([message.text, message.isText], ["ü", true]);
      break;
    }
    connection.close();
    await client.close();
  });
});

describe("placement", () => {
  test("the placement of CONNACK is followed", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open({ publish: ["x"], subscribe: { a: 1, b: 2 }, rates: { x: 3.5 } });
    const connection = await first.next();
    for (const [name, value] of Object.entries({ publish: "x", subscribe: "b", rates: '{"x":3.5}' })) {
      assert.ok(connection.says(`thicket-${name}`, value), name);
    }
    const answer = placement(["c", first.address, [], ["a"]], ["c~2", second.address, ["x"], ["b"]]);
    connection.accept({ user: { "thicket-placement": JSON.stringify(answer) } });
    const there = await second.next();
    assert.equal(there.connect.clientId, "c~2");
    assert.ok(!there.says("thicket-max-sessions", "4"), "only the first session asks");
    there.accept();
    const request = await connection.expect("subscribe");
    assert.equal(request.subscriptions[0]?.topic, "a");
    connection.grant(request, 1);
    const other = await there.expect("subscribe");
    assert.equal(other.subscriptions[0]?.topic, "b");
    there.grant(other, 2);
    const client = await opening;
    assert.equal(client.isPlaced, true);
    const publishing = client.publish("x", "1", { qos: 1 });
    there.acknowledge(await there.expect("publish"));
    await publishing;
    [connection, there].forEach((it) => it.close());
    await client.close();
  });

  test("a better node for a filter or a topic is followed", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open({ subscribe: { a: 1, stays: 1 } });
    const connection = await first.next();
    connection.accept();
    for (let number = 0; number < 2; number += 1) {
      const request = await connection.expect("subscribe");
      connection.grant(request, 1, request.subscriptions[0]?.topic === "a" ? second.address : undefined);
    }
    const there = await second.next();
    there.accept();
    const moved = await there.expect("subscribe");
    assert.equal(moved.subscriptions[0]?.rh, 2, "nothing retained: that has come already");
    there.grant(moved, 1);
    const { messageId = 0, unsubscriptions } = await connection.expect("unsubscribe");
    assert.deepEqual(unsubscriptions, ["a"]);
    connection.write({ cmd: "unsuback", messageId, granted: [0] });
    const client = await opening;
    const here = client.publish("t", "1", { qos: 1 });
    connection.acknowledge(await connection.expect("publish"), second.address);
    await here;
    const elsewhere = client.publish("t", "2", { qos: 1 });
    there.acknowledge(await there.expect("publish"));
    await elsewhere;
    [connection, there].forEach((it) => it.close());
    await client.close();
  });

  test("a further session that is refused leaves its topics to the first", async (t) => {
    const { first, second, open } = await twoBrokers(t);
    const opening = open({ subscribe: { a: 1 } });
    const connection = await first.next();
    const answer = placement(["c", first.address, [], []], ["c~2", second.address, ["x"], ["a"]]);
    connection.accept({ user: { "thicket-placement": JSON.stringify(answer) } });
    (await second.next()).refuse(NOT_AUTHORIZED);
    connection.grant(await connection.expect("subscribe"), 1);
    const client = await opening;
    const publishing = client.publish("x", "1", { qos: 1 });
    connection.acknowledge(await connection.expect("publish"));
    await publishing;
    connection.close();
    await client.close();
  });
});

describe("credentials", () => {
  test("name and password go to the broker and to the control plane", async (t) => {
    const { first, open } = await twoBrokers(t);
    const control = await Control.start(t);
    control.answer = placement(["c", first.address, [], []]);
    const opening = open({ userName: "u", password: "pä", placement: [control.url] });
    const connection = await first.next();
    assert.deepEqual([connection.connect.username, String(connection.connect.password)], ["u", "pä"]);
    assert.deepEqual(control.authorizations, [`Basic ${Buffer.from("u:pä").toString("base64")}`]);
    assert.ok(!connection.says("thicket-max-sessions", "4"), "a control plane was asked already");
    connection.accept();
    const client = await opening;
    assert.equal(client.isPlaced, true);
    connection.close();
    await client.close();
  });

  test("TLS takes a broker whose certificate the authorities vouch for, and no other", async (t) => {
    const tls = await selfSigned(t);
    const broker = await HandBroker.start(t, tls);
    const refused = connect(`mqtts://${broker.address}`, { connectTimeout: 0.5 });
    await assert.rejects(refused, (error) => error instanceof ConnectError && /self-signed/.test(error.message));
    const opening = connect(`mqtts://${broker.address}`, { tls: { ca: tls.cert } });
    const connection = await broker.next();
    connection.accept();
    const client = await opening;
    connection.close();
    await client.close();
  });
});

describe("errors", () => {
  test("the reason code of an acknowledgement is returned", async (t) => {
    const { first, open } = await twoBrokers(t);
    const opening = open();
    const connection = await first.next();
    connection.accept();
    const client = await opening;
    for (const reasonCode of [0, 0x10]) {
      const publishing = client.publish("t", "1", { qos: 1 });
      const { messageId = 0 } = await connection.expect("publish");
      connection.write({ cmd: "puback", messageId, reasonCode });
      assert.equal(await publishing, reasonCode);
    }
    assert.equal(await client.publish("t"), 0);
    await client.close();
  });

  test("refusals are told with their code", async (t) => {
    const { first, open } = await twoBrokers(t);
    const refused = open();
    (await first.next()).refuse(BAD_LOGIN);
    await assert.rejects(refused, (error) => error instanceof Refused && error.reasonCode === BAD_LOGIN);
    const opening = open();
    const connection = await first.next();
    connection.accept();
    const client = await opening;
    const subscribing = client.subscribe("a");
    connection.grant(await connection.expect("subscribe"), NOT_AUTHORIZED);
    await assert.rejects(subscribing, Refused);
    const publishing = client.publish("a", "", { qos: 2 });
    const { messageId = 0 } = await connection.expect("publish");
    connection.write({ cmd: "pubrec", messageId, reasonCode: NOT_AUTHORIZED });
    await assert.rejects(publishing, (error) => error instanceof Refused && error.reasonCode === NOT_AUTHORIZED);
    connection.close();
    await client.close();
  });

  test("a message that the broker does not take is refused, and the connection serves on", async (t) => {
    const { first, open } = await twoBrokers(t);
    const opening = open();
    const connection = await first.next();
    connection.accept({ others: { maximumQoS: 1, retainAvailable: false, maximumPacketSize: 100 } });
    const client = await opening;
    for (const [code, payload, options] of /** @type {[number, string, import("thicket-mqtt").MessageOptions][]} */ ([
      [0x95, "x".repeat(91), { qos: 1 }],
      [0x9a, "x", { qos: 1, retain: true }],
      [0x9b, "x", { qos: 2 }],
    ])) {
      const isRefusal = (/** @type {unknown} */ error) => error instanceof Refused && error.reasonCode === code;
      await assert.rejects(client.publish("t", payload, options), isRefusal);
    }
    // 2 bytes of header, 3 of topic, 2 of identifier, 3 of properties: a text. That is 100.
    const publishing = client.publish("t", "x".repeat(90), { qos: 1 });
    connection.acknowledge(await connection.expect("publish"));
    await publishing;
    connection.close();
    await client.close();
  });

  test("wrong arguments are named", async () => {
    /** @type {Record<string, [string | string[], object]>} */
    const wrong = {
      servers: ["http://a", {}],
      "one scheme": [["mqtt://a", "mqtts://b"], {}],
      "one path": [["ws://a/x", "ws://b/y"], {}],
      maxSessions: ["mqtt://a", { maxSessions: 0 }],
      rates: ["mqtt://a", { rates: { a: -1 } }],
      receiveQueue: ["mqtt://a", { receiveQueue: 1.5 }],
      keepAlive: ["mqtt://a", { keepAlive: -1 }],
      "to 65535": ["mqtt://a", { keepAlive: 65_536 }],
      wildcards: ["mqtt://a", { will: new Message("a/+", "") }],
      quiet: ["mqtt://a", { quiet: Number.NaN }],
      resume: ["mqtt://a", { resume: true }],
      filter: ["mqtt://a", { subscribe: { "a#": 1 } }],
      qos: ["mqtt://a", { subscribe: { a: 3 } }],
      version: ["mqtt://a", { version: 3 }],
      placement: ["mqtt://a", { placement: "http" }],
      "list of URLs": ["mqtt://a", { placement: ["node-1:18830"] }],
      userName: ["mqtt://a", { username: "misspelt" }],
      'clientId: "c': ["mqtt://a", { clientId: "c".repeat(65_536) }],
      'clientId: "a': ["mqtt://a", { clientId: "a\0b" }],
      "userName:": ["mqtt://a", { userName: "u".repeat(65_536) }],
      "password: expected": ["mqtt://a", { password: "p".repeat(65_536) }],
    };
    for (const [name, [servers, options]] of Object.entries(wrong)) {
      const isNamed = (/** @type {unknown} */ error) => error instanceof RangeError && error.message.includes(name);
      await assert.rejects(connect(servers, options), isNamed, name);
    }
  });

  test("arguments of wrong types are named", async () => {
    /** @type {Record<string, [unknown, object]>} */
    const wrong = {
      "servers: number": [5, {}],
      "servers: object": [[5], {}],
      "clientId: number": ["mqtt://a", { clientId: 5 }],
      "password: object": ["mqtt://a", { password: new Uint8Array(1) }],
      "keepAlive: string": ["mqtt://a", { keepAlive: "60" }],
      "resume: string": ["mqtt://a", { resume: "yes" }],
      "will: string": ["mqtt://a", { will: "gone" }],
      "publish: string": ["mqtt://a", { publish: "topic" }],
      "subscribe: object": ["mqtt://a", { subscribe: ["a"] }],
      "rates: number": ["mqtt://a", { rates: 5 }],
      "noLocal: 1": ["mqtt://a", { subscribe: { a: { noLocal: 1 } } }],
    };
    for (const [name, [servers, options]] of Object.entries(wrong)) {
      const opening = connect(/** @type {string} */ (servers), options);
      await assert.rejects(opening, (error) => error instanceof TypeError && error.message.startsWith(name), name);
    }
    const secret = connect("mqtt://u:secret@a");
    await assert.rejects(
      secret,
      (error) => error instanceof RangeError && /userName/.test(error.message) && !/secret/.test(error.message),
    );
  });

  test("messages that no packet can hold are refused", async (t) => {
    const { first, open } = await twoBrokers(t);
    const opening = open();
    const connection = await first.next();
    connection.accept();
    const client = await opening;
    /** @type {Record<string, object>} */
    const wrong = {
      wildcards: { responseTopic: "a/#" },
      contentType: { contentType: "\0" },
      correlationData: { correlationData: new Uint8Array(65_536) },
      userProperties: { userProperties: [["k", "v".repeat(65_536)]] },
      expiry: { expiry: -1 },
      qos: { qos: 3 },
    };
    for (const [name, options] of Object.entries(wrong)) {
      const isNamed = (/** @type {unknown} */ error) => error instanceof RangeError && error.message.includes(name);
      await assert.rejects(client.publish("t", "", options), isNamed, name);
    }
    connection.close();
    await client.close();
  });

  test("where nobody listens is told", async () => {
    const port = await freePort();
    const opening = connect(`mqtt://127.0.0.1:${port}`, { connectTimeout: 0.3 });
    await assert.rejects(opening, (error) => error instanceof ConnectError && error.message.includes(String(port)));
  });
});
