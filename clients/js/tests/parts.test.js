/** The pure parts: topics, placements, plan, ledger, routes. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { generate } from "mqtt-packet";
import { Message } from "thicket-mqtt";

import { parseReference, parseServers } from "../dist/address.js";
import { Ledger } from "../dist/ledger.js";
import { publishSize, toProperties } from "../dist/message.js";
import { parseAnswer, requestProperties, toRequest } from "../dist/placement.js";
import { Plan } from "../dist/plan.js";
import { Routes } from "../dist/routes.js";
import { chosen } from "../dist/subscription.js";
import { checkFilter, checkTopic, matches, overlap } from "../dist/topics.js";

describe("topics", () => {
  test("overlap agrees with trying every topic", () => {
    const levels = ["a", "b", ""];
    const longer = (/** @type {string[]} */ topics) =>
      topics.flatMap((topic) => levels.map((level) => `${topic}/${level}`));
    const topics = [levels, longer(levels), longer(longer(levels))].flat().filter((topic) => topic !== "");
    const filters = ["a", "+", "#", "a/b", "a/+", "+/b", "a/#", "+/+", "b/+/a", "+/#", "a/b/+", "/", "b/#"];
    for (const one of filters) {
      for (const other of filters) {
        const expected = topics.some((topic) => matches(one, topic) && matches(other, topic));
        assert.equal(overlap(one, other), expected, `${one} ${other}`);
      }
    }
    assert.equal(overlap("$share/g/a", "a"), false);
    assert.equal(matches("#", "$SYS/a"), false);
  });

  test("topics and filters that are none are refused", () => {
    ["a", "/", "+/a/#", "#", "$share/g/a/+"].forEach(checkFilter);
    for (const bad of ["", "a/#/b", "a#", "a+", "$share/g", "$share//a", "a\0", "a".repeat(65_536)]) {
      assert.throws(() => checkFilter(bad), RangeError, bad.slice(0, 9));
    }
    for (const bad of ["", "a/+", "#"]) {
      assert.throws(() => checkTopic(bad), RangeError, bad);
    }
  });
});

describe("addresses", () => {
  test("every form of a Server Reference is read", () => {
    const cases = {
      "b.example:1884": ["b.example:1884"],
      b: ["b:7"],
      "[fd00::1]:1": ["[fd00::1]:1"],
      "fd00::1": ["[fd00::1]:7"],
      "a:1  b:2 c": ["a:1", "b:2", "c:7"],
      "a: a:0 a:65536 a:x :1 mqtt://a u@h": [],
    };
    for (const [given, expected] of Object.entries(cases)) {
      assert.deepEqual(parseReference(given, 7), expected, given);
    }
  });

  test("servers are read with their default ports", () => {
    const cases = {
      "mqtt://h": ["mqtt", "h:1883"],
      "tls://h": ["mqtts", "h:8883"],
      "ws://h": ["ws", "h:80"],
      "wss://[::1]:8084": ["wss", "[::1]:8084"],
    };
    for (const [given, [scheme, address]] of Object.entries(cases)) {
      const servers = parseServers([given]);
      assert.deepEqual([servers.scheme, servers.addresses, servers.path], [scheme, [address], "/mqtt"], given);
    }
    assert.equal(parseServers(["ws://h/broker"]).path, "/broker");
  });
});

