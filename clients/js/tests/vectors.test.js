/** The tables of plan, routes and ledger that all client libraries run: tests/vectors. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Message } from "thicket-mqtt";

import { Ledger } from "../dist/ledger.js";
import { Plan } from "../dist/plan.js";
import { Routes } from "../dist/routes.js";
import { chosen } from "../dist/subscription.js";

/** @typedef {{name: string, max_sessions: number, steps: any[][]}} Case */

/** @type {{plan: Case[], routes: Case[], ledger: Case[]}} */
const VECTORS = JSON.parse(readFileSync(new URL("../../../tests/vectors/clients.json", import.meta.url), "utf8"));

/** @param {Plan} plan @returns {Record<string, (...its: any[]) => unknown>} */
const planSteps = (plan) => ({
  apply: (placed) => {
    const sessions = Object.entries(placed).map(([number, [address, ...subscribe]]) => [
      Number(number),
      { address, publish: [], subscribe },
    ]);
    return plan.apply(new Map(/** @type {any} */ (sessions))).sort();
  },
  asked: (number, filter) => plan.onAsked(number, filter),
  drained: (number) => plan.onDrained(number).sort(),
  filters: (number) => Object.fromEntries([...plan.filters(number)].map(([filter, { isMoved }]) => [filter, isMoved])),
  give_up: (number) => plan.giveUp(number),
  home: (filter) => plan.home(filter) ?? null,
  is_unsubscribed: (filter) => plan.isUnsubscribed(filter),
  leaves: (number) => plan.leaves(number),
  left: (number, isRouted) => plan.onLeft(number, isRouted).sort(),
  may_move: (filter) => plan.mayMove(filter),
  move_to: (filter, number) => plan.moveTo(filter, number),
  note_address: (number, address) => plan.noteAddress(number, address),
  refused: (number, filter) => plan.onRefused(number, filter),
  session_at: (address) => plan.sessionAt(address) ?? null,
  sessions: () => plan.sessions(),
  subscribe: (filter) => plan.subscribe(filter, chosen(filter, 2, 5)),
  subscribed: (number, filter) => plan.onSubscribed(number, filter),
  unsubscribe: (filter) => plan.unsubscribe(filter),
  unsubscribed: (number, filter) => plan.onUnsubscribed(number, filter),
});

/** @param {Ledger} ledger @returns {Record<string, (...its: any[]) => unknown>} */
const ledgerSteps = (ledger) => ({
  admits: (session, qos, topic, payload, identity) =>
    ledger.admits(session, new Message(topic, payload, { qos }), identity ?? undefined),
  begin: (filter) => ledger.begin(filter),
  end: (filter) => ledger.end(filter),
});

/** @param {Case} vector @param {Record<string, (...its: any[]) => unknown>} operations */
function play({ name, steps }, operations) {
  steps.forEach(([operation, ...rest], at) => {
    const found = operations[operation]?.(...rest);
    if (found !== undefined) {
      assert.deepEqual(found, rest.at(-1), `${name}: step ${at + 1}: ${operation}`);
    }
    assert.ok(operation in operations, operation);
  });
}

test("plan and ledger do as the tables say", () => {
  VECTORS.plan.forEach((vector) => play(vector, planSteps(new Plan(vector.max_sessions))));
  VECTORS.ledger.forEach((vector) => play(vector, ledgerSteps(new Ledger())));
});

test("routes do as the tables say", async () => {
  for (const { name, steps } of VECTORS.routes) {
    const routes = new Routes();
    /** @type {Map<string, Promise<number | undefined>>} */
    const waiting = new Map();
    /** @type {Record<string, (...its: any[]) => unknown>} */
    const operations = {
      open: (session) => routes.open(session),
      close: (session) => routes.close(session),
      close_all: () => routes.closeAll(),
      forget: (session) => routes.forget(session),
      place: (topic, session) => routes.place(topic, session),
      replace: (placed) => routes.replace(new Map(Object.entries(placed))),
      settle: (topic) => routes.leave(topic),
      uses: (session) => routes.uses(session),
      learned: () => [...routes.learned].sort(),
      enter: async (topic) => {
        const entering = routes.enter(topic);
        const turn = new Promise((resolve) => setImmediate(() => resolve("waits")));
        const found = await Promise.race([entering.then((session) => session ?? null), turn]);
        if (found === "waits") {
          waiting.set(topic, entering);
        }
        return found;
      },
      resumes: (topic) => waiting.get(topic),
    };
    for (const [at, [operation, ...rest]] of steps.entries()) {
      const found = await operations[operation]?.(...rest);
      if (found !== undefined) {
        assert.deepEqual(found, rest.at(-1), `${name}: step ${at + 1}: ${operation}`);
      }
      assert.ok(operation in operations, operation);
    }
  }
});
