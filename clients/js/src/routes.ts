/**
 * The session on which a topic is published.
 *
 * A topic changes its session only when none of its messages is in flight on the old one: so the messages of one topic stay in order.
 */

import { isExact, matches } from "./topics.js";
import { Changes } from "./waiting.js";

/** The most undeclared topics that are remembered for the next placement, and their bytes: some brokers refuse a CONNECT above 100,000 bytes. */
const LEARNED = 1000;
const LEARNED_BYTES = 65_536;

/** Topics, sessions, and messages in flight. */
export class Routes {
  readonly learned = new Set<string>();
  #learnedBytes = 0;
  #topics = new Map<string, number>();
  #filters: Array<readonly [string, number]> = [];
  readonly #open = new Set<number>();
  /** Topics with messages in flight: their session, and how many. */
  readonly #busy = new Map<string, { session: number; count: number }>();
  readonly #changes = new Changes();

  /** The session of `topic`, with one more message in flight. Waits while others are in flight on another session. Undefined: closed. */
  async enter(topic: string): Promise<number | undefined> {
    for (;;) {
      const session = this.#find(topic);
      if (!this.#open.has(session)) {
        return undefined;
      }
      const busy = this.#busy.get(topic);
      if (busy === undefined || busy.session === session) {
        this.#busy.set(topic, { session, count: (busy?.count ?? 0) + 1 });
        return session;
      }
      await this.#changes.next();
    }
  }

  /** A message of `topic` was acknowledged, refused or given up. */
  leave(topic: string): void {
    const busy = this.#busy.get(topic);
    if (busy !== undefined && busy.count > 1) {
      busy.count -= 1;
    } else {
      this.#busy.delete(topic);
      this.#changes.notify();
    }
  }

  /** From now on these topics and filters are published on these sessions, and all others on the first. */
  replace(placed: ReadonlyMap<string, number>): void {
    this.#topics = new Map([...placed].filter(([topic]) => isExact(topic)));
    this.#filters = [...placed].filter(([topic]) => !isExact(topic));
    this.#changes.notify();
  }

  /** From now on one topic is published on `session`. */
  place(topic: string, session: number): void {
    this.#topics.set(topic, session);
    this.#changes.notify();
  }

  open(session: number): void {
    this.#open.add(session);
    this.#changes.notify();
  }

  /** Topics of `session` are published on the first session from now on. */
  close(session: number): void {
    this.#open.delete(session);
    this.#changes.notify();
  }

  /** No more topics are placed on `session`. */
  forget(session: number): void {
    this.#topics = new Map([...this.#topics].filter(([, place]) => place !== session));
    this.#filters = this.#filters.filter(([, place]) => place !== session);
    this.close(session);
  }

  /** No more messages are published. */
  closeAll(): void {
    this.#open.clear();
    this.#changes.notify();
  }

  /** Whether `session` has topics, or messages in flight. */
  uses(session: number): boolean {
    return (
      [...this.#topics.values()].includes(session) ||
      this.#filters.some(([, place]) => place === session) ||
      [...this.#busy.values()].some((busy) => busy.session === session)
    );
  }

  #find(topic: string): number {
    const session = this.#topics.get(topic) ?? this.#filters.find(([filter]) => matches(filter, topic))?.[1];
    if (session === undefined && !this.learned.has(topic)) {
      this.#learn(topic);
    }
    return session !== undefined && this.#open.has(session) ? session : 1;
  }

  /** The broker refused a message on the topic, so it might refuse a whole request with the topic. */
  unlearn(topic: string): void {
    if (this.learned.delete(topic)) {
      this.#learnedBytes -= new TextEncoder().encode(topic).length;
    }
  }

  #learn(topic: string): void {
    const size = new TextEncoder().encode(topic).length;
    if (this.learned.size < LEARNED && this.#learnedBytes + size <= LEARNED_BYTES) {
      this.learned.add(topic);
      this.#learnedBytes += size;
    }
  }
}
