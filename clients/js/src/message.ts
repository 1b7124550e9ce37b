/** A message, sent or received. */

import type { IPublishPacket, UserProperties } from "mqtt-packet";

import type { Receipt } from "./inbound.js";
import { LONGEST, checkText, checkTopic } from "./topics.js";

/** Of the 268,435,455 bytes that a packet may have, some are reserved for topic and properties. */
const LONGEST_PAYLOAD = 268_000_000;
/** A user property that identifies a message when it arrives over two sessions. Our publishers add it at QoS 2. */
const MESSAGE_ID = "thicket-id";

/** Quality of service. */
export type Qos = 0 | 1 | 2;

/** Properties of a message besides its topic and payload. */
export interface MessageOptions {
  readonly qos?: Qos;
  readonly retain?: boolean;
  /** Seconds (5.0). */
  readonly expiry?: number;
  readonly contentType?: string;
  readonly responseTopic?: string;
  readonly correlationData?: Uint8Array;
  /** Pairs of name and value. Those of one name keep their order. */
  readonly userProperties?: Iterable<readonly [string, string]>;
}

/** What only received messages have. */
interface Received {
  readonly isText?: boolean;
  readonly subscriptionIdentifiers?: readonly number[];
}

/** A message that was received, or that will be published. */
export class Message {
  #receipt: Receipt | undefined;
  readonly topic: string;
  readonly payload: Uint8Array;
  readonly qos: Qos;
  readonly retain: boolean;
  /** Whether the payload is marked as text (Payload Format Indicator). */
  readonly isText: boolean;
  /** Seconds (5.0). */
  readonly expiry: number | undefined;
  readonly contentType: string | undefined;
  readonly responseTopic: string | undefined;
  readonly correlationData: Uint8Array | undefined;
  readonly userProperties: ReadonlyArray<readonly [string, string]>;
  /** Of a received message: the identifiers of the subscriptions that it matches, of those that have one. */
  readonly subscriptionIdentifiers: readonly number[];

  constructor(topic: string, payload: Uint8Array | string = "", options: MessageOptions & Received = {}) {
    this.topic = topic;
    this.payload = typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
    this.qos = options.qos ?? 0;
    this.retain = options.retain ?? false;
    this.isText = options.isText ?? typeof payload === "string";
    this.expiry = options.expiry;
    this.contentType = options.contentType;
    this.responseTopic = options.responseTopic;
    this.correlationData = options.correlationData;
    this.subscriptionIdentifiers = options.subscriptionIdentifiers ?? [];
    this.userProperties = [...(options.userProperties ?? [])];
  }

  /** @internal */
  static received(
    receipt: Receipt | undefined,
    ...[topic, payload, options]: ConstructorParameters<typeof Message>
  ): Message {
    const message = new Message(topic, payload, options);
    message.#receipt = receipt;
    return message;
  }

  /**
   * Acknowledges a received message of QoS 1 or 2 once.
   *
   * Acknowledgements are sent in the order in which the messages arrived in their session: one that is missing holds back those
   * after it. On a connection that has ended it has no effect at QoS 1: the message comes again.
   */
  acknowledge(): void {
    this.#receipt?.acknowledge();
  }

  /** The payload as text; throws TypeError if it is not text. */
  get text(): string {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.payload);
  }
}

/** Throws RangeError that names the field if a message cannot be sent. */
export function checkMessage(message: Message): void {
  const { topic, payload, qos, expiry, contentType, responseTopic, correlationData, userProperties } = message;
  checkTopic(topic);
  checkQos(qos);
  if (!(payload instanceof Uint8Array)) {
    throw new TypeError(`payload: ${typeof payload}: expected text or a Uint8Array`);
  }
  if (payload.length > LONGEST_PAYLOAD) {
    throw new RangeError(`payload: ${payload.length} bytes: expected at most ${LONGEST_PAYLOAD}`);
  }
  if (expiry !== undefined && !(Number.isInteger(expiry) && expiry >= 0 && expiry < 2 ** 32)) {
    throw new RangeError(`expiry: ${expiry}: expected whole seconds, 0 to ${2 ** 32 - 1}`);
  }
  if (responseTopic !== undefined) {
    checkTopic(responseTopic);
  }
  if (correlationData !== undefined && correlationData.length > LONGEST) {
    throw new RangeError(`correlationData: ${correlationData.length} bytes: expected at most ${LONGEST}`);
  }
  checkText(contentType ?? "", "contentType");
  userProperties.flat().forEach((text) => checkText(text, "userProperties"));
}

