/** Nodes that are processes of their own, Mosquitto, and a control plane that answers what it was told to. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { connect, createServer } from "node:net";
import { fileURLToPath } from "node:url";

const REPOSITORY = fileURLToPath(new URL("../../../../", import.meta.url));
const BINARY = process.env.THICKET_BIN ?? `${REPOSITORY}target/release/thicket`;
/** Longer than anything takes on a loaded machine; reached only when a test fails. */
export const TIMEOUT_MS = 60_000;
const START_ATTEMPTS = 3;
const MOSQUITTO = ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto", "/opt/homebrew/sbin/mosquitto"].find(existsSync);

/** @typedef {import("node:test").TestContext} TestContext */

/** @param {number} milliseconds */
export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/**
 * Asks again and again until it is true; for states of which no event tells.
 * @param {() => boolean | Promise<boolean>} condition
 * @param {string} what
 */
export async function waitUntil(condition, what) {
  const deadline = Date.now() + TIMEOUT_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) {
      throw new Error(`waited in vain: ${what}`);
    }
    await sleep(20);
  }
}

/** A port nobody listens on at the moment. */
export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  server.close();
  await once(server, "close");
  return port;
}

/** One broker process. */
export class Node {
  log = "";
  ports = { mqtt: 0, ws: 0, http: 0 };

  /**
   * @param {string} name
   * @param {{mqtt: number, ws: number, http: number}} ports
   * @param {readonly number[]} seeds
   * @param {readonly string[]} more arguments
   */
  constructor(name, ports, seeds, more) {
    this.ports = ports;
    const listeners = ["--listen", `127.0.0.1:${ports.mqtt}`, "--listen", `ws://127.0.0.1:${ports.ws}`];
    const peers = seeds.flatMap((port) => ["--seed", `127.0.0.1:${port}`]);
    const others = ["--http", `127.0.0.1:${ports.http}`, "--discover", "off", "--expect-nodes", "1", "--workers", "1"];
    // A developer's own settings must not change what is tested.
    const inherited = Object.fromEntries(Object.entries(process.env).filter(([key]) => !key.startsWith("THICKET_")));
    // Round trips on a busy machine are those of several sites, between which clients are not placed.
    const env = { ...inherited, THICKET_SITE: "here" };
    const command = ["broker", "--name", name, ...listeners, ...others, ...peers, ...more];
    this.process = spawn(BINARY, command, { env, stdio: ["ignore", "pipe", "pipe"] });
    this.ended = once(this.process, "exit");
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream.on("data", (data) => (this.log += data));
    }
  }

  get address() {
    return `127.0.0.1:${this.ports.mqtt}`;
  }

  get url() {
    return `mqtt://${this.address}`;
  }

  get webSocketUrl() {
    return `ws://127.0.0.1:${this.ports.ws}`;
  }

  get api() {
    return `http://127.0.0.1:${this.ports.http}`;
  }

  get isAlive() {
    return this.process.exitCode === null && this.process.signalCode === null;
  }

  /** @param {string} path */
  async ask(path) {
    const answer = await fetch(this.api + path).catch(() => undefined);
    return answer?.ok ? answer.text() : undefined;
  }

  /**
   * Whether it is ready and sees so many nodes.
   * @param {number} size
   */
  async isReady(size) {
    /** @type {{reachable: boolean}[]} */
    const nodes =
      (await this.ask("/v1/health/ready")) === undefined ? [] : JSON.parse((await this.ask("/v1/nodes")) ?? "[]");
    return nodes.filter(({ reachable }) => reachable).length >= size;
  }

  /** Sends all its clients to the other nodes. */
  async drain() {
    const command = ["ctl", "--api", `127.0.0.1:${this.ports.http}`, "drain", "--timeout", "20"];
    const [code] = await once(spawn(BINARY, command, { stdio: "ignore" }), "exit");
    if (code !== 0) {
      throw new Error(`the node was not drained: ${this.log}`);
    }
  }

  /** The process ends at once and says goodbye to nobody. */
  async kill() {
    this.process.kill("SIGKILL");
    await this.ended;
  }
}

