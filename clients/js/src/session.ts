/**
 * One session of a client: a loop that keeps it connected and makes it match its Assignment.
 *
 * This file decides where it connects, which redirections it follows and when it leaves. Its work on a connection is in `Duties`.
 */

import type { IConnackPacket, IPublishPacket, UserProperties } from "mqtt-packet";

import { type Address, defaultPort, parseReference } from "./address.js";
import { Connection, type End, type Listener, type Login } from "./connection.js";
import { shuffled } from "./control.js";
import { type Outgoing, Duties } from "./duties.js";
import { ClosedError, type Refused, type ThicketError } from "./errors.js";
import { Inbound, Receipt } from "./inbound.js";
import { type Message, type Qos, received, userPairs } from "./message.js";
import { PLACE, PLACEMENT, REDIRECTED } from "./placement.js";
import type { Subscription, Target } from "./plan.js";
import type { Chosen } from "./subscription.js";
import { Wake, now } from "./waiting.js";

/** A connection that ended sooner counts as a failed attempt. */
const STABLE_S = 1;
/** Redirections that are followed in a row, before a pause as after a failed attempt. */
const MOST_HOPS = 4;
/** Longest wait for missing answers when the client closes. */
const CLOSE_WAIT_S = 3;

/** Whether and how a session is to be left. */
export type Leave =
  | "stay"
  /** When no more messages arrive and everything sent is acknowledged. The session ends. */
  | "whenRead"
  /** When everything sent is acknowledged and it is known which broker has the session, or it takes too long. */
  | "now"
  | "nowAndKeep";

/** What a session should be; only the latest counts. */
export interface Assignment {
  readonly target: Target | undefined;
  readonly filters: ReadonlyMap<string, Subscription>;
  readonly leave: Leave;
  /** Incremented when the request in the CONNECT should be repeated at once: the session then reconnects to the same address. */
  readonly requests: number;
}

/** Limits and pauses, in seconds. */
export interface Timing {
  readonly firstPause: number;
  readonly longestPause: number;
  readonly quiet: number;
}

/** What a session reports to its client. */
export interface Owner {
  isFull(): boolean;
  known(): readonly Address[];
  /** The current user properties for the session's CONNECT. */
  properties(number: number): ReadonlyArray<readonly [string, string]>;
  onMessage(number: number, message: Message, identity: string | undefined, receipt: Receipt | undefined): void;
  onConnected(number: number, address: Address, placement: string | undefined): void;
  onAsked(number: number, filter: string): void;
  onSubscribed(number: number, filter: string, options: Chosen, qos: Qos, error: ThicketError | undefined): void;
  onUnsubscribed(number: number, filter: string): void;
  onDrained(number: number): void;
  onBetter(topic: string, address: Address, kind: "filter" | "topic"): void;
  onRefused(number: number, error: Refused): void;
  onDisconnected(number: number): void;
  onProblem(problem: string): void;
  onTakenOver(): void;
  onSettled(outgoing: Outgoing, error: ThicketError | undefined, code?: number): void;
  onLeft(number: number): void;
}

/** How far a session that lost a subscription has been read; undefined: that is not needed. */
type Drain =
  | { readonly kind: "quiet"; readonly since: number }
  /** A PINGREQ is sent: when its answer arrives, everything that the broker sent before has arrived. */
  | { readonly kind: "pinged" }
  | { readonly kind: "done" };

type Outcome = End | { readonly kind: "left" };

/** One session. See the module. */
export class Session implements Listener {
  readonly number: number;
  readonly duties: Duties;
  readonly #owner: Owner;
  readonly #login: Login;
  readonly #timing: Timing;
  readonly #inbound: Inbound;
  readonly #wake = new Wake();
  #assignment: Assignment = { target: undefined, filters: new Map(), leave: "stay", requests: 0 };
  #cleanStart: boolean;
  /** The connection that serves, or will serve if no other does. */
  #current: Connection | undefined;
  /** The connection to the address that the control plane assigned, while the current one serves. */
  #next: Connection | undefined;
  /** The last connection that was accepted: it has the messages in flight. */
  #accepted: Connection | undefined;
  #end: Outcome | undefined;
  #candidates: Address[] = [];
  /** Whether the candidates come from a redirection. */
  #isRedirected = false;
  #last: Address | undefined;
  #followed = 0;
  #requests = 0;
  #hops = 0;
  #failures = 0;
  #lastArrival = 0;
  #drain: Drain | undefined;
  #closingUntil: number | undefined;