/** Throws RangeError unless `qos` is 0, 1 or 2. */
export function checkQos(qos: number): void {
  if (qos !== 0 && qos !== 1 && qos !== 2) {
    throw new RangeError(`qos: ${JSON.stringify(qos)}: expected 0, 1 or 2`);
  }
}

/** The received message, and the identity that its publisher gave it. */
export function received(
  packet: IPublishPacket,
  receipt: Receipt | undefined,
): { message: Message; identity: string | undefined } {
  const properties = packet.properties ?? {};
  const user = userPairs(properties.userProperties);
  const payload = typeof packet.payload === "string" ? new TextEncoder().encode(packet.payload) : packet.payload;
  const options = {
    qos: packet.qos,
    retain: packet.retain,
    isText: Boolean(properties.payloadFormatIndicator),
    subscriptionIdentifiers: [properties.subscriptionIdentifier ?? []].flat(),
    userProperties: user.filter(([name]) => name !== MESSAGE_ID),
    ...given({
      expiry: properties.messageExpiryInterval,
      contentType: properties.contentType,
      responseTopic: properties.responseTopic,
      correlationData: properties.correlationData,
    }),
  };
  return {
    message: Message.received(receipt, packet.topic, payload, options),
    identity: user.find(([name]) => name === MESSAGE_ID)?.[1],
  };
}

/** The properties of the PUBLISH, or of a will. */
export function toProperties(message: Message, identity?: string): NonNullable<IPublishPacket["properties"]> {
  const user: Array<readonly [string, string]> = [...message.userProperties];
  if (identity !== undefined) {
    user.push([MESSAGE_ID, identity]);
  }
  return given({
    messageExpiryInterval: message.expiry,
    payloadFormatIndicator: message.isText || undefined,
    contentType: message.contentType,
    responseTopic: message.responseTopic,
    correlationData: message.correlationData as Buffer | undefined,
    userProperties: user.length > 0 ? userObject(user) : undefined,
  });
}

/** Bytes of the PUBLISH (5.0). */
export function publishSize(message: Message, identity: string | undefined): number {
  const text = (value: string): number => 2 + new TextEncoder().encode(value).length;
  const { expiry, isText, contentType, responseTopic, correlationData, userProperties } = message;
  const user = identity === undefined ? userProperties : [...userProperties, [MESSAGE_ID, identity] as const];
  const properties =
    (expiry === undefined ? 0 : 5) +
    (isText ? 2 : 0) +
    (contentType === undefined ? 0 : 1 + text(contentType)) +
    (responseTopic === undefined ? 0 : 1 + text(responseTopic)) +
    (correlationData === undefined ? 0 : 3 + correlationData.length) +
    user.reduce((sum, [name, value]) => sum + 1 + text(name) + text(value), 0);
  const rest = text(message.topic) + (message.qos > 0 ? 2 : 0) + message.payload.length;
  return withLength(withLength(properties) + rest) + 1;
}

/** A part of a packet, preceded by its length as a variable byte integer. */
function withLength(bytes: number): number {
  return bytes + 1 + Number(bytes >= 1 << 7) + Number(bytes >= 1 << 14) + Number(bytes >= 1 << 21);
}

/** User properties in the form of the codec. */
export function userObject(pairs: Iterable<readonly [string, string]>): UserProperties {
  const properties: Record<string, string[]> = Object.create(null);
  for (const [name, value] of pairs) {
    (properties[name] ??= []).push(value);
  }
  return properties;
}

/** User properties as pairs. */
export function userPairs(properties: UserProperties | undefined): Array<[string, string]> {
  return Object.entries(properties ?? {}).flatMap(([name, values]) =>
    [values].flat().map((value): [string, string] => [name, value]),
  );
}

type Given<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Without the keys that have no value. */
function given<T extends object>(values: T): Given<T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Given<T>;
}
