/** A broker made by hand: MQTT 5.0 as far as the tests need it. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { createServer as createTlsServer } from "node:tls";

import { generate, parser } from "mqtt-packet";

import { TIMEOUT_MS } from "./nodes.js";

/** @typedef {import("mqtt-packet").Packet} Packet */
/** @template {Packet["cmd"]} Kind @typedef {Extract<Packet, {cmd: Kind}>} Of */

const VERSION_5 = { protocolVersion: 5 };

/** Values that come and are waited for. @template T */
class Queue {
  /** @type {T[]} */
  #values = [];
  #grown = () => {};

  /** @param {T} value */
  push(value) {
    this.#values.push(value);
    this.#grown();
  }

  get length() {
    return this.#values.length;
  }

  /** @param {string} what @returns {Promise<T>} */
  async next(what) {
    while (this.#values.length === 0) {
      await new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`waited in vain: ${what}`)), TIMEOUT_MS);
        this.#grown = () => {
          clearTimeout(timer);
          resolve(undefined);
        };
      });
    }
    return /** @type {T} */ (this.#values.shift());
  }
}

/** A client at the broker made by hand. */
export class HandConnection {
  /** @type {Queue<Packet>} */
  #packets = new Queue();
  /** @type {import("node:net").Socket} */
  #socket;
  /** @type {Of<"connect">} */
  connect;

  /** @param {import("node:net").Socket} socket @param {Of<"connect">} connect */
  constructor(socket, connect) {
    this.#socket = socket;
    this.connect = connect;
  }

  /** @param {Packet} packet */
  push(packet) {
    this.#packets.push(packet);
  }

  /**
   * The next packet; it must be of this kind.
   * @template {Packet["cmd"]} Kind
   * @param {Kind} kind
   * @returns {Promise<Of<Kind>>}
   */
  async expect(kind) {
    const packet = await this.#packets.next(kind);
    assert.equal(packet.cmd, kind, JSON.stringify(packet));
    return /** @type {Of<Kind>} */ (packet);
  }

  /** Whether the CONNECT has this user property. @param {string} name @param {string} value */
  says(name, value) {
    return [this.connect.properties?.userProperties?.[name]].flat().includes(value);
  }

  /** @param {...Packet} packets */
  write(...packets) {
    const bytes = Buffer.concat(packets.map((packet) => generate(packet, VERSION_5)));
    assert.ok(bytes.length > 0, "a packet that cannot be written");
    this.#socket.write(bytes);
  }

  /** @param {{sessionPresent?: boolean, user?: Record<string, string>, others?: object}} how */
  accept({ sessionPresent = false, user = {}, others = {} } = {}) {
    const properties = { ...others, ...(Object.keys(user).length > 0 && { userProperties: user }) };
    this.write({ cmd: "connack", sessionPresent, reasonCode: 0, properties });
  }

  /** @param {number} reasonCode @param {string} [serverReference] */
  refuse(reasonCode, serverReference) {
    const properties = serverReference === undefined ? {} : { serverReference };
    this.write({ cmd: "connack", sessionPresent: false, reasonCode, properties });
  }

  /** @param {Of<"subscribe">} request @param {number} code @param {string} [place] */
  grant({ messageId }, code, place) {
    const properties = place === undefined ? {} : { userProperties: { "thicket-place": place } };
    this.write({ cmd: "suback", messageId: messageId ?? 0, granted: [code], properties });
  }

  /** @param {Of<"publish">} publish @param {string} [place] */
  acknowledge({ messageId }, place) {
    const properties = place === undefined ? {} : { userProperties: { "thicket-place": place } };
    this.write({ cmd: "puback", messageId: messageId ?? 0, reasonCode: 0, properties });
  }

  close() {
    this.#socket.destroy();
  }

  /** Until the client has closed it. */
  async closed() {
    if (!this.#socket.destroyed) {
      await once(this.#socket, "close");
    }
  }
}

/** Takes connections, and gives each to a test after its CONNECT was read. */
export class HandBroker {
  address = "";
  /** @type {Queue<HandConnection>} */
  #connections = new Queue();

  /**
   * @param {import("node:test").TestContext} test
   * @param {{key: string, cert: string}} [tls]
   */
  static async start(test, tls) {
    const broker = new HandBroker();
    /** @type {Set<import("node:net").Socket>} */
    const sockets = new Set();
    /** @param {import("node:net").Socket} socket */
    const serve = (socket) => {
      sockets.add(socket);
      broker.#serve(socket);
    };
    const server = tls === undefined ? createServer(serve) : createTlsServer(tls, serve);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    test.after(() => {
      server.close();
      sockets.forEach((socket) => socket.destroy());
    });
    broker.address = `127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (server.address()).port}`;
    return broker;
  }

  /** @param {import("node:net").Socket} socket */
  #serve(socket) {
    /** @type {HandConnection | undefined} */
    let connection;
    const packets = parser(VERSION_5);
    packets.on("packet", (packet) => {
      if (connection !== undefined) {
        connection.push(packet);
      } else if (packet.cmd === "connect") {
        connection = new HandConnection(socket, packet);
        this.#connections.push(connection);
      }
    });
    socket.on("data", (data) => packets.parse(data)).on("error", () => {});
  }

  /** Connections that no test has taken yet. */
  get waiting() {
    return this.#connections.length;
  }

  next() {
    return this.#connections.next("a connection");
  }
}