  constructor(number: number, owner: Owner, login: Login, timing: Timing, cleanStart: boolean) {
    this.number = number;
    this.#owner = owner;
    this.#login = login;
    this.#timing = timing;
    this.#cleanStart = cleanStart;
    this.#inbound = new Inbound(login.version === 5 ? login.receiveMaximum : undefined, (receipt) =>
      this.#onReceipt(receipt),
    );
    this.duties = new Duties(this, owner);
  }

  get assignment(): Assignment {
    return this.#assignment;
  }

  /** Assigns what the session should be from now on. */
  assign(assignment: Assignment): void {
    if (!this.#isLeavingNow()) {
      this.#assignment = assignment;
      this.wake();
    }
  }

  /** Wakes the session, so that it does what is due. */
  wake(): void {
    this.#wake.set();
  }

  /** Messages can be accepted again. */
  resumeReading(): void {
    this.#current?.resumeReading();
    this.wake();
  }

  /** Serves until the session is left. */
  async run(): Promise<void> {
    try {
      await this.#serveAll();
    } finally {
      this.#current?.drop();
      this.#next?.drop();
      this.duties.abandon(new ClosedError("the client is closed"));
      this.#owner.onLeft(this.number);
    }
  }

  async #serveAll(): Promise<void> {
    for (;;) {
      const address = await this.#nextAddress();
      if (address === undefined) {
        return;
      }
      const begun = now();
      const end = await this.#serve(address);
      if (now() - begun > STABLE_S) {
        this.#failures = 0;
      }
      this.#owner.onDisconnected(this.number);
      switch (end.kind) {
        case "lost":
          this.#owner.onProblem(`${this.#last}: ${end.problem}`);
          break;
        case "redirected":
          this.#hops += 1;
          this.#candidates = this.#hops <= MOST_HOPS ? [...end.addresses] : [];
          this.#isRedirected = true;
          break;
        case "refused":
          this.#owner.onRefused(this.number, end.error);
          break;
        case "takenOver":
          this.#owner.onTakenOver();
          return;
        case "left":
          return;
      }
    }
  }

  /** The next address to try. Undefined: the session is to be left, and has no messages to read. */
  async #nextAddress(): Promise<Address | undefined> {
    while (!this.#isLeavingNow()) {
      const next = this.#candidates.shift();
      if (next !== undefined) {
        return next;
      }
      if (this.#last !== undefined || this.#failures > 0) {
        await this.#pause();
        if (this.#isLeavingNow()) {
          break;
        }
      }
      this.#failures += 1;
      this.#hops = 0;
      this.#candidates = this.#freshCandidates();
      this.#isRedirected = false;
    }
    return this.#nextPlace();
  }

  /** Where a session that is to be left can still be ended: where it was redirected to, if a broker has it at all. */
  #nextPlace(): Address | undefined {
    this.#closingUntil ??= now() + CLOSE_WAIT_S;
    const isInTime = now() < this.#closingUntil;
    return this.#isSentElsewhere && this.#assignment.leave === "now" && isInTime ? this.#candidates.shift() : undefined;
  }

  /** Whether a broker that had the session redirected it to the address that it connects to now. */
  get #isSentElsewhere(): boolean {
    return this.#isRedirected && this.#accepted !== undefined;
  }

  async #pause(): Promise<void> {
    const limit = Math.min(this.#timing.firstPause * 2 ** Math.min(this.#failures, 16), this.#timing.longestPause);
    const until = now() + Math.random() * limit;
    while (now() < until && !this.#isLeavingNow()) {
      await this.#wake.wait(until - now());
    }
  }

  /** Where it was, where it should be, and then any other address. */
  #freshCandidates(): Address[] {
    const first = this.#last === undefined ? [] : [this.#last];
    const { target } = this.#assignment;
    if (target !== undefined) {
      if (target.answer > this.#followed) {
        first.unshift(target.address);
      } else {
        first.push(target.address);
      }
      this.#followed = Math.max(this.#followed, target.answer);
    }
    return [...new Set([...first, ...shuffled(this.#owner.known())])];
  }

  #isLeavingNow(): boolean {
    return this.#assignment.leave === "now" || this.#assignment.leave === "nowAndKeep";
  }

  async #serve(address: Address): Promise<Outcome> {
    this.#end = undefined;
    this.#last = address;
    try {
      this.#current = this.#dial(address);
    } catch (error) {
      return { kind: "lost", problem: String(error) };
    }
    for (;;) {
      const end = this.#look(this.#current);
      if (end !== undefined) {
        await this.#finish(end);
        return end;
      }
      await this.#wake.wait(this.#nextDeadline());
    }
  }

  /** Does what is due. Returns how the connection ended, if it has. */
  #look(connection: Connection): Outcome | undefined {
    if (this.#end === undefined && connection.isReady) {
      this.#act(connection);
    } else if (this.#end === undefined && this.#isLeavingNow()) {
      this.#leaveUnready(connection);
    }
    return this.#end;
  }

  async #finish(end: Outcome): Promise<void> {
    // If it does not answer in time, the broker that serves counts as the one with the session.
    this.#next?.drop();
    this.#next = undefined;
    if (end.kind === "left" && this.#current !== undefined && this.#current === this.#accepted) {
      await this.#current.disconnect(this.#login.sessionExpiry > 0 && this.#assignment.leave !== "nowAndKeep");
    } else {
      this.#current?.drop();
    }
    this.#current = undefined;
  }

  /** Throws if the platform does not allow the connection: a page loaded over HTTPS may not use `ws`. */
  #dial(address: Address): Connection {
    this.#requests = this.#assignment.requests;
    const user = [...this.#owner.properties(this.number)];
    if (this.#hops > 0) {
      user.push([REDIRECTED, String(this.#hops)]);
    }
    return new Connection(address, this.#login, this.#cleanStart, this.#login.version === 5 ? user : [], this);
  }

  #act(connection: Connection): void {
    this.duties.act(connection);
    this.#followPlacement(connection);
    this.#pingAfterSilence(connection);
    this.#leave();
  }

  /** Connects to the address that the control plane assigned. The current connection serves until the broker there has accepted the session. */
  #followPlacement(connection: Connection): void {
    if (this.#isMoving || this.#isLeavingNow()) {
      return;
    }
    const { target, requests } = this.#assignment;
    let { address } = connection;
    if (target !== undefined && target.answer > this.#followed) {
      this.#followed = target.answer;
      this.#next?.drop();
      this.#next = undefined;
      address = target.address;
    }
    // A connection elsewhere makes the request too.
    if (address !== connection.address || requests > this.#requests) {
      this.#next?.drop();
      this.#next = undefined;
      try {
        this.#next = this.#dial(address);
      } catch (error) {
        this.#owner.onProblem(`${address}: ${error}`);
      }
    }
  }

  #pingAfterSilence(connection: Connection): void {
    if (this.#drain?.kind !== "quiet" || this.#owner.isFull()) {
      return;
    }
    if (now() - Math.max(this.#drain.since, this.#lastArrival) >= this.#timing.quiet) {
      this.#drain = { kind: "pinged" };
      connection.ping();
    }
  }

  #leave(): void {
    switch (this.#assignment.leave) {
      case "stay":
        return;
      case "whenRead":
        this.#drain ??= { kind: "quiet", since: now() };
        if (!this.duties.isSent || !this.#inbound.isSettled || this.#isMoving || this.#drain.kind !== "done") {
          return;
        }
        break;
      case "now":
      case "nowAndKeep":
        this.#closingUntil ??= now() + CLOSE_WAIT_S;
        if ((!this.duties.isSent || this.#isMoving) && now() < this.#closingUntil) {
          return;
        }
    }
    this.#end = { kind: "left" };
  }

  /** Whether the broker of the next connection may already have the session: only the broker that has it can end it. */
  get #isMoving(): boolean {
    return this.#next?.isDialed === true;
  }

  /** Waits for the broker's answer, and for messages that are sent again after a lost connection. */
  #leaveUnready(connection: Connection): void {
    this.#closingUntil ??= now() + CLOSE_WAIT_S;
    const mayBeThere = connection.isDialed || this.#isSentElsewhere;
    if (!mayBeThere || now() >= this.#closingUntil) {
      this.#end = { kind: "left" };
    }
  }

  #nextDeadline(): number | undefined {
    const deadlines: number[] = [];
    if (this.#drain?.kind === "quiet" && this.#current?.isReady && !this.#owner.isFull()) {
      deadlines.push(Math.max(this.#drain.since, this.#lastArrival) + this.#timing.quiet);
    }
    if (this.#closingUntil !== undefined) {
      deadlines.push(this.#closingUntil);
    }
    return deadlines.length > 0 ? Math.min(...deadlines) - now() : undefined;
  }

  /** Messages of the old session may still arrive: it counts as silent no earlier than this. */
  onUnsubscribed(): void {
    this.#drain = { kind: "quiet", since: now() };
  }

  /** Reports to the client a better node that an answer names. */
  noteBetter(topic: string, user: UserProperties | undefined, kind: "filter" | "topic"): void {
    for (const [name, value] of userPairs(user)) {
      const [address] = name === PLACE ? parseReference(value, defaultPort(this.#login.scheme)) : [];
      if (address !== undefined) {
        this.#owner.onBetter(topic, address, kind);
      }
    }
  }

  // Callbacks of connections

  mayRead(): boolean {
    return !this.#owner.isFull();
  }

  onAccepted(connection: Connection, connack: IConnackPacket): void {
    if (connection !== this.#current) {
      // The broker has moved the session: messages in flight on the old connection continue here.
      this.#current?.drop();
      this.#next = undefined;
      this.#current = connection;
      this.#last = connection.address;
    }
    this.duties.onInterrupted();
    this.#inbound.onClosed();
    this.#inbound.onConnected(connack.sessionPresent);
    if (connack.sessionPresent && this.#accepted !== undefined) {
      connection.continueFrom(this.#accepted);
    } else {
      this.duties.onSessionLost();
    }
    this.#accepted = connection;
    this.#cleanStart = false;
    this.#isRedirected = false;
    this.#hops = 0;
    this.#candidates = [];
    if (this.#drain !== undefined && this.#drain.kind !== "done") {
      this.#drain = { kind: "quiet", since: now() };
    }
    this.duties.onConnected(connack.properties?.receiveMaximum);
    const placement = userPairs(connack.properties?.userProperties).find(([name]) => name === PLACEMENT)?.[1];
    this.#owner.onConnected(this.number, connection.address, placement);
  }

  onReady(): void {
    this.wake();
  }

  onWritten(): void {
    this.wake();
  }

  onMessage(connection: Connection, packet: IPublishPacket): void {
    this.#lastArrival = now();
    const { qos, messageId = 0 } = packet;
    const reception = qos === 0 ? undefined : this.#inbound.onPublish(qos, messageId);
    if (reception === undefined || reception instanceof Receipt) {
      const { message, identity } = received(packet, reception);
      this.#owner.onMessage(this.number, message, identity, reception);
    } else if (reception === "acknowledgeAgain") {
      connection.acknowledge(2, messageId);
    } else if (reception === "exceeded") {
      connection.fail(`the broker exceeded the Receive Maximum, ${this.#login.receiveMaximum}`);
    }
  }

  /** The application has acknowledged a message. */
  #onReceipt({ qos }: Receipt): void {
    this.#inbound.due(qos).forEach((packetId) => this.#current?.acknowledge(qos, packetId));
    if (this.#assignment.leave !== "stay") {
      this.wake();
    }
  }

  onReleased(packetId: number): void {
    this.#inbound.onPubrel(packetId);
  }

  onAcknowledged(connection: Connection, packetId: number, code: number, user: UserProperties | undefined): void {
    if (connection === this.#current) {
      this.duties.onAcknowledged(packetId, code, user);
      this.wake();
    }
  }

  onPong(connection: Connection): void {
    if (connection !== this.#current || this.#drain?.kind !== "pinged") {
      return;
    }
    if (now() - this.#lastArrival < this.#timing.quiet || this.#owner.isFull()) {
      this.#drain = { kind: "quiet", since: this.#lastArrival };
    } else {
      this.#drain = { kind: "done" };
      this.#owner.onDrained(this.number);
    }
    this.wake();
  }

  onEnd(connection: Connection, end: End): void {
    if (connection === this.#next) {
      this.#next = undefined;
      const problem = end.kind === "lost" ? end.problem : end.kind === "refused" ? end.error.message : end.kind;
      this.#owner.onProblem(`${connection.address}: ${problem}`);
    } else if (connection === this.#current && this.#next !== undefined) {
      // The broker there may already have the session, and may have closed this connection for that reason.
      this.#current = this.#next;
      this.#last = this.#next.address;
      this.#next = undefined;
    } else if (connection === this.#current) {
      this.#end ??= end;
    }
    this.wake();
  }
}
