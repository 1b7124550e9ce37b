/** The contract with the control plane (docs/clients.md): requests and answers. */

import type { Address, Scheme } from "./address.js";
import { defaultPort, parseReference } from "./address.js";
import { isExact, overlap } from "./topics.js";

/** User properties of CONNECT that request a placement; the first two once for each topic or filter. */
const PUBLISH = "thicket-publish";
const SUBSCRIBE = "thicket-subscribe";
const MAX_SESSIONS = "thicket-max-sessions";
const RATES = "thicket-rates";
/** In CONNACK: the answer. */
export const PLACEMENT = "thicket-placement";
/** In CONNECT: the client follows it. In SUBACK and PUBACK: a better node. */
export const PLACE = "thicket-place";
/** In CONNECT: the number of redirections in a row that led here. */
export const REDIRECTED = "thicket-redirected";

/** A request to the control plane. */
export interface Request {
  readonly client_id: string;
  readonly publish: readonly string[];
  readonly subscribe: readonly string[];
  readonly max_sessions: number;
  readonly rates: Readonly<Record<string, number>>;
}

/**
 * A request without entries for which it would be refused. Shared subscriptions are not placed; they stay in their session.
 * Rates are only those of topics in the request.
 */
export function toRequest(
  clientId: string,
  publish: readonly string[],
  wanted: readonly string[],
  maxSessions: number,
  rates: Readonly<Record<string, number>>,
): Request {
  const subscribe = wanted.filter((filter) => !filter.startsWith("$share/"));
  const named = new Set([...publish, ...subscribe]);
  return {
    client_id: clientId,
    publish,
    subscribe,
    max_sessions: maxSessions,
    rates: Object.fromEntries(Object.entries(rates).filter(([topic]) => named.has(topic))),
  };
}

/** The user properties of a CONNECT with the same request. */
export function requestProperties(request: Request): Array<[string, string]> {
  const properties: Array<[string, string]> = [[MAX_SESSIONS, String(request.max_sessions)]];
  properties.push(...request.publish.map((topic): [string, string] => [PUBLISH, topic]));
  properties.push(...request.subscribe.map((filter): [string, string] => [SUBSCRIBE, filter]));
  if (Object.keys(request.rates).length > 0) {
    properties.push([RATES, JSON.stringify(request.rates)]);
  }
  return properties;
}

/** A topic or filter of a request, by its list. */
export interface Entry {
  readonly list: "publish" | "subscribe";
  readonly name: string;
}

/** The topic or filter that a problem document (RFC 9457) refuses, by its field, such as `publish[1]`. */
export function refusedEntry(request: Request, answer: string): Entry | undefined {
  let problem: unknown;
  try {
    problem = JSON.parse(answer);
  } catch {
    return undefined;
  }
  const field = isObject(problem) ? problem["field"] : undefined;
  const found = typeof field === "string" ? /^(publish|subscribe)\[(\d{1,9})\]$/.exec(field) : null;
  const list = found?.[1] === "publish" ? "publish" : "subscribe";
  const name = found === null ? undefined : request[list][Number(found[2])];
  return name === undefined ? undefined : { list, name };
}

/** One session of the client. A session without topics still holds messages: it is read to its end, and then left. */
export interface Placed {
  /** Where; undefined if its node has no listener of the client's kind. */
  readonly address: Address | undefined;
  readonly publish: readonly string[];
  subscribe: string[];
}

/** The field of an answer that has the address, by scheme. */
const FIELDS: Readonly<Record<Scheme, string>> = { mqtt: "address", mqtts: "tls", ws: "ws", wss: "wss" };

/** The name of session `number`, from 1. */
export function sessionName(clientId: string, number: number): string {
  return number === 1 ? clientId : `${clientId}~${number}`;
}

/** Reads and checks an answer, by number of session; RangeError if it cannot be followed. Filters that overlap are put together. */
export function parseAnswer(text: string, clientId: string, maximum: number, scheme: Scheme): Map<number, Placed> {
  const placed = new Map<number, Placed>();
  for (const session of sessionsOf(text)) {
    const name = textOf(session["client_id"]);
    const number = sessionNumber(clientId, name);
    if (placed.has(number)) {
      throw new RangeError(`the placement names the session ${JSON.stringify(name)} twice`);
    }
    const reference = session[FIELDS[scheme]] ?? undefined;
    placed.set(number, {
      address: reference === undefined ? undefined : parseReference(textOf(reference), defaultPort(scheme))[0],
      publish: textsOf(session["publish"]),
      subscribe: textsOf(session["subscribe"]),
    });
  }
  const serving = [...placed.values()].filter(({ publish, subscribe }) => publish.length + subscribe.length > 0).length;
  if (placed.size === 0 || serving > maximum) {
    throw new RangeError(`the placement has ${placed.size} sessions, expected 1 to ${maximum}`);
  }
  const named = [...placed].flatMap(([number, { subscribe }]) => subscribe.map((it): [string, number] => [it, number]));
  const homes = unite(new Map(named));
  for (const [number, session] of placed) {
    session.subscribe = [...homes].filter(([, home]) => home === number).map(([filter]) => filter);
  }
  return placed;
}

function sessionsOf(text: string): Array<Record<string, unknown>> {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new RangeError("the placement is no JSON");
  }
  const sessions = isObject(answer) ? answer["sessions"] : undefined;
  const words = isObject(answer) ? (answer["detail"] ?? answer["title"]) : undefined;
  if (sessions === undefined && words !== undefined) {
    throw new RangeError(`refused by the control plane: ${words}`);
  }
  if (!Array.isArray(sessions) || !sessions.every(isObject)) {
    throw new RangeError("the placement is no JSON of the kind expected: sessions");
  }
  return sessions;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function textOf(value: unknown): string {
  if (typeof value !== "string") {
    throw new RangeError(`the placement is no JSON of the kind expected: ${JSON.stringify(value)} is no text`);
  }
  return value;
}

function textsOf(value: unknown): string[] {
  if (value !== undefined && !Array.isArray(value)) {
    throw new RangeError(`the placement is no JSON of the kind expected: ${JSON.stringify(value)} is no list`);
  }
  return (value ?? []).map(textOf);
}

function sessionNumber(clientId: string, name: string): number {
  if (name === clientId) {
    return 1;
  }
  const found = name.startsWith(clientId) ? /^~([1-9][0-9]{0,2})$/.exec(name.slice(clientId.length)) : null;
  if (found === null || found[1] === "1") {
    const shown = JSON.stringify(name);
    throw new RangeError(
      `the placement names the session ${shown}, expected the client identifier or it with ~2 and so on`,
    );
  }
  return Number(found[1]);
}

/** Two sessions with filters that match the same topic would each receive its messages. So such filters get one home, that of the first. */
export function unite(homes: ReadonlyMap<string, number>): Map<string, number> {
  const united = new Map(homes);
  const order = [...united.keys()];
  const wild = order.filter((filter) => !isExact(filter));
  let hasChanged = true;
  while (hasChanged) {
    hasChanged = false;
    for (const one of wild) {
      for (const other of order) {
        if (united.get(one) !== united.get(other) && overlap(one, other)) {
          const [first, second] = order.indexOf(one) < order.indexOf(other) ? [one, other] : [other, one];
          united.set(second, united.get(first) as number);
          hasChanged = true;
        }
      }
    }
  }
  return united;
}

/** Each once, in a fixed order. */
export function sortedUnique(topics: Iterable<string>): string[] {
  return [...new Set(topics)].sort();
}
