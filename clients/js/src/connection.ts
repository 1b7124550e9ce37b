/**
 * One connection of a session: a client of mqtt.js that never reconnects by itself.
 *
 * Sent messages in flight are in its store. The next connection takes it over when the broker has accepted it and has the session.
 * So nothing is sent again that the broker's session does not have, and late events of an old connection have no effect on the
 * new one. Received messages are acknowledged by the session: to mqtt.js each has QoS 0, since it would read nothing before it
 * has acknowledged a message of QoS 1, and keeps a message of QoS 2 in memory after its PUBREC.
 */

import mqtt from "mqtt";
import type { IClientOptions, MqttClient } from "mqtt";
import { type IConnackPacket, type IDisconnectPacket, type IPublishPacket, generate } from "mqtt-packet";
import type { Packet, UserProperties } from "mqtt-packet";

import { type Address, type Scheme, defaultPort, parseReference, splitAddress } from "./address.js";
import { Refused } from "./errors.js";
import { type Message, type Qos, publishSize, toProperties, userObject } from "./message.js";
import type { Subscription } from "./plan.js";
import { RETAIN_HANDLING } from "./subscription.js";

const PACKET_TOO_LARGE = 0x95;
const RETAIN_NOT_SUPPORTED = 0x9a;
const QOS_NOT_SUPPORTED = 0x9b;
const USE_ANOTHER_SERVER = 0x9c;
const SERVER_MOVED = 0x9d;
const SESSION_TAKEN_OVER = 0x8e;
/** Temporary refusals: unspecified, implementation specific, unavailable, busy, shutting down, quota, rate, redirection. */
const TEMPORARY = new Set([0x80, 0x83, 0x88, 0x89, 0x8b, 0x97, USE_ANOTHER_SERVER, SERVER_MOVED, 0x9f]);
/** The only temporary refusal of 3.1.1: server unavailable. */
const UNAVAILABLE_311 = 3;
/** Longest wait until a DISCONNECT is written and the broker has closed the connection. */
const DISCONNECT_WAIT_MS = 3000;

/** Files in PEM, for `mqtts`, `wss` and `https` in Node; a browser has its own. */
export interface Tls {
  readonly ca?: string | Uint8Array;
  readonly cert?: string | Uint8Array;
  readonly key?: string | Uint8Array;
  readonly passphrase?: string;
  readonly servername?: string;
  readonly rejectUnauthorized?: boolean;
}

/** How a client identifies itself to its brokers. Times in seconds. */
export interface Login {
  readonly clientId: string;
  readonly version: 4 | 5;
  readonly userName: string | undefined;
  readonly password: string | undefined;
  readonly scheme: Scheme;
  readonly path: string;
  readonly tls: Tls | undefined;
  readonly keepAlive: number;
  readonly sessionExpiry: number;
  readonly receiveMaximum: number;
  readonly will: Message | undefined;
  readonly dialTimeout: number;
}

/** How a connection ended. */
export type End =
  | { readonly kind: "lost"; readonly problem: string }
  | { readonly kind: "redirected"; readonly addresses: Address[] }
  | { readonly kind: "refused"; readonly error: Refused }
  | { readonly kind: "takenOver" };

/** What a connection reports to its session. */
export interface Listener {
  /** Whether messages can be accepted. */
  mayRead(): boolean;
  /** The broker has accepted the connection; nothing that it sent after that was processed yet. */
  onAccepted(connection: Connection, connack: IConnackPacket): void;
  /** The messages in flight are acknowledged: now the connection can be used. */
  onReady(connection: Connection): void;
  onMessage(connection: Connection, packet: IPublishPacket): void;
  /** PUBREL: the exchange of a received message of QoS 2 ends. */
  onReleased(packetId: number): void;
  onAcknowledged(connection: Connection, packetId: number, reasonCode: number, user: UserProperties | undefined): void;
  /** The answer to a PINGREQ, on request or of keep alive. */
  onPong(connection: Connection): void;
  /** Writing is possible again. */
  onWritten(connection: Connection): void;
  onEnd(connection: Connection, end: End): void;
}

/** The answer to a SUBSCRIBE of one filter. */
export interface Granted {
  readonly code: number;
  readonly user: UserProperties | undefined;
}

/** Sent messages in flight. */
class Underway extends mqtt.Store {
  readonly packets = new Map<number, Packet>();

  override put(...[packet, callback]: Parameters<mqtt.Store["put"]>): this {
    this.packets.set(packet.messageId ?? 0, packet);
    super.put(packet, callback);
    return this;
  }