describe("placements", () => {
  const answer = (/** @type {[string, string[]][]} */ ...sessions) =>
    JSON.stringify({ sessions: sessions.map(([client_id, subscribe]) => ({ address: "a:1", client_id, subscribe })) });

  test("an answer is checked, and filters that overlap come together", () => {
    const placed = parseAnswer(answer(["c", ["a/+"]], ["c~2", ["a/b", "d"]]), "c", 2, "mqtt");
    assert.deepEqual([placed.get(1)?.subscribe, placed.get(2)?.subscribe], [["a/+", "a/b"], ["d"]]);
    const read = parseAnswer(answer(["c", ["x"]], ["c~2", []], ["c~3", []]), "c", 1, "mqtt");
    assert.deepEqual([...read.keys()], [1, 2, 3], "sessions to be read to their end come on top");
    const bads = [
      "",
      "{}",
      "[]",
      '{"sessions": []}',
      '{"sessions": [{}]}',
      '{"sessions": [{"address": 1, "client_id": "c"}]}',
    ];
    for (const bad of [...bads, '{"sessions": [{"client_id": "c", "publish": "x"}]}']) {
      assert.throws(() => parseAnswer(bad, "c", 2, "mqtt"), RangeError, bad);
    }
    for (const name of ["d", "cc", "c~1", "c~02", "c~x", "c~"]) {
      assert.throws(() => parseAnswer(answer([name, ["x"]]), "c", 2, "mqtt"), RangeError, name);
    }
    assert.throws(() => parseAnswer(answer(["c", ["x"]], ["c", ["y"]]), "c", 2, "mqtt"), /twice/);
    const refused = JSON.stringify({ title: "refused", detail: 'subscribe[0]: the client may not use "secret"' });
    assert.throws(() => parseAnswer(refused, "c", 2, "mqtt"), /may not use "secret"/);
    const three = answer(["c", ["x"]], ["c~2", ["y"]], ["c~3", ["z"]]);
    assert.throws(() => parseAnswer(three, "c", 2, "mqtt"), /expected 1 to 2/);
  });

  test("the address is that of the client's own kind of listener", () => {
    const session = { client_id: "c", address: "a:1", tls: "a:2", ws: "a:3", wss: null, publish: ["x"] };
    const text = JSON.stringify({ sessions: [session] });
    const expected = { mqtt: "a:1", mqtts: "a:2", ws: "a:3", wss: undefined };
    for (const [scheme, address] of Object.entries(expected)) {
      const placed = parseAnswer(text, "c", 1, /** @type {import("../dist/address.js").Scheme} */ (scheme));
      assert.equal(placed.get(1)?.address, address, scheme);
    }
  });

  test("a request leaves out shared subscriptions and rates of other topics", () => {
    const rates = { x: 2.5, "$share/g/c": 1, later: 1 };
    const request = toRequest("c", ["x"], ["a/+", "$share/g/c", "b"], 4, rates);
    assert.deepEqual(request.subscribe, ["a/+", "b"]);
    assert.deepEqual(request.rates, { x: 2.5 });
  });

  test("a request says the same in user properties", () => {
    const request = { client_id: "c", publish: ["a"], subscribe: ["b", "c"], max_sessions: 3, rates: { a: 2.5 } };
    assert.deepEqual(requestProperties(request), [
      ["thicket-max-sessions", "3"],
      ["thicket-publish", "a"],
      ["thicket-subscribe", "b"],
      ["thicket-subscribe", "c"],
      ["thicket-rates", '{"a":2.5}'],
    ]);
  });
});

describe("messages", () => {
  test("the size of a PUBLISH is that of the codec", () => {
    /** @type {[string, string]} */
    const user = ["ü", "1"];
    const many = { expiry: 9, contentType: "text/plain", responseTopic: "r", correlationData: Buffer.of(1) };
    for (const length of [0, 100, 120, 127, 200, 16_370, 16_390, 2_097_150]) {
      for (const options of [{}, { qos: /** @type {const} */ (1) }, { ...many, userProperties: [user, user] }]) {
        for (const identity of [undefined, "x-1"]) {
          const message = new Message("tö/p", "x".repeat(length), options);
          const properties = toProperties(message, identity);
          const rest = { payload: Buffer.from(message.payload), retain: false, dup: false, messageId: 1 };
          const { topic, qos } = message;
          const packet = generate({ cmd: "publish", topic, qos, ...rest, properties }, { protocolVersion: 5 });
          assert.equal(publishSize(message, identity), packet.length, JSON.stringify([length, options, identity]));
        }
      }
    }
  });
});

