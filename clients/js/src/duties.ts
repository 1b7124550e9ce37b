/** The work of a session on its connection: it subscribes to its filters, and sends waiting messages. */

import type { UserProperties } from "mqtt-packet";

import { type Connection, refusal } from "./connection.js";
import { OutcomeUnknown, type ThicketError } from "./errors.js";
import type { Message, Qos } from "./message.js";
import type { Owner, Session } from "./session.js";
import { type Chosen, isSame } from "./subscription.js";
import type { Reply } from "./waiting.js";

/** Messages of QoS 1 and 2 in flight for each session; fewer if the broker demands it. */
const MAX_IN_FLIGHT = 100;
/** Filters in one UNSUBSCRIBE. */
const BATCH = 64;
const IDENTIFIER_NOT_FOUND = 0x92;

/** A message on its way to the broker. */
export interface Outgoing {
  readonly message: Message;
  readonly identity: string | undefined;
  readonly reply: Reply<number>;
}

/** See the module. */
export class Duties {
  /** Messages that wait to be sent, in order. */
  readonly outgoing: Outgoing[] = [];
  readonly #session: Session;
  readonly #owner: Owner;
  /** Messages in flight by packet identifier, in the order in which they were first sent, with the connection of that. */
  readonly #inFlight = new Map<number, { outgoing: Outgoing; connection: number }>();
  #connections = 0;
  #inFlightLimit = MAX_IN_FLIGHT;
  /** With the options of each; other options are asked for by another SUBSCRIBE. */
  readonly #subscribed = new Map<string, Chosen>();
  /** Filters in a SUBSCRIBE or UNSUBSCRIBE that is not answered yet. */
  readonly #asked = new Set<string>();
  /** The same on a connection that ended before the answer: the session may have these filters or not. */
  readonly #doubtful = new Set<string>();
  readonly #refused = new Map<string, Chosen>();

  constructor(session: Session, owner: Owner) {
    this.#session = session;
    this.#owner = owner;
  }

  /** Whether everything sent is acknowledged. */
  get isSent(): boolean {
    return this.outgoing.length === 0 && this.#inFlight.size === 0;
  }

  /** A broker has accepted the session. */
  onConnected(receiveMaximum: number | undefined): void {
    this.#connections += 1;
    this.#inFlightLimit = Math.min(MAX_IN_FLIGHT, receiveMaximum ?? MAX_IN_FLIGHT);
  }

  /** Missing answers of the previous connection will not arrive any more. */
  onInterrupted(): void {
    for (const filter of this.#asked) {
      this.#doubtful.add(filter);
      this.#subscribed.delete(filter);
    }
    this.#asked.clear();
  }

  /** The broker does not have the session: messages in flight are published again at QoS 1; at QoS 2 their outcome is unknown. */
  onSessionLost(): void {
    const filters = [...new Set([...this.#subscribed.keys(), ...this.#doubtful])].sort();
    this.#subscribed.clear();
    this.#doubtful.clear();
    filters.forEach((filter) => this.#owner.onUnsubscribed(this.#session.number, filter));
    const lost = [...this.#inFlight.values()].map(({ outgoing }) => outgoing);
    this.#inFlight.clear();
    this.outgoing.unshift(...lost.filter(({ message }) => message.qos === 1));
    for (const outgoing of lost.filter(({ message }) => message.qos === 2)) {
      const why = "the broker lost the session while this message of QoS 2 was in flight";
      this.#owner.onSettled(outgoing, new OutcomeUnknown(why));
    }
  }

  /** No more messages are sent. */
  abandon(why: ThicketError): void {
    const left = [...[...this.#inFlight.values()].map(({ outgoing }) => outgoing), ...this.outgoing];
    this.#inFlight.clear();
    this.outgoing.length = 0;
    left.forEach((outgoing) => this.#owner.onSettled(outgoing, why));
  }

  /** Does what is due. */
  act(connection: Connection): void {
    this.#subscribe(connection);
    this.#unsubscribe(connection);
    this.#publish(connection);
  }

  #subscribe(connection: Connection): void {
    const wanted = this.#session.assignment.filters;
    for (const filter of [...this.#refused.keys()].filter((it) => !wanted.has(it))) {
      this.#refused.delete(filter);
    }
    for (const [filter, how] of wanted) {
      const answered = [this.#subscribed.get(filter), this.#refused.get(filter)];
      if (this.#asked.has(filter) || answered.some((options) => isSame(options, how.options))) {
        continue;
      }
      this.#asked.add(filter);
      this.#owner.onAsked(this.#session.number, filter);
      // One filter for each packet: so an answer with a better node concerns one filter.
      void connection.subscribe(filter, how, this.#doubtful.has(filter)).then((granted) => {
        if (granted !== undefined && connection.isReady) {
          this.#onSubscribed(filter, how.options, granted.code, granted.user);
        }
      });
    }
  }

  #onSubscribed(filter: string, options: Chosen, code: number, user: UserProperties | undefined): void {
    this.#asked.delete(filter);
    this.#doubtful.delete(filter);
    this.#session.noteBetter(filter, user, "filter");
    const error = refusal(code);
    if (error === undefined) {
      this.#subscribed.set(filter, options);
      this.#owner.onSubscribed(this.#session.number, filter, options, code as Qos, undefined);
    } else {
      this.#refused.set(filter, options);
      this.#owner.onSubscribed(this.#session.number, filter, options, 0, error);
    }
    this.#session.wake();
  }

  #unsubscribe(connection: Connection): void {
    const wanted = this.#session.assignment.filters;
    const had = new Set([...this.#subscribed.keys(), ...this.#doubtful]);
    const surplus = [...had].filter((filter) => !wanted.has(filter) && !this.#asked.has(filter));
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

  /** Sends waiting messages, as many as the broker and the connection accept. */
  #publish(connection: Connection): void {
    while (connection.isReady && !connection.isCongested) {
      const [outgoing] = this.outgoing;
      if (outgoing === undefined || (outgoing.message.qos > 0 && this.#inFlight.size >= this.#inFlightLimit)) {
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
        this.#inFlight.set(packetId, { outgoing, connection: this.#connections });
      }
    }
  }

  /** A message was acknowledged, or refused. */
  onAcknowledged(packetId: number, code: number, user: UserProperties | undefined): void {
    const found = this.#inFlight.get(packetId);
    if (found === undefined) {
      return;
    }
    this.#inFlight.delete(packetId);
    const { outgoing, connection } = found;
    this.#session.noteBetter(outgoing.message.topic, user, "topic");
    // The answer to a PUBREL that was sent again: the broker had completed the exchange.
    const isComplete = code === IDENTIFIER_NOT_FOUND && connection !== this.#connections;
    this.#owner.onSettled(outgoing, isComplete ? undefined : refusal(code), isComplete ? 0 : code);
  }
}
