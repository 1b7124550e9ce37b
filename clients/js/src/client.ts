/** The client: one object for all its sessions. */

import type { Address } from "./address.js";
import type { Login } from "./connection.js";
import { Director } from "./director.js";
import { ClosedError } from "./errors.js";
import { Message, type MessageOptions, type Qos, checkMessage } from "./message.js";
import { type Options, check, receiveMaximum } from "./options.js";
import { type SubscriptionOptions, chosen } from "./subscription.js";

/** A message that was handed over. */
export interface Sent {
  /** Fulfilled when the broker has acknowledged it, with the reason code: at QoS 0 when it is written. */
  readonly acknowledged: Promise<number>;
}

/**
 * An MQTT client. `connect` opens one, `for await` receives its messages, `close` ends it. The guarantees are in the README.
 *
 * @example
 * ```ts
 * const client = await connect("mqtt://localhost:1883");
 * await client.subscribe("site/+/temp", 1);
 * for await (const message of client) console.log(message.topic, message.text);
 * ```
 */
export class Client {
  readonly #director: Director;

  private constructor(director: Director) {
    this.#director = director;
  }

  /**
   * Connects.
   *
   * @param servers - URLs of brokers, or of nodes of one cluster, all of one scheme: `mqtt://HOST[:PORT]`, `mqtts://`,
   * `ws://HOST[:PORT][/PATH]` or `wss://`; tried in random order. A browser has WebSocket only.
   * @throws RangeError for wrong arguments, ConnectError if no broker answers in time, Refused if the broker refuses the client
   */
  static async connect(servers: string | readonly string[], options: Options = {}): Promise<Client> {
    const settings = check(servers, options);
    const { clientId, version, userName, password, scheme, path, tls, keepAlive, sessionExpiry, will, dialTimeout } =
      settings;
    const login: Login = {
      clientId, version, userName, password, scheme, path, tls, keepAlive, sessionExpiry, will, dialTimeout,
      receiveMaximum: receiveMaximum(settings),
    }; // prettier-ignore
    const director = new Director(settings, login);
    await director.open();
    return new Client(director);
  }

  /** The client identifier, of the first session. */
  get clientId(): string {
    return this.#director.clientId;
  }

  /** The sessions that are connected, by number from 1: the address of each. */
  get sessions(): ReadonlyMap<number, Address> {
    return this.#director.addresses;
  }

  /** Whether a control plane has answered. */
  get isPlaced(): boolean {
    return this.#director.isPlaced;
  }

  /** The latest problem with a connection or the control plane, even if it is over. */
  get lastProblem(): string {
    return this.#director.lastProblem;
  }

  /** Waits until `sessions` are connected, each at its address, and no others. */
  async waitForSessions(sessions: ReadonlyMap<number, Address>): Promise<void> {
    const isAsWanted = (): boolean =>
      this.sessions.size === sessions.size &&
      [...sessions].every(([number, address]) => this.sessions.get(number) === address);
    while (!isAsWanted()) {
      this.#director.throwIfEnded();
      await this.#director.changes.next();
    }
  }

  /**
   * Subscribes; answers the QoS that the broker grants. A filter that is subscribed already with other options is subscribed again:
   * the new options replace the old ones. With the same options nothing is sent.
   */
  async subscribe(filter: string, options: Qos | SubscriptionOptions = 0): Promise<Qos> {
    return this.#director.subscribe(filter, chosen(filter, options, this.#director.version));
  }

  /** Ends a subscription, on all sessions. Messages in flight still arrive. */
  async unsubscribe(filter: string): Promise<void> {
    return this.#director.unsubscribe(filter);
  }

  /**
   * Publishes, and waits for the acknowledgement of QoS 1 or 2. Without a connection it waits for the next one. Answers the reason
   * code of the acknowledgement: 0, or 0x10 if no subscription matches and the broker reports that, which brokers do at QoS 1.
   */
  async publish(topic: string, payload: Uint8Array | string = "", options: MessageOptions = {}): Promise<number> {
    const { acknowledged } = await this.send(new Message(topic, payload, options));
    return acknowledged;
  }

  /** Hands a message over, in order. Waits while the queue of its session is full. */
  async send(message: Message): Promise<Sent> {
    checkMessage(message);
    const reply = await this.#director.send(message);
    return { acknowledged: reply.promise };
  }

  /** Sends all messages that were handed over, ends the sessions (with `resume` leaves them at the broker), and disconnects. */
  async close(): Promise<void> {
    await this.#director.end(new ClosedError("the client is closed"));
  }

  /**
   * The messages of all subscriptions, until the client is closed; TakenOver if another client uses its identifier. With
   * `acknowledge: "next"` each acknowledges the one before: that is for one loop; several acknowledge by themselves.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<Message, void, undefined> {
    for (;;) {
      const message = await this.#director.nextMessage();
      if (message === undefined) {
        return;
      }
      yield message;
    }
  }
}
