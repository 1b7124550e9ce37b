/** The options of a client. */

import { type Address, type Scheme, parseServers } from "./address.js";
import type { Tls } from "./connection.js";
import { Message, type Qos, checkMessage } from "./message.js";
import { type Chosen, type SubscriptionOptions, chosen } from "./subscription.js";
import { LONGEST, checkFilter, checkText } from "./topics.js";

/** The most sessions that a client may request. */
const MOST_SESSIONS = 16;
const MOST_PER_S = 1_000_000_000;
export const IS_BROWSER = typeof process === "undefined" || process.versions?.node === undefined;

/** Who decides where to connect: the broker itself, in the CONNECT of the first session; control planes, by URL; or nobody. */
export type Placement = "mqtt" | readonly string[] | null;

/**
 * When a received message of QoS 1 or 2 is acknowledged: when the application asks for the next one, by `Message.acknowledge` only,
 * or when it arrives.
 */
export type Acknowledge = "next" | "manual" | "arrival";
const ACKNOWLEDGE: readonly unknown[] = ["next", "manual", "arrival"];
/** The most that a Receive Maximum can be. */
const MOST_UNACKNOWLEDGED = 0xffff;

/** The options of a client besides its servers. Times are in seconds. */
export interface Options {
  /** Of the first session; if empty, one is drawn at random. Further sessions are named `ID~2`, `ID~3` and so on. */
  readonly clientId?: string;
  /** 5 (5.0) or 4 (3.1.1): then there is one session, no placement and no redirection. */
  readonly version?: 4 | 5;
  readonly userName?: string;
  readonly password?: string;
  /** For `mqtts` and `wss` and for control planes at `https`, in Node. */
  readonly tls?: Tls;
  /** Of the first session. */
  readonly will?: Message;
  readonly keepAlive?: number;
  /** How long the broker keeps the sessions of a client that is not connected. */
  readonly sessionExpiry?: number;
  /** Resume the session of an earlier run, and leave it at the broker when the client closes. */
  readonly resume?: boolean;
  readonly placement?: Placement;
  /** 1 to 16. */
  readonly maxSessions?: number;
  /** Topics or filters that will be published to, for the placement; others may be used too. */
  readonly publish?: Iterable<string>;
  /** What to subscribe to from the beginning. */
  readonly subscribe?: Readonly<Record<string, Qos | SubscriptionOptions>>;
  /** Messages a second by topic, for the placement. */
  readonly rates?: Readonly<Record<string, number>>;
  /** When a message of QoS 1 or 2 is acknowledged. With `"arrival"` the receive queue is lost if the process ends. */
  readonly acknowledge?: Acknowledge;
  /**
   * Messages of QoS 1 and 2 that a broker may send before they are acknowledged (Receive Maximum), for each session. As many of
   * QoS 0 wait for the application, with `"arrival"` and with 3.1.1 of any QoS; then no more is read from the broker.
   */
  readonly receiveQueue?: number;
  /** Messages that wait to be sent, in each session; at this number `publish` waits. */
  readonly sendQueue?: number;
  /** How long a connection to one address may take, CONNACK included. */
  readonly dialTimeout?: number;
  /** How long `connect` tries. */
  readonly connectTimeout?: number;
  /** Longest pause before the second attempt to connect again; it doubles with each. */
  readonly firstPause?: number;
  /** Longest pause of all. Each pause is drawn evenly between 0 and its length. */
  readonly longestPause?: number;
  /** How long a session that lost a subscription must be silent before it counts as read to its end. */
  readonly quiet?: number;
}