  override del(...[packet, callback]: Parameters<mqtt.Store["del"]>): this {
    this.packets.delete(packet.messageId ?? 0);
    super.del(packet, callback);
    return this;
  }

  /** A connection that has ended keeps its messages for the next one. */
  override close(...[callback]: Parameters<mqtt.Store["close"]>): void {
    callback();
  }

  takeFrom(other: Underway): void {
    for (const packet of other.packets.values()) {
      // Another delivery of the same message [MQTT-3.3.1-1].
      this.put(packet.cmd === "publish" ? { ...packet, dup: true } : packet, () => undefined);
    }
  }
}

/** One connection. See the module. */
export class Connection {
  readonly address: Address;
  readonly #login: Login;
  readonly #listener: Listener;
  readonly #client: MqttClient;
  readonly #outgoing = new Underway();
  /** The QoS of received messages that are not handled yet. */
  readonly #received = new WeakMap<IPublishPacket, Qos>();
  /** The broker's limits, from its CONNACK. */
  #limits: NonNullable<IConnackPacket["properties"]> = {};
  #isAccepted = false;
  #isReady = false;
  #hasEnded = false;
  /** Continues with a message that waits for capacity. */
  #held: (() => void) | undefined;
  #pinging: ReturnType<typeof setInterval> | undefined;

  /** Begins to connect. */
  constructor(
    address: Address,
    login: Login,
    cleanStart: boolean,
    user: ReadonlyArray<readonly [string, string]>,
    listener: Listener,
  ) {
    this.address = address;
    this.#login = login;
    this.#listener = listener;
    this.#client = mqtt.connect(this.#options(cleanStart, user));
    // Acknowledgements are small: without this each would wait 40 ms for the previous one.
    (this.#client.stream as { setNoDelay?: (on: boolean) => void }).setNoDelay?.(true);
    this.#client.handleMessage = (packet, done): void => this.#onMessage(packet, done);
    this.#client.on("packetreceive", (packet) => this.#onPacket(packet));
    this.#client.on("connect", () => this.#onReady());
    this.#client.on("error", (error) => this.#end({ kind: "lost", problem: error.message || String(error) }));
    this.#client.on("close", () => this.#end({ kind: "lost", problem: "the connection was closed" }));
  }

  /** Whether the connection can be used. */
  get isReady(): boolean {
    return this.#isReady && !this.#hasEnded;
  }

  /** Whether the CONNECT may have been sent: the broker has the session then, whether it has answered or not. */
  get isDialed(): boolean {
    // For a WebSocket it is not known.
    return (this.#client.stream as { connecting?: boolean }).connecting !== true;
  }

  /** Whether it accepts no more for now, because earlier bytes are still being written. */
  get isCongested(): boolean {
    return this.#client.stream.writableNeedDrain;
  }

  /** The session continues here: messages in flight on `other` are now in flight on this connection. To be called in `onAccepted`. */
  continueFrom(other: Connection): void {
    this.#outgoing.takeFrom(other.#outgoing);
  }

  /** Why a message cannot be sent: the broker would close every connection that sends it. Undefined if it can be sent. */
  refusalOf(message: Message, identity: string | undefined): Refused | undefined {
    const { maximumQoS = 2, retainAvailable = true, maximumPacketSize } = this.#limits;
    if (message.qos > maximumQoS) {
      return new Refused(QOS_NOT_SUPPORTED, `QoS ${message.qos}, the broker allows at most ${maximumQoS}`);
    }
    if (message.retain && !retainAvailable) {
      return new Refused(RETAIN_NOT_SUPPORTED, "the broker retains no messages");
    }
    const size = maximumPacketSize === undefined ? 0 : publishSize(message, identity);
    return size > (maximumPacketSize ?? 0)
      ? new Refused(PACKET_TOO_LARGE, `a packet of ${size} bytes, the broker allows at most ${maximumPacketSize}`)
      : undefined;
  }

  /** Writes a PUBLISH. Returns its packet identifier; 0 for QoS 0. */
  publish(message: Message, identity: string | undefined): number {
    const properties = this.#login.version === 5 ? toProperties(message, identity) : {};
    const options = { qos: message.qos, retain: message.retain, properties };
    this.#client.publish(message.topic, message.payload as Buffer, options);
    return message.qos === 0 ? 0 : this.#client.getLastMessageId();
  }

  /** Subscribes to one filter, which the session may already have if `isDoubtful`. Undefined: the connection ended before the answer. */
  async subscribe(filter: string, how: Subscription, isDoubtful: boolean): Promise<Granted | undefined> {
    return new Promise((resolve) => {
      const { qos, noLocal, retainAsPublished, identifier } = how.options;
      let { retainHandling } = how.options;
      if (how.isMoved) {
        retainHandling = "doNotSend";
      } else if (isDoubtful && retainHandling === "sendAtSubscribe") {
        // The session may have the subscription, so retained messages are wanted only if it is new.
        retainHandling = "sendIfNew";
      }
      const options = {
        ...{ qos, nl: noLocal, rap: retainAsPublished, rh: RETAIN_HANDLING.indexOf(retainHandling) as 0 | 1 | 2 },
        ...(identifier !== undefined && { properties: { subscriptionIdentifier: identifier } }),
      };
      this.#client.subscribe(filter, options, (_error, _granted, packet) => {
        const code = packet?.granted[0];
        resolve(code === undefined ? undefined : { code: Number(code), user: packet?.properties?.userProperties });
      });
    });
  }