describe("plan", () => {
  const placed = (/** @type {string[]} */ ...subscribe) => ({ address: "a:1", publish: [], subscribe });

  test("a filter stays at its old session until the new one has it", () => {
    const plan = new Plan(4);
    plan.subscribe("a", chosen("a", 1, 5));
    plan.onSubscribed(1, "a");
    assert.deepEqual(plan.apply(new Map([[1, placed()], [2, placed("a")]])), ["a"]); // prettier-ignore
    assert.deepEqual([...plan.filters(1).keys(), ...plan.filters(2).keys()], ["a", "a"]);
    assert.equal(plan.filters(2).get("a")?.isMoved, true);
    plan.onSubscribed(2, "a");
    assert.deepEqual([...plan.filters(1).keys()], []);
    plan.onUnsubscribed(1, "a");
    assert.deepEqual([plan.onDrained(1), plan.onDrained(1)], [["a"], []]);
    assert.deepEqual([plan.leaves(1), plan.leaves(2)], [false, false]);
  });

  test("a filter is unsubscribed when no session may have it", () => {
    const plan = new Plan(4);
    plan.subscribe("a", chosen("a", 2, 5));
    plan.onSubscribed(1, "a");
    plan.moveTo("a", plan.sessionAt("y:1") ?? 0);
    plan.onAsked(2, "a");
    assert.equal(plan.unsubscribe("a"), true);
    plan.onUnsubscribed(1, "a");
    assert.equal(plan.isUnsubscribed("a"), false, "the second may have it");
    plan.onRefused(2, "a");
    assert.equal(plan.isUnsubscribed("a"), true);
    plan.subscribe("a", chosen("a", 2, 5));
    plan.onSubscribed(1, "a");
    assert.equal(plan.isUnsubscribed("a"), true, "it is wanted again");
  });

  test("a session that has not answered is not relied on", () => {
    const plan = new Plan(4);
    plan.subscribe("a", chosen("a", 2, 5));
    plan.onAsked(1, "a");
    const elsewhere = new Map([[1, placed()], [2, placed("a")]]); // prettier-ignore
    assert.deepEqual(plan.apply(elsewhere), ["a"], "its messages may come over both");
    assert.equal(plan.filters(2).get("a")?.isMoved, false, "nobody was surely sent what is retained");
    plan.onSubscribed(2, "a");
    plan.onUnsubscribed(1, "a");
    assert.deepEqual(plan.onDrained(1), ["a"]);
    // On its way to the first again it comes to the second, before the first has answered its UNSUBSCRIBE.
    const back = new Map([[1, placed("a")]]);
    plan.apply(back);
    plan.onSubscribed(1, "a");
    plan.apply(elsewhere);
    plan.onAsked(1, "a");
    plan.apply(back);
    const filters = () => [[...plan.filters(1).keys()], [...plan.filters(2).keys()]];
    assert.deepEqual(filters(), [["a"], ["a"]]);
    plan.onUnsubscribed(1, "a");
    assert.deepEqual(filters(), [["a"], ["a"]], "the first does not have it");
    plan.onSubscribed(1, "a");
    assert.deepEqual(filters(), [["a"], []]);
  });

  test("a filter that the new session is refused stays", () => {
    const plan = new Plan(4);
    plan.subscribe("a", chosen("a", 1, 5));
    plan.onSubscribed(1, "a");
    plan.moveTo("a", 2);
    assert.equal(plan.onRefused(2, "a"), true);
    assert.equal(plan.home("a"), 1);
    assert.equal(plan.onRefused(1, "b"), false);
  });

  test("there are no more sessions than allowed, and one for each address", () => {
    const plan = new Plan(2);
    plan.noteAddress(1, "a:1");
    assert.deepEqual(["a:1", "b:1", "b:1", "c:1"].map((address) => plan.sessionAt(address)), [1, 2, 2, undefined]); // prettier-ignore
    plan.subscribe("x/#", chosen("x/#", 0, 5));
    plan.subscribe("x/1", chosen("x/1", 0, 5));
    assert.equal(plan.moveTo("x/1", 2), false, "a filter that overlaps another stays with it");
  });
});

describe("ledger", () => {
  const message = (/** @type {string} */ payload) => new Message("a", payload, { qos: 2 });

  test("the second of two is dropped while its filter moves, and only then", () => {
    const ledger = new Ledger();
    assert.ok(ledger.admits(1, message("x"), "i") && ledger.admits(2, message("x"), "i"));
    ledger.begin("+");
    assert.deepEqual([1, 2, 2].map((session) => ledger.admits(session, message("x"), "j")), [true, false, true]); // prettier-ignore
    assert.deepEqual([1, 1, 2, 2, 2].map((session) => ledger.admits(session, message("y"), undefined)), [true, true, false, false, true]); // prettier-ignore
    assert.ok(ledger.admits(1, new Message("b/c", "x"), "j") && ledger.admits(2, new Message("b/c", "x"), "j"));
    ledger.end("+");
    assert.ok(ledger.admits(1, message("x"), "k") && ledger.admits(2, message("x"), "k"));
  });
});

describe("routes", () => {
  test("a topic changes its session when nothing of it is under way", async () => {
    const routes = new Routes();
    routes.open(1);
    routes.open(2);
    assert.equal(await routes.enter("t"), 1);
    routes.replace(new Map([["t", 2], ["w/+", 2]])); // prettier-ignore
    let isThrough = false;
    const entering = routes.enter("t").then((session) => {
      isThrough = true;
      return session;
    });
    assert.equal(await routes.enter("w/1"), 2);
    assert.equal(isThrough, false);
    routes.leave("t");
    assert.equal(await entering, 2);
    routes.forget(2);
    routes.leave("t");
    assert.equal(await routes.enter("t"), 1);
    routes.closeAll();
    assert.equal(await routes.enter("t"), undefined);
    assert.deepEqual([...routes.learned], ["t"]);
  });
});