/** Checked, with nothing left out. */
export interface Settings {
  readonly scheme: Scheme;
  readonly path: string;
  readonly addresses: Address[];
  readonly clientId: string;
  readonly version: 4 | 5;
  readonly userName: string | undefined;
  readonly password: string | undefined;
  readonly tls: Tls | undefined;
  readonly will: Message | undefined;
  readonly keepAlive: number;
  readonly sessionExpiry: number;
  readonly resume: boolean;
  readonly placement: Placement;
  readonly maxSessions: number;
  readonly publish: readonly string[];
  readonly subscribe: ReadonlyMap<string, Chosen>;
  readonly rates: Readonly<Record<string, number>>;
  readonly acknowledge: Acknowledge;
  readonly receiveQueue: number;
  readonly sendQueue: number;
  readonly dialTimeout: number;
  readonly connectTimeout: number;
  readonly firstPause: number;
  readonly longestPause: number;
  readonly quiet: number;
}

/** Checks options; RangeError that names the key if one is invalid. */
export function check(servers: string | readonly string[], options: Options): Settings {
  checkTypes(servers, options);
  const { scheme, path, addresses } = parseServers(typeof servers === "string" ? [servers] : servers);
  const version = options.version ?? 5;
  if (version !== 4 && version !== 5) {
    throw new RangeError(`version: ${JSON.stringify(version)}: expected 4 (3.1.1) or 5 (5.0)`);
  }
  const settings: Settings = {
    scheme,
    path,
    addresses,
    clientId: options.clientId || `thicket-${randomName()}`,
    version,
    userName: options.userName,
    password: options.password,
    tls: options.tls,
    will: options.will,
    keepAlive: options.keepAlive ?? 60,
    sessionExpiry: options.sessionExpiry ?? 300,
    resume: options.resume ?? false,
    placement: options.version === 4 || options.placement === null ? null : (options.placement ?? "mqtt"),
    maxSessions: options.maxSessions ?? 4,
    publish: [...(options.publish ?? [])],
    subscribe: new Map(
      Object.entries(options.subscribe ?? {}).map(([filter, how]) => [filter, chosen(filter, how, version)]),
    ),
    rates: { ...options.rates },
    acknowledge: options.acknowledge ?? "next",
    receiveQueue: options.receiveQueue ?? 1024,
    sendQueue: options.sendQueue ?? 256,
    dialTimeout: options.dialTimeout ?? 3,
    connectTimeout: options.connectTimeout ?? 20,
    firstPause: options.firstPause ?? 0.1,
    longestPause: options.longestPause ?? 10,
    quiet: options.quiet ?? 0.5,
  };
  checkNames(options, settings);
  checkLogin(settings);
  checkNumbers(settings);
  if (IS_BROWSER && scheme !== "ws" && scheme !== "wss") {
    throw new RangeError(`servers: ${scheme}: expected ws or wss, as a browser has WebSocket only`);
  }
  if (settings.resume && !(options.clientId && settings.sessionExpiry)) {
    throw new RangeError("resume: expected a clientId, and a sessionExpiry above 0");
  }
  if (!ACKNOWLEDGE.includes(settings.acknowledge)) {
    throw new RangeError(
      `acknowledge: ${JSON.stringify(settings.acknowledge)}: expected "next", "manual" or "arrival"`,
    );
  }
  checkPlacement(options.placement);
  settings.publish.forEach(checkFilter);
  if (settings.will !== undefined) {
    checkMessage(settings.will);
  }
  return settings;
}