  /** Ends subscriptions. Returns whether the broker answered. */
  async unsubscribe(filters: string[]): Promise<boolean> {
    return new Promise((resolve) => {
      this.#client.unsubscribe(filters, (error) => resolve(error === undefined || error === null));
    });
  }

  /** Sends PUBACK or PUBREC. Without a connection the broker sends the message again, on the next one. */
  acknowledge(qos: 1 | 2, messageId: number): void {
    if (this.#isAccepted && !this.#hasEnded) {
      const packet = { cmd: qos === 1 ? "puback" : "pubrec", messageId, reasonCode: 0 } as const;
      this.#client.stream.write(generate(packet, { protocolVersion: this.#login.version }));
    }
  }

  /** The broker broke the protocol. */
  fail(problem: string): void {
    this.#end({ kind: "lost", problem });
  }

  /** Sends a PINGREQ. */
  ping(): void {
    this.#client.sendPing();
  }

  /** Messages can be accepted again. */
  resumeReading(): void {
    const proceed = this.#held;
    this.#release();
    proceed?.();
  }

  /** Sends DISCONNECT; `endsSession` also ends the session at the broker. No more callbacks follow. */
  async disconnect(endsSession: boolean): Promise<void> {
    this.#hasEnded = true;
    this.#release();
    // mqtt.js would wait for missing answers; the caller has already waited.
    Object.keys(this.#client.outgoing).forEach((id) => this.#client.removeOutgoingMessage(Number(id)));
    const properties = endsSession && this.#login.version === 5 ? { properties: { sessionExpiryInterval: 0 } } : {};
    let timer: ReturnType<typeof setTimeout> | undefined;
    await new Promise<void>((resolve) => {
      timer = setTimeout(resolve, DISCONNECT_WAIT_MS);
      this.#client.end(false, { reasonCode: 0, ...properties }, () => resolve());
    });
    clearTimeout(timer);
    this.#client.stream.destroy();
  }

  /** Closes the connection without DISCONNECT. No more callbacks follow. */
  drop(): void {
    this.#hasEnded = true;
    this.#release();
    this.#client.end(true);
  }

  #options(cleanStart: boolean, user: ReadonlyArray<readonly [string, string]>): IClientOptions {
    const { scheme, version, will } = this.#login;
    const { host, port } = splitAddress(this.address);
    const isWebSocket = scheme === "ws" || scheme === "wss";
    const properties = {
      receiveMaximum: this.#login.receiveMaximum,
      ...(this.#login.sessionExpiry > 0 && { sessionExpiryInterval: this.#login.sessionExpiry }),
      ...(user.length > 0 && { userProperties: userObject(user) }),
    };
    return {
      protocol: scheme,
      host: isWebSocket && host.includes(":") ? `[${host}]` : host,
      port,
      protocolVersion: version,
      clientId: this.#login.clientId,
      clean: cleanStart,
      keepalive: this.#login.keepAlive,
      connectTimeout: this.#login.dialTimeout * 1000,
      reconnectPeriod: 0,
      resubscribe: false,
      messageIdProvider: new mqtt.UniqueMessageIdProvider(),
      outgoingStore: this.#outgoing,
      ...(isWebSocket && { path: this.#login.path }),
      ...((scheme === "mqtts" || scheme === "wss") && (this.#login.tls as IClientOptions)),
      ...(this.#login.userName !== undefined && { username: this.#login.userName }),
      ...(this.#login.password !== undefined && { password: this.#login.password }),
      ...(version === 5 && { properties }),
      ...(will !== undefined && { will: this.#will(will) }),
    };
  }

  #will(will: Message): NonNullable<IClientOptions["will"]> {
    const { topic, qos, retain } = will;
    const properties = this.#login.version === 5 ? { properties: toProperties(will) } : {};
    return { topic, payload: will.payload as Buffer, qos, retain, ...properties };
  }

  #onPacket(packet: Packet): void {
    if (this.#hasEnded) {
      return;
    }
    switch (packet.cmd) {
      case "connack":
        this.#onConnack(packet);
        break;
      case "puback":
      case "pubcomp":
        this.#onAcknowledgement(packet);
        break;
      case "pubrec":
        if ((packet.reasonCode ?? 0) >= 0x80) {
          this.#onAcknowledgement(packet);
        }
        break;
      case "publish":
        this.#received.set(packet, packet.qos);
        packet.qos = 0;
        break;
      case "pubrel":
        this.#listener.onReleased(packet.messageId ?? 0);
        break;
      case "pingresp":
        this.#listener.onPong(this);
        break;
      case "disconnect":
        this.#end(this.#endOf(packet.reasonCode ?? 0, packet.properties));
        break;
      default:
    }
  }

  #onConnack(connack: IConnackPacket): void {
    const code = (this.#login.version === 5 ? connack.reasonCode : connack.returnCode) ?? 0;
    if (code === 0) {
      this.#isAccepted = true;
      this.#limits = connack.properties ?? {};
      this.#listener.onAccepted(this, connack);
    } else if (this.#login.version === 5 ? TEMPORARY.has(code) : code === UNAVAILABLE_311) {
      this.#end(this.#endOf(code, connack.properties));
    } else {
      this.#end({ kind: "refused", error: new Refused(code, reasonOf(code)) });
    }
  }

  #onAcknowledgement(packet: { messageId?: number; reasonCode?: number; properties?: unknown }): void {
    const properties = packet.properties as { userProperties?: UserProperties } | undefined;
    this.#listener.onAcknowledged(this, packet.messageId ?? 0, packet.reasonCode ?? 0, properties?.userProperties);
  }

  #endOf(code: number, properties: IDisconnectPacket["properties"] | IConnackPacket["properties"]): End {
    const reference = properties?.serverReference;
    if ((code === USE_ANOTHER_SERVER || code === SERVER_MOVED) && reference !== undefined) {
      const addresses = parseReference(reference, defaultPort(this.#login.scheme));
      return addresses.length > 0
        ? { kind: "redirected", addresses }
        : { kind: "lost", problem: `sent to ${JSON.stringify(reference)}, which is no server` };
    }
    return code === SESSION_TAKEN_OVER ? { kind: "takenOver" } : { kind: "lost", problem: reasonOf(code) };
  }

  #onReady(): void {
    if (!this.#hasEnded) {
      this.#isReady = true;
      this.#client.stream.on("drain", () => this.#listener.onWritten(this));
      this.#listener.onReady(this);
    }
  }

  /** Nothing more is read before `done` is called. */
  #onMessage(packet: IPublishPacket, done: (error?: Error) => void): void {
    if (this.#hasEnded || !this.#client.connected) {
      // The broker sends it again on the next connection.
      done(new Error("the connection has ended"));
    } else if (this.#listener.mayRead()) {
      this.#listener.onMessage(this, { ...packet, qos: this.#received.get(packet) ?? 0 });
      done();
    } else {
      this.#hold(packet, done);
    }
  }

  #hold(packet: IPublishPacket, done: (error?: Error) => void): void {
    // Nothing is read, so answers to PINGREQ are not either. That does not mean that the broker is down.
    const ping = (): void => {
      this.#client.sendPing();
      this.#client.reschedulePing(true);
    };
    const period = (this.#client.keepalive * 1000) / 2;
    this.#pinging = period > 0 ? setInterval(ping, period) : undefined;
    this.#held = (): void => this.#onMessage(packet, done);
  }

  #release(): void {
    clearInterval(this.#pinging);
    this.#held = undefined;
  }

  #end(end: End): void {
    if (!this.#hasEnded) {
      this.drop();
      this.#listener.onEnd(this, end);
    }
  }
}

function reasonOf(code: number): string {
  return mqtt.ReasonCodes[code as keyof typeof mqtt.ReasonCodes] || `reason code ${code}`;
}

/** The error in an answer; undefined if it is not an error. */
export function refusal(code: number): Refused | undefined {
  return code >= 0x80 ? new Refused(code, reasonOf(code)) : undefined;
}