/**
 * Nodes that all see each other; they end with the test.
 * @param {TestContext} test
 * @param {number} size
 * @param {readonly string[]} more arguments
 */
export async function startCluster(test, size, more = []) {
  for (let attempt = 1; ; attempt += 1) {
    /** @type {Node[]} */
    const nodes = [];
    for (let number = 1; number <= size; number += 1) {
      const ports = { mqtt: await freePort(), ws: await freePort(), http: await freePort() };
      const seeds = nodes.map((node) => node.ports.mqtt);
      nodes.push(new Node(`node-${number}`, ports, seeds, more));
    }
    const hasFailed = () => nodes.some((node) => !node.isAlive);
    const isReady = async () => (await Promise.all(nodes.map((node) => node.isReady(size)))).every(Boolean);
    const end = () => Promise.all(nodes.map((node) => node.kill()));
    await waitUntil(async () => hasFailed() || isReady(), "a cluster").catch(() => undefined);
    if (!hasFailed() && (await isReady())) {
      test.after(end);
      return nodes;
    }
    // Somebody else may have taken a port between our looking for it and the node's listening.
    await end();
    if (attempt === START_ATTEMPTS) {
      throw new Error(`no cluster: ${nodes.map((node) => node.log).join("\n")}`);
    }
  }
}

/**
 * A plain broker, on a port of its own; undefined if Mosquitto is not installed.
 * @param {TestContext} test
 */
export async function startMosquitto(test) {
  if (MOSQUITTO === undefined) {
    return undefined;
  }
  const port = await freePort();
  const process = spawn(MOSQUITTO, ["-p", String(port)], { stdio: "ignore" });
  const ended = once(process, "exit");
  test.after(async () => {
    process.kill("SIGKILL");
    await ended;
  });
  await waitUntil(() => listens(port), "Mosquitto to listen");
  return port;
}

/**
 * @param {number} port
 * @returns {Promise<boolean>}
 */
function listens(port) {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("error", () => resolve(false));
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
  });
}

/**
 * @typedef {[name: string, address: string, publish: readonly string[], subscribe: readonly string[]]} Placed
 * An answer: of each session its name, where, what it publishes and what it subscribes to.
 * @param {...Placed} sessions
 */
export function placement(...sessions) {
  return {
    sessions: sessions.map(([client_id, address, publish, subscribe]) => ({
      node: "n", address, tls: null, ws: null, wss: null, client_id, publish, subscribe,
    })), // prettier-ignore
  };
}

/**
 * What is answered to a request with a topic or filter that the client may not use.
 * @param {string} field
 */
export function problem(field) {
  return { status: 422, detail: `${field}: the client may not use it`, field };
}

/** A control plane that answers what it was told to; undefined is a refusal. */
export class Control {
  /** @type {object | undefined} */
  answer = undefined;
  /** @type {string[]} A request with one of these is refused by its field. */
  denied = [];
  /** @type {{subscribe: string[], publish: string[]}[]} */
  requests = [];
  /** @type {(string | undefined)[]} Their `Authorization`. */
  authorizations = [];
  url = "";

  /** @param {TestContext} test */
  static async start(test) {
    const control = new Control();
    const server = createHttpServer(async (request, response) => {
      let body = "";
      for await (const part of request) {
        body += part;
      }
      const asked = JSON.parse(body);
      control.requests.push(asked);
      control.authorizations.push(request.headers.authorization);
      const named = ["publish", "subscribe"].flatMap((list) =>
        asked[list].map((/** @type {string} */ name, /** @type {number} */ at) => ({ name, field: `${list}[${at}]` })),
      );
      const field = named.find(({ name }) => control.denied.includes(name))?.field;
      const answer = field ? problem(field) : (control.answer ?? { title: "refused", detail: "subscribe: no" });
      const status = field ? 422 : control.answer === undefined ? 400 : 200;
      response
        .writeHead(status, { "content-type": "application/json", connection: "close" })
        .end(JSON.stringify(answer));
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    test.after(() => server.close());
    control.url = `http://127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (server.address()).port}`;
    return control;
  }
}
