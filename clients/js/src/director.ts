/** Makes a client's sessions match its plan. */

import type { Address } from "./address.js";
import type { Login } from "./connection.js";
import { Asking } from "./control.js";
import type { Outgoing } from "./duties.js";
import { ClosedError, ConnectError, Refused, TakenOver, type ThicketError } from "./errors.js";
import type { Receipt } from "./inbound.js";
import { Ledger } from "./ledger.js";
import type { Message, Qos } from "./message.js";
import { type Settings, randomName } from "./options.js";
import {
  type Entry,
  PLACE,
  parseAnswer,
  refusedEntry,
  type Request,
  requestProperties,
  sessionName,
  sortedUnique,
  toRequest,
} from "./placement.js";
import { Plan } from "./plan.js";
import { Routes } from "./routes.js";
import { type Leave, type Owner, Session } from "./session.js";
import { type Chosen, isSame } from "./subscription.js";
import { Changes, Reply } from "./waiting.js";

/** The most brokers that are remembered. */
const KNOWN = 64;
/** The most denied filters that are remembered. */
const DENIED = 1000;
/** After the last message of a moved filter on the old session, its messages may still wait on the new one. */
const LATE_S = 2;

/** See the module. */
export class Director implements Owner {
  /** Notified when a session starts, ends or can accept messages. */
  readonly changes = new Changes();
  isPlaced = false;
  lastProblem = "";
  readonly #settings: Settings;
  readonly #login: Login;
  readonly #known: Address[];
  readonly #plan: Plan;
  readonly #ledger = new Ledger();
  readonly #routes = new Routes();
  readonly #sessions = new Map<number, Session>();
  readonly #running = new Map<number, Promise<void>>();
  readonly #addresses = new Map<number, Address>();
  readonly #messages: Array<{ message: Message; receipt: Receipt | undefined }> = [];
  /** Of these, the messages that no Receive Maximum bounds. */
  #unbounded = 0;
  /** Of the message that the application has. */
  #last: Receipt | undefined;
  readonly #arrivals = new Changes();
  readonly #connecting = new Reply<void>();
  readonly #subscribing = new Map<string, Array<Reply<Qos>>>();
  readonly #unsubscribing = new Map<string, Array<Reply<void>>>();
  readonly #granted = new Map<string, Qos>();
  readonly #timers = new Set<ReturnType<typeof setTimeout>>();
  /** Control planes over HTTP. */
  readonly #asking: Asking;
  /** Topics and filters that the control plane denied: requests leave them out, filters until a broker grants them. */
  readonly #denied = { publish: new Set<string>(), subscribe: new Set<string>() };
  /** The request in the last CONNECT of the first session. */
  #asked: Request | undefined;
  /** Number of changes of the request in the CONNECT of the first session that should be sent at once. */
  #requests = 0;
  #toBeRead = new Set<number>();
  #ended: ClosedError | undefined;
  readonly #run = randomName();
  #published = 0;

