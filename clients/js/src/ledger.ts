/**
 * Messages of QoS 2 that may arrive over two sessions while a filter moves from one to the other.
 *
 * The new session subscribes before the old one unsubscribes, so nothing is missed, and messages published in between arrive
 * twice. The second one is dropped. Messages are compared by the identity that their publisher gave them, as our clients do, and
 * otherwise by content; each is dropped as often as it arrived over the other session.
 */

import type { Message } from "./message.js";
import { matches } from "./topics.js";

/** The most messages that are remembered; the oldest are dropped first. */
const REMEMBERED = 65_536;

/** The messages that arrived over each session while filters move. */
export class Ledger {
  readonly #moving = new Map<string, number>();
  readonly #open = new Map<string, number[]>();

  /** `filter` begins to move. */
  begin(filter: string): void {
    this.#moving.set(filter, (this.#moving.get(filter) ?? 0) + 1);
  }

  /** A move of `filter` is over, on both sessions. */
  end(filter: string): void {
    const left = (this.#moving.get(filter) ?? 0) - 1;
    if (left > 0) {
      this.#moving.set(filter, left);
    } else {
      this.#moving.delete(filter);
    }
    if (this.#moving.size === 0) {
      this.#open.clear();
    }
  }

  /** Whether `message`, which arrived over `session`, should be delivered. */
  admits(session: number, message: Message, identity: string | undefined): boolean {
    if (message.qos !== 2 || ![...this.#moving.keys()].some((filter) => matches(filter, message.topic))) {
      return true;
    }
    const key = identity === undefined ? contentKey(message) : JSON.stringify([message.topic, identity]);
    const sessions = this.#open.get(key) ?? [];
    const other = sessions.findIndex((before) => before !== session);
    if (other >= 0) {
      sessions.splice(other, 1);
      return false;
    }
    sessions.push(session);
    this.#open.set(key, sessions);
    if (this.#open.size > REMEMBERED) {
      this.#open.delete(this.#open.keys().next().value as string);
    }
    return true;
  }
}

function contentKey(message: Message): string {
  return JSON.stringify([
    message.topic,
    bytes(message.payload),
    message.contentType ?? null,
    message.responseTopic ?? null,
    message.correlationData === undefined ? null : bytes(message.correlationData),
    message.userProperties,
  ]);
}

/** One character for each byte. */
function bytes(value: Uint8Array): string {
  return new TextDecoder("latin1").decode(value);
}
