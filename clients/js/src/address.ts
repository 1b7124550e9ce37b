/** Addresses of brokers. */

/** The most servers of one Server Reference that are read. */
const MOST_SERVERS = 16;

/** How a client reaches its brokers, the same for all. */
export type Scheme = "mqtt" | "mqtts" | "ws" | "wss";

const PORTS: Readonly<Record<Scheme, number>> = { mqtt: 1883, mqtts: 8883, ws: 80, wss: 443 };
const SCHEMES: Readonly<Record<string, Scheme>> = {
  mqtt: "mqtt",
  tcp: "mqtt",
  mqtts: "mqtts",
  ssl: "mqtts",
  tls: "mqtts",
  ws: "ws",
  wss: "wss",
};

/** One broker, as in URLs: HOST:PORT, or [IPv6]:PORT. Equal text is the same broker. */
export type Address = string;

/** The servers that the application named. */
export interface Servers {
  readonly scheme: Scheme;
  /** Of WebSocket. */
  readonly path: string;
  readonly addresses: Address[];
}

/** The default port of an address. */
export function defaultPort(scheme: Scheme): number {
  return PORTS[scheme];
}

/** Host, without brackets, and port. */
export function splitAddress(address: Address): { host: string; port: number } {
  const colon = address.lastIndexOf(":");
  return { host: address.slice(0, colon).replace(/^\[|\]$/g, ""), port: Number(address.slice(colon + 1)) };
}

/** The servers of a Server Reference: HOST, HOST:PORT, [IPv6]:PORT, or several, separated by spaces. Invalid ones are left out. */
export function parseReference(text: string, port: number): Address[] {
  const words = text.split(/\s+/).filter(Boolean).slice(0, MOST_SERVERS);
  return words.map((word) => parseAddress(word, port)).filter((address) => address !== undefined);
}

function parseAddress(word: string, defaultPort: number): Address | undefined {
  const [, host, given] =
    (word.startsWith("[")
      ? /^\[([^\]]+)\](?::(\d+))?$/.exec(word)
      : word.split(":").length > 2
        ? /^(.+)()$/.exec(word)
        : /^([^:]+)(?::(\d+))?$/.exec(word)) ?? [];
  if (host === undefined || /[/@\x00-\x1f\x7f]/.test(host)) {
    return undefined;
  }
  const port = given ? Number(given) : defaultPort;
  if (port <= 0 || port > 65_535) {
    return undefined;
  }
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Reads the URLs of servers; throws RangeError if one is invalid, or has another scheme than the others. */
export function parseServers(urls: readonly string[]): Servers {
  const servers = urls.map(parseServer);
  const [first] = servers;
  if (first === undefined) {
    throw new RangeError("servers: expected at least one URL");
  }
  if (servers.some(({ scheme, path }) => scheme !== first.scheme || path !== first.path)) {
    throw new RangeError("servers: expected one scheme for all, and with WebSocket one path");
  }
  return { scheme: first.scheme, path: first.path, addresses: servers.flatMap(({ addresses }) => addresses) };
}

function parseServer(url: string): Servers {
  const [, name = "", host = "", path = ""] = /^([a-z]+):\/\/([^/?#]+)(\/[^#]*)?$/.exec(url) ?? [];
  if (host.includes("@")) {
    // The URL is not shown: it may have a password.
    throw new RangeError("servers: a URL with a user name: expected userName and password as options");
  }
  const scheme = SCHEMES[name];
  const addresses = scheme === undefined ? [] : parseReference(host, PORTS[scheme]);
  const isWebSocket = scheme === "ws" || scheme === "wss";
  if (scheme === undefined || addresses.length !== 1 || (!isWebSocket && path.replaceAll("/", "") !== "")) {
    const shown = JSON.stringify(url);
    throw new RangeError(
      `servers: ${shown}: expected mqtt://HOST[:PORT], mqtts://, or ws://HOST[:PORT][/PATH], wss://`,
    );
  }
  return { scheme, path: isWebSocket && path.length > 1 ? path : "/mqtt", addresses };
}
