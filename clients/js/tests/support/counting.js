/** Publishing numbers, and counting how often each came. */

import { TIMEOUT_MS } from "./nodes.js";

/** Nothing came for so long: nothing comes twice any more. */
const QUIET_MS = 1000;

/** Reads a client's messages; their payloads are numbers. */
export class Counting {
  /** @type {Map<string, number>} How often each came, by topic and number. */
  seen = new Map();
  /** @type {Map<string, number[]>} Of each topic, in the order in which they came first. */
  order = new Map();
  #grown = () => {};

  /** @param {import("thicket-mqtt").Client} client */
  constructor(client) {
    void this.#read(client);
  }

  /** @param {import("thicket-mqtt").Client} client */
  async #read(client) {
    for await (const { topic, text } of client) {
      const key = `${topic} ${text}`;
      this.seen.set(key, (this.seen.get(key) ?? 0) + 1);
      if (this.seen.get(key) === 1) {
        this.order.set(topic, [...(this.order.get(topic) ?? []), Number(text)]);
      }
      this.#grown();
    }
  }

  /**
   * Until something comes. Answers whether it came in time.
   * @param {number} milliseconds
   * @returns {Promise<boolean>}
   */
  #next(milliseconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), milliseconds);
      this.#grown = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  /**
   * Until so many different messages have come, and then until nothing comes for a second.
   * @param {number} count
   */
  async waitFor(count) {
    const deadline = Date.now() + TIMEOUT_MS;
    while (this.seen.size < count) {
      if (!(await this.#next(Math.max(deadline - Date.now(), 0))) && Date.now() >= deadline) {
        throw new Error(`waited in vain: ${this.seen.size} of ${count} messages came`);
      }
    }
    while (await this.#next(QUIET_MS));
  }

  get twice() {
    return [...this.seen].filter(([, times]) => times > 1).map(([message]) => message);
  }

  get outOfOrder() {
    const isSorted = (/** @type {number[]} */ numbers) =>
      numbers.every((number, at) => at === 0 || number > (numbers[at - 1] ?? 0));
    return [...this.order].filter(([, numbers]) => !isSorted(numbers)).map(([topic]) => topic);
  }
}

/**
 * Publishes 0 to `count` - 1 on each topic; calls `at` before each of the first topic.
 * @param {import("thicket-mqtt").Client} client
 * @param {readonly string[]} topics
 * @param {import("thicket-mqtt").Qos} qos
 * @param {number} count
 * @param {(number: number) => void} at
 */
export async function publishAll(client, topics, qos, count, at = () => {}) {
  await Promise.all(
    topics.map(async (topic, index) => {
      for (let number = 0; number < count; number += 1) {
        if (index === 0) {
          at(number);
        }
        await client.publish(topic, String(number), { qos });
      }
    }),
  );
}
