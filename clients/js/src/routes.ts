/**
 * Which session a topic is published on.
 *
 * A topic changes its session only when nothing of it is under way on the old one: so the messages of one topic stay in order.
 */

import { isExact, matches } from "./topics.js";
import { Changes } from "./waiting.js";

/** Topics remembered that nobody declared, for the next placement, and their bytes: some brokers take no CONNECT above 100,000 bytes. */
const LEARNED = 1000;
const LEARNED_BYTES = 65_536;

/** Topics, sessions, and what is under way. */
export class Routes {
  readonly learned = new Set<string>();
  #learnedBytes = 0;
  #topics = new Map<string, number>();
  #filters: Array<readonly [string, number]> = [];
  readonly #open = new Set<number>();
  /** Topics with messages under way: the session they are on, and how many. */
  readonly #busy = new Map<string, { session: number; count: number }>();
  readonly #changes = new Changes();

  /** The session of `topic`, with one more message under way; waits while others are on another. Undefined: closed. */
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

  /** A message of `topic` is settled. */
  leave(topic: string): void {
    const busy = this.#busy.get(topic);
    if (busy !== undefined && busy.count > 1) {
      busy.count -= 1;
    } else {
      this.#busy.delete(topic);
      this.#changes.notify();
    }
  }

  /** From now on these topics and filters go to these sessions, and all others to the first. */
  replace(placed: ReadonlyMap<string, number>): void {
    this.#topics = new Map([...placed].filter(([topic]) => isExact(topic)));
    this.#filters = [...placed].filter(([topic]) => !isExact(topic));
    this.#changes.notify();
  }

  /** One topic goes to `session` from now on. */
  place(topic: string, session: number): void {
    this.#topics.set(topic, session);
    this.#changes.notify();
  }

  open(session: number): void {
    this.#open.add(session);
    this.#changes.notify();
  }

  /** What goes to `session` from now on goes to the first. */
  close(session: number): void {
    this.#open.delete(session);
    this.#changes.notify();
  }

  /** No topic is placed on `session` any more. */
  forget(session: number): void {
    this.#topics = new Map([...this.#topics].filter(([, place]) => place !== session));
    this.#filters = this.#filters.filter(([, place]) => place !== session);
    this.close(session);
  }

  /** Nothing is published any more. */
  closeAll(): void {
    this.#open.clear();
    this.#changes.notify();
  }

  /** Whether `session` has topics, or messages under way. */
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

  /** The broker refused a message on it: a request that names it could be refused as a whole. */
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
