/** Against nodes that are processes of their own, that die, and that are drained. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { ClosedError, TakenOver, connect } from "thicket-mqtt";

import { Counting, publishAll } from "./support/counting.js";
import { Control, freePort, placement, sleep, startCluster, waitUntil } from "./support/nodes.js";

/** @typedef {import("thicket-mqtt").Qos} Qos */

/** How long messages flow after the first clients were placed anew. */
const SECONDS = Number(process.env.THICKET_TEST_SECONDS ?? 3);

/** @param {import("./support/nodes.js").Node[]} nodes */
const urls = (nodes) => nodes.map((node) => node.url);

/**
 * @param {readonly string[]} topics
 * @param {Qos} qos
 */
const all = (topics, qos) => Object.fromEntries(topics.map((topic) => [topic, qos]));

/** @param {import("node:test").TestContext} test @param {number} size */
async function cluster(test, size) {
  const nodes = await startCluster(test, size);
  return { nodes, at: nodes.map((node) => node.address) };
}

describe("cluster", () => {
  for (const qos of /** @type {Qos[]} */ ([1, 2])) {
    test(`nodes that die lose nothing at QoS ${qos}${qos === 2 ? ", and repeat nothing" : ""}`, async (t) => {
      const { nodes, at } = await cluster(t, 4);
      const [first = "", second = "", third = ""] = at;
      const topics = ["d/0", "d/1", "d/2"];
      const [reads, writes] = [await Control.start(t), await Control.start(t)];
      reads.answer = placement(["reader", first, [], ["d/0"]], ["reader~2", second, [], ["d/1", "d/2"]]);
      writes.answer = placement(["writer", third, ["d/0", "d/2"], []], ["writer~2", second, ["d/1"], []]);
      const reader = await connect(urls(nodes), {
        clientId: "reader",
        placement: [reads.url],
        subscribe: all(topics, qos),
      });
      const writer = await connect(urls(nodes), { clientId: "writer", placement: [writes.url], publish: topics });
      const counting = new Counting(reader);
      await publishAll(writer, topics, qos, 300, (number) => {
        if (number === 60 || number === 180) {
          void nodes[number === 60 ? 1 : 2]?.kill();
        }
      });
      await counting.waitFor(900);
      t.diagnostic(`QoS ${qos}: ${counting.seen.size} messages, ${counting.twice.length} came twice`);
      assert.deepEqual(counting.outOfOrder, []);
      if (qos === 2) {
        assert.deepEqual(counting.twice, []);
      }
      await Promise.all([reader.close(), writer.close()]);
    });
  }

  test("a node that is drained sends its clients elsewhere; nothing is lost, nothing comes twice at QoS 2", async (t) => {
    const { nodes, at } = await cluster(t, 3);
    const options = { placement: null, subscribe: all(["t"], 2) };
    const reader = await connect(nodes[0]?.url ?? "", { ...options, clientId: "reader" });
    const writer = await connect(nodes[0]?.url ?? "", { placement: null, clientId: "writer" });
    const counting = new Counting(reader);
    let count = 0;
    const drained = nodes[0]?.drain();
    const isElsewhere = () => [reader, writer].every((client) => ![undefined, at[0]].includes(client.sessions.get(1)));
    while (!isElsewhere() || count < 300) {
      await writer.publish("t", String(count), { qos: 2 });
      count += 1;
    }
    await drained;
    await counting.waitFor(count);
    assert.deepEqual([counting.twice, counting.outOfOrder], [[], []]);
    await Promise.all([reader.close(), writer.close()]);
  });

  test("subscriptions that move lose nothing and at QoS 2 repeat nothing", async (t) => {
    const { nodes, at } = await cluster(t, 3);
    const [first = "", second = "", third = ""] = at;
    const topics = ["m/0", "m/1", "m/2", "m/3"];
    const layouts = [
      placement(["mover", first, [], ["m/0", "m/1"]], ["mover~2", second, [], ["m/2", "m/3"]]),
      placement(
        ["mover", first, [], ["m/2"]],
        ["mover~2", second, [], ["m/0"]],
        ["mover~3", third, [], ["m/1", "m/3"]],
      ),
      placement(["mover", third, [], ["m/0", "m/1", "m/2"]], ["mover~2", first, [], ["m/3"]]),
      placement(["mover", second, [], topics]),
    ];
    const control = await Control.start(t);
    control.answer = placement(["mover", first, [], topics]);
    const options = { clientId: "mover", placement: [control.url], subscribe: all(topics, 2), quiet: 0.05 };
    const mover = await connect(urls(nodes), options);
    const publisher = await connect(urls(nodes), { clientId: "publisher" });
    const counting = new Counting(mover);
    let isMoving = true;
    const moving = (async () => {
      for (let number = 0; number < 8; number += 1) {
        control.answer = layouts[number % layouts.length];
        // A filter that comes or goes has the control plane asked again.
        await mover.subscribe(`extra/${number}`);
        await sleep(300);
      }
      isMoving = false;
    })();
    let count = 0;
    while (isMoving) {
      await Promise.all(topics.map((topic) => publisher.publish(topic, String(count), { qos: 2 })));
      count += 1;
    }
    await moving;
    await counting.waitFor(count * topics.length);
    await mover.waitForSessions(new Map([[1, second]]));
    t.diagnostic(`${counting.seen.size} messages, 8 layouts, ${control.requests.length} requests`);
    assert.deepEqual(counting.twice, []);
    await Promise.all([mover.close(), publisher.close()]);
  });

  for (const [qos, kills] of /** @type {[Qos, boolean][]} */ ([
    [1, false],
    [2, false],
    [1, true],
    [2, true],
  ])) {
    const name = `clients placed anew lose nothing at QoS ${qos}${qos === 2 ? ", and repeat nothing" : ""}`;
    test(kills ? `${name}, when a node dies meanwhile` : name, async (t) => {
      const nodes = await startCluster(t, 3, ["--rebalance", "on", "--rebalance-rest-s", "2"]);
      const topics = Array.from({ length: 9 }, (_, number) => `anew/${number}`);
      // Each is placed for a topic that nobody else has, and asks no more by itself.
      /** @param {string} clientId */
      const open = (clientId) => connect(urls(nodes), { clientId, publish: [`start/${clientId}`], quiet: 0.1 });
      const writers = await Promise.all(topics.map((_, number) => open(`writer-${number}`)));
      const readers = await Promise.all([0, 1, 2, 3, 4, 5].map((number) => open(`reader-${number}`)));
      /** @param {number} number */
      const wanted = (number) => [0, 1, 2, 3].map((more) => topics[(number + 2 * more) % topics.length] ?? "");
      await Promise.all(readers.map((it, number) => Promise.all(wanted(number).map((one) => it.subscribe(one, qos)))));
      const counting = readers.map((reader) => new Counting(reader));
      const countOfMoves = async () => {
        const metrics = await Promise.all(nodes.map((node) => node.ask("/metrics")));
        const moves = metrics.join("").matchAll(/^thicket_rebalance_moves_total\{reason="topics"\} (\d+)/gm);
        return [...moves].reduce((sum, [, count]) => sum + Number(count), 0);
      };
      let isOver = false;
      const publishing = writers.map(async (writer, number) => {
        let count = 0;
        for (; !isOver; count += 1) {
          await writer.publish(topics[number] ?? "", String(count), { qos });
          await sleep(30);
        }
        return count;
      });
      const isPlacedAnew = async () => (await countOfMoves()) > 0 && readers.some(({ sessions }) => sessions.size > 1);
      await waitUntil(isPlacedAnew, "clients placed anew");
      // Filters that move are under way still.
      await sleep(SECONDS * 500);
      if (kills) {
        await nodes[1]?.kill();
      }
      await sleep(SECONDS * 500);
      isOver = true;
      const counts = new Map((await Promise.all(publishing)).map((count, number) => [topics[number], count]));
      const expected = readers.map((_, number) => wanted(number).reduce((sum, one) => sum + (counts.get(one) ?? 0), 0));
      await Promise.all(counting.map((it, number) => it.waitFor(expected[number] ?? 0)));
      const twice = counting.flatMap((it) => it.twice);
      const sessions = readers.map((reader) => reader.sessions.size);
      const moves = await countOfMoves();
      const messages = expected.reduce((a, b) => a + b);
      const lost = messages - counting.reduce((sum, { seen }) => sum + seen.size, 0);
      t.diagnostic(JSON.stringify({ qos, kills, messages, lost, twice: twice.length, moves, sessions }));
      assert.deepEqual(counting.map((it) => it.seen.size), expected); // prettier-ignore
      if (qos === 2) {
        assert.deepEqual(twice, []);
      }
      await Promise.all([...readers, ...writers].map((client) => client.close()));
    });
  }

  test("a session that is placed elsewhere keeps its state", async (t) => {
    const { nodes, at } = await cluster(t, 2);
    const [first = "", second = ""] = at;
    const control = await Control.start(t);
    control.answer = placement(["one", first, ["t"], ["t"]]);
    const client = await connect(urls(nodes), { clientId: "one", placement: [control.url], subscribe: { t: 2 } });
    const counting = new Counting(client);
    let isMoving = true;
    const moving = (async () => {
      for (let number = 0; number < 6; number += 1) {
        const address = number % 2 === 0 ? second : first;
        control.answer = placement(["one", address, ["t"], ["t"]]);
        await client.subscribe(`extra/${number}`);
        await client.waitForSessions(new Map([[1, address]]));
      }
      isMoving = false;
    })();
    let count = 0;
    // Its own messages: both directions of the session move.
    while (isMoving) {
      const numbers = [0, 1, 2, 3].map((more) => count + more);
      await Promise.all(numbers.map((number) => client.publish("t", String(number), { qos: 2 })));
      count += numbers.length;
    }
    await moving;
    await counting.waitFor(count);
    t.diagnostic(`${count} messages, 6 moves`);
    assert.deepEqual([counting.twice, counting.outOfOrder], [[], []]);
    await client.close();
  });

  test("without a control plane any node serves", async (t) => {
    const { nodes } = await cluster(t, 1);
    const refusing = await Control.start(t);
    const planes = [`http://127.0.0.1:${await freePort()}`, refusing.url];
    const client = await connect(urls(nodes), { placement: planes });
    assert.equal(client.isPlaced, false);
    assert.notEqual(client.lastProblem, "");
    await client.subscribe("a", 1);
    await client.publish("a", "1", { qos: 1 });
    for await (const message of client) {
      assert.equal(message.text, "1");
      break;
    }
    await client.close();
  });

  test("the cluster places a client, over MQTT and by HTTP", async (t) => {
    const { nodes } = await cluster(t, 2);
    for (const placement of /** @type {const} */ (["mqtt", nodes.map((node) => node.api)])) {
      const client = await connect(urls(nodes), { placement, subscribe: { "p/+": 1 }, publish: ["p/1"] });
      assert.equal(client.isPlaced, true, client.lastProblem);
      await client.publish("p/1", "here", { qos: 1 });
      for await (const message of client) {
        assert.equal(message.text, "here");
        break;
      }
      await client.close();
    }
  });

  test("who takes a client identifier over ends the client before", async (t) => {
    const { nodes } = await cluster(t, 1);
    const first = await connect(urls(nodes), { clientId: "same" });
    const second = await connect(urls(nodes), { clientId: "same" });
    await assert.rejects(async () => {
      for await (const _ of first);
    }, TakenOver);
    await assert.rejects(first.publish("a"), TakenOver);
    await second.publish("a", "", { qos: 1 });
    await second.close();
    await assert.rejects(second.publish("a"), ClosedError);
  });

  test("a full queue holds the broker back and loses nothing", async (t) => {
    const { nodes } = await cluster(t, 1);
    const slow = await connect(urls(nodes), { receiveQueue: 10 });
    const publisher = await connect(urls(nodes));
    await slow.subscribe("a", 1);
    await publishAll(publisher, ["a"], 1, 500);
    const counting = new Counting(slow);
    await counting.waitFor(500);
    assert.deepEqual([counting.twice, counting.outOfOrder], [[], []]);
    await Promise.all([slow.close(), publisher.close()]);
  });

  test("a session of an earlier run is taken up", async (t) => {
    const { nodes } = await cluster(t, 1);
    const before = await connect(urls(nodes), { clientId: "kept", resume: true });
    await before.subscribe("a", 1);
    await before.close();
    const publisher = await connect(urls(nodes));
    await publisher.publish("a", "meanwhile", { qos: 1 });
    const after = await connect(urls(nodes), { clientId: "kept", resume: true });
    for await (const message of after) {
      assert.equal(message.text, "meanwhile");
      break;
    }
    await Promise.all([publisher.close(), after.close()]);
  });
});