  constructor(settings: Settings, login: Login) {
    this.#settings = settings;
    this.#login = login;
    this.#known = [...settings.addresses];
    this.#plan = new Plan(settings.maxSessions);
    const urls = settings.placement === null || settings.placement === "mqtt" ? [] : settings.placement;
    this.#asking = new Asking(urls, settings, () => this.#request(), {
      onAnswer: (text) => {
        this.#follow(text);
        this.#settle();
      },
      onDenied: (entry) => this.#deny(entry),
      onProblem: (problem) => (this.lastProblem = problem),
    });
  }

  // Life cycle

  /** Connects. Declared subscriptions are made on every session before the client counts as connected. */
  async open(): Promise<void> {
    const declared = [...this.#settings.subscribe].map(([filter, options]) => this.#wish(filter, options));
    await this.#asking.start();
    this.#settle();
    const { connectTimeout } = this.#settings;
    const timer = this.#later(connectTimeout, () => {
      const problem = this.#connecting.isDone
        ? `subscriptions were not answered within ${connectTimeout} s`
        : `no broker can be reached: ${this.lastProblem}`;
      const error = new ConnectError(problem);
      [this.#connecting, ...declared].filter((reply) => !reply.isDone).forEach((reply) => reply.reject(error));
    });
    try {
      await this.#connecting.promise;
      await Promise.all(declared.map((reply) => reply.promise));
    } catch (error) {
      await this.#end(new ClosedError("the client is closed"), "now");
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Ends all sessions, as the application asks. */
  async end(why: ClosedError): Promise<void> {
    await this.#end(why, this.#settings.resume ? "nowAndKeep" : "now");
  }

  async #end(why: ClosedError, leave: Leave): Promise<void> {
    this.#ended ??= why;
    this.#asking.stop();
    this.#routes.closeAll();
    for (const session of this.#sessions.values()) {
      session.assign({ ...session.assignment, leave });
    }
    await Promise.all(this.#running.values());
    this.#timers.forEach((timer) => clearTimeout(timer));
    this.#timers.clear();
    this.#failAll(this.#ended);
  }

  #failAll(why: ClosedError): void {
    const replies = [this.#connecting, ...this.#subscribing.values(), ...this.#unsubscribing.values()].flat();
    replies.filter((reply) => !reply.isDone).forEach((reply) => reply.reject(why));
    this.changes.notify();
    this.#arrivals.notify();
  }

  throwIfEnded(): void {
    if (this.#ended !== undefined) {
      throw this.#ended;
    }
  }

  // The application's calls

  get clientId(): string {
    return this.#login.clientId;
  }

  get version(): 4 | 5 {
    return this.#settings.version;
  }

  get addresses(): ReadonlyMap<number, Address> {
    return new Map([...this.#addresses].sort(([one], [other]) => one - other));
  }

  async subscribe(filter: string, options: Chosen): Promise<Qos> {
    this.throwIfEnded();
    if (!isSame(this.#plan.options(filter), options)) {
      this.#granted.delete(filter);
    }
    const granted = this.#granted.get(filter);
    if (this.#plan.isHome(filter) && granted !== undefined) {
      return granted;
    }
    const reply = this.#wish(filter, options);
    this.#asking.soon();
    this.#settle();
    return reply.promise;
  }

  #wish(filter: string, options: Chosen): Reply<Qos> {
    this.#plan.subscribe(filter, options);
    return addTo(this.#subscribing, filter, new Reply<Qos>());
  }

  async unsubscribe(filter: string): Promise<void> {
    this.throwIfEnded();
    this.#granted.delete(filter);
    if (!this.#plan.unsubscribe(filter)) {
      return;
    }
    const reply = addTo(this.#unsubscribing, filter, new Reply<void>());
    this.#asking.soon();
    this.#settle();
    await reply.promise;
  }

  async send(message: Message): Promise<Reply<number>> {
    this.throwIfEnded();
    this.#published += 1;
    const isNamed = message.qos === 2 && this.isPlaced;
    const identity = isNamed ? `${this.#run}-${this.#published.toString(16)}` : undefined;
    const number = await this.#routes.enter(message.topic);
    if (number === undefined) {
      throw this.#ended ?? new ClosedError("the client is closed");
    }
    while ((this.#sessions.get(number)?.duties.outgoing.length ?? 0) >= this.#settings.sendQueue) {
      await this.changes.next();
    }
    const session = this.#sessions.get(number);
    if (session === undefined || this.#ended !== undefined) {
      this.#routes.leave(message.topic);
      throw this.#ended ?? new ClosedError("the client is closed");
    }
    const reply = new Reply<number>();
    session.duties.outgoing.push({ message, identity, reply });
    session.wake();
    return reply;
  }

  /** The next message; undefined if there will be no more. */
  async nextMessage(): Promise<Message | undefined> {
    this.#acknowledgeLast();
    for (;;) {
      const message = this.#shift();
      if (message !== undefined) {
        return message;
      }
      if (this.#ended instanceof TakenOver) {
        throw this.#ended;
      }
      if (this.#ended !== undefined) {
        return undefined;
      }
      await this.#arrivals.next();
    }
  }

  #acknowledgeLast(): void {
    const last = this.#last;
    this.#last = undefined;
    if (this.#settings.acknowledge === "next") {
      last?.acknowledge();
    }
  }

  #shift(): Message | undefined {
    for (let taken = this.#messages.shift(); taken !== undefined; taken = this.#messages.shift()) {
      const { message, receipt } = taken;
      const wasFull = this.isFull();
      this.#unbounded -= this.#isUnbounded(receipt) ? 1 : 0;
      if (wasFull && !this.isFull()) {
        this.#sessions.forEach((session) => session.resumeReading());
      }
      // When the client has ended, no acknowledgement can be sent: whoever resumes the session gets the message.
      const isOwed = receipt !== undefined && !receipt.isAcknowledged;
      if (!(isOwed && (receipt.isSuperseded || this.#ended !== undefined))) {
        this.#last = receipt;
        return message;
      }
    }
    return undefined;
  }

  #isUnbounded(receipt: Receipt | undefined): boolean {
    return this.#login.version === 4 || receipt === undefined || receipt.isAcknowledged;
  }

  // Callbacks of sessions

  isFull(): boolean {
    return this.#unbounded >= this.#settings.receiveQueue;
  }

  known(): readonly Address[] {
    return this.#known;
  }

  properties(number: number): Array<[string, string]> {
    const { placement } = this.#settings;
    const place: Array<[string, string]> = placement === null ? [] : [[PLACE, "1"]];
    if (number !== 1 || placement !== "mqtt") {
      return place;
    }
    this.#asked = this.#request();
    return [...place, ...requestProperties(this.#asked)];
  }

  onMessage(number: number, message: Message, identity: string | undefined, receipt: Receipt | undefined): void {
    const isAdmitted = this.#ledger.admits(number, message, identity);
    if (!isAdmitted || this.#settings.acknowledge === "arrival") {
      receipt?.acknowledge();
    }
    if (isAdmitted) {
      this.#messages.push({ message, receipt });
      this.#unbounded += this.#isUnbounded(receipt) ? 1 : 0;
      this.#arrivals.notify();
    }
  }

  onConnected(number: number, address: Address, placement: string | undefined): void {
    this.#plan.noteAddress(number, address);
    this.#addresses.set(number, address);
    if (placement !== undefined && number === 1 && this.#settings.placement === "mqtt") {
      this.#follow(placement);
      const entry = this.#asked && refusedEntry(this.#asked, placement);
      if (entry !== undefined && this.#deny(entry)) {
        this.#requests += 1;
      }
    }
    if (number === 1 && !this.#connecting.isDone) {
      this.#connecting.resolve();
    } else if (number === 1) {
      // It may have been redirected here because its sessions should be elsewhere now.
      this.#asking.soon();
    }
    this.#settle();
    this.changes.notify();
  }

  onAsked(number: number, filter: string): void {
    this.#plan.onAsked(number, filter);
  }

  onSubscribed(number: number, filter: string, options: Chosen, qos: Qos, error: ThicketError | undefined): void {
    let isDone = false;
    if (error === undefined) {
      this.#plan.onSubscribed(number, filter);
      this.#granted.set(filter, qos);
      if (this.#denied.subscribe.delete(filter)) {
        this.#asking.soon();
      }
      const wanted = this.#plan.options(filter);
      // Options that were replaced meanwhile are asked for next.
      isDone =
        [number, undefined].includes(this.#plan.home(filter)) && (wanted === undefined || isSame(wanted, options));
    } else {
      isDone = !this.#plan.onRefused(number, filter);
    }
    if (isDone) {
      const waiting = takeFrom(this.#subscribing, filter);
      waiting.forEach((reply) => (error === undefined ? reply.resolve(qos) : reply.reject(error)));
    }
    this.#settle();
  }

  onUnsubscribed(number: number, filter: string): void {
    this.#plan.onUnsubscribed(number, filter);
    this.#settle();
  }

  onDrained(number: number): void {
    this.#endMoves(this.#plan.onDrained(number));
    this.#settle();
  }

  onBetter(topic: string, address: Address, kind: "filter" | "topic"): void {
    if (kind === "filter" && !this.#plan.mayMove(topic)) {
      return;
    }
    const number = this.#plan.sessionAt(address);
    if (number === undefined) {
      return;
    }
    if (kind === "topic") {
      this.#routes.place(topic, number);
    } else if (this.#plan.moveTo(topic, number)) {
      this.#ledger.begin(topic);
    }
    this.#settle();
  }

  onRefused(number: number, error: Refused): void {
    this.lastProblem = error.message;
    const session = this.#sessions.get(number);
    if (number > 1 && session !== undefined) {
      // The broker refuses a further session: the first one serves its topics.
      this.#plan.giveUp(number);
      this.#routes.forget(number);
      session.assign({ target: undefined, filters: new Map(), leave: "now", requests: 0 });
      this.#settle();
    } else if (!this.#connecting.isDone) {
      this.#connecting.reject(error);
    }
  }

  onProblem(problem: string): void {
    this.lastProblem = problem;
    this.#asking.soon();
  }

  onDisconnected(number: number): void {
    this.#addresses.delete(number);
    this.changes.notify();
  }

  onTakenOver(): void {
    if (this.#ended === undefined) {
      void this.#end(new TakenOver("another client took over the session"), "now");
    }
  }

  onSettled({ message, reply }: Outgoing, error: ThicketError | undefined, code = 0): void {
    this.#routes.leave(message.topic);
    // A denied topic is remembered, or the next request would have it again.
    if (error instanceof Refused && !this.#denied.publish.has(message.topic)) {
      this.#routes.unlearn(message.topic);
    }
    if (error === undefined) {
      reply.resolve(code);
    } else {
      reply.reject(error);
    }
    this.changes.notify();
  }

  onLeft(number: number): void {
    this.#addresses.delete(number);
    this.#sessions.delete(number);
    this.#running.delete(number);
    this.#routes.close(number);
    this.#toBeRead.delete(number);
    this.#endMoves(this.#plan.onLeft(number, this.#routes.uses(number)));
    this.#settle();
    this.changes.notify();
  }

  // Placement

  #request(): Request {
    const { publish, maxSessions, rates } = this.#settings;
    const published = sortedUnique([...publish, ...this.#routes.learned]);
    const named = published.filter((topic) => !this.#denied.publish.has(topic));
    const wanted = sortedUnique(this.#plan.wanted).filter((filter) => !this.#denied.subscribe.has(filter));
    return toRequest(this.clientId, named, wanted, maxSessions, rates);
  }

  /** Leaves it out of requests from now on. Returns whether it was in them so far. */
  #deny({ list, name }: Entry): boolean {
    this.lastProblem = `the control plane does not place ${JSON.stringify(name)}: denied`;
    const denied = this.#denied[list];
    if (denied.has(name) || (list === "subscribe" && denied.size >= DENIED)) {
      return false;
    }
    denied.add(name);
    return true;
  }

  /** Follows an answer, if it can be followed. */
  #follow(text: string): void {
    const { maxSessions, scheme } = this.#settings;
    let placed;
    try {
      placed = parseAnswer(text, this.clientId, maxSessions, scheme);
    } catch (error) {
      this.lastProblem = `the placement is not followed: ${error instanceof Error ? error.message : String(error)}`;
      return;
    }
    this.#plan.apply(placed).forEach((filter) => this.#ledger.begin(filter));
    const isIdle = [...placed].filter(([, { publish, subscribe }]) => publish.length + subscribe.length === 0);
    this.#toBeRead = new Set(isIdle.map(([number]) => number));
    this.#routes.replace(new Map([...placed].flatMap(([number, it]) => it.publish.map((topic) => [topic, number]))));
    for (const { address } of placed.values()) {
      if (address !== undefined && !this.#known.includes(address) && this.#known.length < KNOWN) {
        this.#known.push(address);
      }
    }
    this.isPlaced = true;
  }

  #endMoves(filters: readonly string[]): void {
    filters.forEach((filter) => this.#later(LATE_S, () => this.#ledger.end(filter)));
  }

  /** Opens missing sessions, and gives each session its assignment. */
  #settle(): void {
    if (this.#ended !== undefined) {
      return;
    }
    for (const filter of [...this.#unsubscribing.keys()].filter((one) => this.#plan.isUnsubscribed(one))) {
      takeFrom(this.#unsubscribing, filter).forEach((reply) => reply.resolve());
    }
    for (const number of this.#plan.sessions()) {
      const session = this.#sessions.get(number) ?? this.#open(number);
      const isUsed = this.#routes.uses(number) && !this.#toBeRead.has(number);
      const isLeft = !isUsed && this.#plan.leaves(number);
      if (isLeft) {
        this.#routes.close(number);
      }
      session.assign({
        target: this.#plan.target(number),
        filters: this.#plan.filters(number),
        leave: isLeft ? "whenRead" : "stay",
        requests: number === 1 ? this.#requests : 0,
      });
    }
  }

  #open(number: number): Session {
    const will = number === 1 ? this.#login.will : undefined;
    const login = { ...this.#login, clientId: sessionName(this.clientId, number), will };
    const cleanStart = !(this.#settings.resume || this.#toBeRead.has(number));
    const session = new Session(number, this, login, this.#settings, cleanStart);
    this.#sessions.set(number, session);
    this.#routes.open(number);
    this.#running.set(
      number,
      Promise.resolve().then(() => session.run()),
    );
    return session;
  }

  #later(seconds: number, action: () => void): ReturnType<typeof setTimeout> {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      action();
    }, seconds * 1000);
    this.#timers.add(timer);
    return timer;
  }
}

function addTo<T>(waiting: Map<string, Array<Reply<T>>>, key: string, reply: Reply<T>): Reply<T> {
  waiting.set(key, [...(waiting.get(key) ?? []), reply]);
  return reply;
}

function takeFrom<T>(waiting: Map<string, Array<Reply<T>>>, key: string): Array<Reply<T>> {
  const replies = (waiting.get(key) ?? []).filter((reply) => !reply.isDone);
  waiting.delete(key);
  return replies;
}