/** TypeError that names the option. */
function checkTypes(servers: unknown, options: Options): void {
  const isText = (it: unknown): boolean => typeof it === "string";
  const expect = (name: string, value: unknown, isExpected: boolean, expected: string): void => {
    if (value !== undefined && !isExpected) {
      throw new TypeError(`${name}: ${value === null ? "null" : typeof value}: expected ${expected}`);
    }
  };
  expect("servers", servers ?? null, isText(servers) || (Array.isArray(servers) && servers.every(isText)), "URLs");
  const { will, publish, subscribe, rates, tls } = options;
  const asText = ["clientId", "userName", "password"] as const;
  asText.forEach((name) => expect(name, options[name], isText(options[name]), "text"));
  const asNumber = [
    "keepAlive", "sessionExpiry", "maxSessions", "receiveQueue", "sendQueue",
    "dialTimeout", "connectTimeout", "firstPause", "longestPause", "quiet",
  ] as const; // prettier-ignore
  asNumber.forEach((name) => expect(name, options[name], typeof options[name] === "number", "a number"));
  expect("resume", options.resume, typeof options.resume === "boolean", "true or false");
  expect("will", will, will instanceof Message, "a Message");
  // A text would be taken for a list of topics of one character each.
  const isList = typeof publish === "object" && publish !== null && Symbol.iterator in publish;
  expect("publish", publish, isList, "a list of topics");
  const isObject = (it: unknown): boolean => typeof it === "object" && it !== null && !Array.isArray(it);
  expect("subscribe", subscribe, isObject(subscribe), "an object of filters");
  expect("rates", rates, isObject(rates), "an object of topics");
  expect("tls", tls, isObject(tls), "an object");
}

/** Our Receive Maximum, for each session. */
export function receiveMaximum({ receiveQueue }: Settings): number {
  return Math.min(receiveQueue, MOST_UNACKNOWLEDGED);
}

/** Otherwise a misspelt option would be ignored silently. */
function checkNames(options: Options, settings: Settings): void {
  const ofServers = ["scheme", "path", "addresses"];
  const names = Object.keys(settings).filter((name) => !ofServers.includes(name));
  const unknown = Object.keys(options).find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw new RangeError(`${unknown}: expected one of ${names.join(", ")}`);
  }
}

function checkLogin({ clientId, userName = "", password = "" }: Settings): void {
  checkText(clientId, "clientId:");
  checkText(userName, "userName:");
  if (new TextEncoder().encode(password).length > LONGEST) {
    throw new RangeError(`password: expected at most ${LONGEST} bytes`);
  }
}

function checkPlacement(placement: unknown): void {
  if (placement === undefined || placement === null || placement === "mqtt") {
    return;
  }
  const isUrl = (it: unknown): boolean => typeof it === "string" && /^https?:\/\/[^/]/.test(it);
  if (!Array.isArray(placement) || placement.length === 0 || !placement.every(isUrl)) {
    const shown = JSON.stringify(placement);
    throw new RangeError(`placement: ${shown}: expected "mqtt", a list of URLs such as http://HOST:PORT, or null`);
  }
}

function checkNumbers(settings: Settings): void {
  for (const name of ["receiveQueue", "sendQueue", "maxSessions"] as const) {
    if (!(Number.isInteger(settings[name]) && settings[name] >= 1)) {
      throw new RangeError(`${name}: ${settings[name]}: expected a whole number, at least 1`);
    }
  }
  if (settings.maxSessions > MOST_SESSIONS) {
    throw new RangeError(`maxSessions: ${settings.maxSessions}: expected 1 to ${MOST_SESSIONS}`);
  }
  for (const [topic, rate] of Object.entries(settings.rates)) {
    if (!(rate >= 0 && rate <= MOST_PER_S)) {
      throw new RangeError(`rates: ${rate} for ${JSON.stringify(topic)}: expected 0 to ${MOST_PER_S} a second`);
    }
  }
  for (const [name, most] of [
    ["keepAlive", 0xffff],
    ["sessionExpiry", 0xffff_ffff],
  ] as const) {
    if (!(Number.isInteger(settings[name]) && settings[name] >= 0 && settings[name] <= most)) {
      throw new RangeError(`${name}: ${settings[name]}: expected whole seconds, 0 to ${most}`);
    }
  }
  for (const name of ["dialTimeout", "connectTimeout", "firstPause", "longestPause", "quiet"] as const) {
    if (!(settings[name] >= 0)) {
      throw new RangeError(`${name}: ${settings[name]}: expected seconds, 0 or more`);
    }
  }
}

/** A random name that is unique in practice. */
export function randomName(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
