/** What a session does on its connection: it has the filters that it is assigned, and sends what waits. */

import type { UserProperties } from "mqtt-packet";

import { type Connection, refusal } from "./connection.js";
import { OutcomeUnknown, type ThicketError } from "./errors.js";
import type { Message, Qos } from "./message.js";
import type { Owner, Session } from "./session.js";
import type { Reply } from "./waiting.js";

/** Messages of QoS 1 and 2 under way, a session; fewer if the broker says so. */
const MOST_UNDER_WAY = 100;
/** Filters in one UNSUBSCRIBE. */
const BATCH = 64;
const IDENTIFIER_NOT_FOUND = 0x92;

/** A message on its way to the broker. */
export interface Outgoing {
  readonly message: Message;
  readonly identity: string | undefined;
  readonly reply: Reply<void>;
}

/** See the module. */
export class Duties {
  /** What waits to be sent, in order. */
  readonly outgoing: Outgoing[] = [];
  readonly #session: Session;
  readonly #owner: Owner;
  /** Under way, by packet identifier, in the order of their first sending; and on which connection that was. */
  readonly #underWay = new Map<number, { outgoing: Outgoing; connection: number }>();
  #connections = 0;
  #underWayLimit = MOST_UNDER_WAY;
  readonly #subscribed = new Set<string>();
  /** Sent in a SUBSCRIBE or UNSUBSCRIBE that was not answered yet. */
  readonly #asked = new Set<string>();
  /** The same on a connection that ended before the answer: the session may have them or not. */
  readonly #doubtful = new Set<string>();
  readonly #refused = new Set<string>();

  constructor(session: Session, owner: Owner) {
    this.#session = session;
    this.#owner = owner;
  }

  /** Whether all that was to be sent is acknowledged. */
  get isSent(): boolean {
    return this.outgoing.length === 0 && this.#underWay.size === 0;
  }

  /** A broker has accepted the session. */
  onConnected(receiveMaximum: number | undefined): void {
    this.#connections += 1;
    this.#underWayLimit = Math.min(MOST_UNDER_WAY, receiveMaximum ?? MOST_UNDER_WAY);
  }

  /** Answers that were waited for on the connection before do not come any more. */
  onInterrupted(): void {
    for (const filter of this.#asked) {
      this.#doubtful.add(filter);
      this.#subscribed.delete(filter);
    }
    this.#asked.clear();
  }

  /** The broker does not have the session: what was under way is published again at QoS 1, and in doubt at QoS 2. */
  onSessionLost(): void {
    const filters = [...this.#subscribed, ...this.#doubtful].sort();
    this.#subscribed.clear();
    this.#doubtful.clear();
    filters.forEach((filter) => this.#owner.onUnsubscribed(this.#session.number, filter));
    const lost = [...this.#underWay.values()].map(({ outgoing }) => outgoing);
    this.#underWay.clear();
    this.outgoing.unshift(...lost.filter(({ message }) => message.qos === 1));
    for (const outgoing of lost.filter(({ message }) => message.qos === 2)) {
      const why = "the broker lost the session while this message of QoS 2 was under way";
      this.#owner.onSettled(outgoing, new OutcomeUnknown(why));
    }
  }

  /** Nothing is sent any more. */
  abandon(why: ThicketError): void {
    const left = [...[...this.#underWay.values()].map(({ outgoing }) => outgoing), ...this.outgoing];
    this.#underWay.clear();
    this.outgoing.length = 0;
    left.forEach((outgoing) => this.#owner.onSettled(outgoing, why));
  }

  /** Does what there is to do. */
  act(connection: Connection): void {
    this.#subscribe(connection);
    this.#unsubscribe(connection);
    this.#publish(connection);
  }

  #subscribe(connection: Connection): void {
    const wanted = this.#session.assignment.filters;
    for (const filter of [...this.#refused].filter((it) => !wanted.has(it))) {
      this.#refused.delete(filter);
    }
    for (const [filter, how] of wanted) {
      if (this.#subscribed.has(filter) || this.#asked.has(filter) || this.#refused.has(filter)) {
        continue;
      }
      this.#asked.add(filter);
      this.#owner.onAsked(this.#session.number, filter);
      // One filter a packet: so an answer about a better node is about one.
      void connection.subscribe(filter, how, this.#doubtful.has(filter)).then((granted) => {
        if (granted !== undefined && connection.isReady) {
          this.#onSubscribed(filter, granted.code, granted.user);
        }
      });
    }
  }

  #onSubscribed(filter: string, code: number, user: UserProperties | undefined): void {
    this.#asked.delete(filter);
    this.#doubtful.delete(filter);
    this.#session.noteBetter(filter, user, "filter");
    const error = refusal(code);
    if (error === undefined) {
      this.#subscribed.add(filter);
      this.#owner.onSubscribed(this.#session.number, filter, code as Qos, undefined);
    } else {
      this.#refused.add(filter);
      this.#owner.onSubscribed(this.#session.number, filter, 0, error);
    }
    this.#session.wake();
  }

  #unsubscribe(connection: Connection): void {
    const wanted = this.#session.assignment.filters;
    const had = [...this.#subscribed, ...this.#doubtful];
    const surplus = had.filter((filter) => !wanted.has(filter) && !this.#asked.has(filter));
    if (surplus.length === 0) {
      return;
    }
    const batch = surplus.sort().slice(0, BATCH);
    for (const filter of batch) {
      this.#asked.add(filter);
      this.#owner.onAsked(this.#session.number, filter);
    }
    void connection.unsubscribe(batch).then((isAnswered) => {
      if (isAnswered && connection.isReady) {
        this.#onUnsubscribed(batch);
      }
    });
  }

  #onUnsubscribed(filters: readonly string[]): void {
    for (const filter of filters) {
      this.#asked.delete(filter);
      this.#subscribed.delete(filter);
      this.#doubtful.delete(filter);
      this.#owner.onUnsubscribed(this.#session.number, filter);
    }
    this.#session.onUnsubscribed();
    this.#session.wake();
  }

  /** Sends what waits, as far as the broker and the connection take it. */
  #publish(connection: Connection): void {
    while (connection.isReady && !connection.isCongested) {
      const [outgoing] = this.outgoing;
      if (outgoing === undefined || (outgoing.message.qos > 0 && this.#underWay.size >= this.#underWayLimit)) {
        return;
      }
      this.outgoing.shift();
      const refused = connection.refusalOf(outgoing.message, outgoing.identity);
      if (refused !== undefined) {
        this.#owner.onSettled(outgoing, refused);
        continue;
      }
      const packetId = connection.publish(outgoing.message, outgoing.identity);
      if (packetId === 0) {
        this.#owner.onSettled(outgoing, undefined);
      } else {
        this.#underWay.set(packetId, { outgoing, connection: this.#connections });
      }
    }
  }

  /** A message was acknowledged, or refused. */
  onAcknowledged(packetId: number, code: number, user: UserProperties | undefined): void {
    const found = this.#underWay.get(packetId);
    if (found === undefined) {
      return;
    }
    this.#underWay.delete(packetId);
    const { outgoing, connection } = found;
    this.#session.noteBetter(outgoing.message.topic, user, "topic");
    // Said of a PUBREL that went out again: the broker had completed the exchange.
    const isComplete = code === IDENTIFIER_NOT_FOUND && connection !== this.#connections;
    this.#owner.onSettled(outgoing, isComplete ? undefined : refusal(code));
  }
}
