/** Options of subscriptions, packet by packet against a broker made by hand. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { connect } from "thicket-mqtt";

import { HandBroker } from "./support/hand.js";

/** @param {import("node:test").TestContext} t */
async function oneBroker(t) {
  const first = await HandBroker.start(t);
  /** @param {import("thicket-mqtt").Options} options */
  const open = (options = {}) => connect(`mqtt://${first.address}`, { clientId: "c", firstPause: 0.01, ...options });
  return { first, open };
}

describe("subscriptions", () => {
  const all = /** @type {const} */ ({
    qos: 1, noLocal: true, retainAsPublished: true, retainHandling: "doNotSend", identifier: 300,
  }); // prettier-ignore

  test("the options of a subscription go to the broker, and new ones replace them", async (t) => {
    const { first, open } = await oneBroker(t);
    const opening = open({ subscribe: { a: all } });
    const connection = await first.next();
    connection.accept();
    let request = await connection.expect("subscribe");
    assert.deepEqual({ ...request.subscriptions[0] }, { topic: "a", qos: 1, nl: true, rap: true, rh: 2 });
    assert.equal(request.properties?.subscriptionIdentifier, 300);
    connection.grant(request, 1);
    const client = await opening;
    assert.equal(await client.subscribe("a", { ...all }), 1);
    const replacing = client.subscribe("a", { qos: 2, retainHandling: "sendIfNew" });
    request = await connection.expect("subscribe");
    assert.deepEqual({ ...request.subscriptions[0] }, { topic: "a", qos: 2, nl: false, rap: false, rh: 1 });
    assert.equal(request.properties?.subscriptionIdentifier, undefined, "nothing was sent for the same options");
    connection.grant(request, 2);
    assert.equal(await replacing, 2);
    const properties = { subscriptionIdentifier: [300, 7] };
    connection.write({ cmd: "publish", topic: "a", payload: "1", qos: 0, retain: false, dup: false, properties });
    for await (const { subscriptionIdentifiers } of client) {
      assert.deepEqual(subscriptionIdentifiers, [300, 7]);
      break;
    }
    connection.close();
    const back = await first.next();
    back.accept();
    request = await back.expect("subscribe");
    assert.equal(request.subscriptions[0]?.rh, 1, "a session that was lost is subscribed with the new options");
    await client.close();
  });

  test("of two replacements in a row the last one counts", async (t) => {
    const { first, open } = await oneBroker(t);
    const opening = open();
    const connection = await first.next();
    connection.accept();
    const client = await opening;
    const one = client.subscribe("a", 0);
    const request = await connection.expect("subscribe");
    const other = client.subscribe("a", 1);
    connection.grant(request, 0);
    connection.grant(await connection.expect("subscribe"), 1);
    assert.deepEqual(await Promise.all([one, other]), [1, 1]);
    await client.close();
  });
});
