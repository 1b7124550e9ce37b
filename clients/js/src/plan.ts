/**
 * The plan of a client's sessions: which filters each should have, and how a filter moves. Pure: reports in, assignments out.
 *
 * A filter whose home changes stays at its old session until the new one has it. Then the old one unsubscribes; it is left when
 * it is silent and has no other filters. If the new session is refused the filter, the old one is its home again.
 *
 * A session that was sent a request and has not answered may have the filter or not: messages may arrive over it, but no other
 * session unsubscribes in its favour.
 */

import type { Address } from "./address.js";
import { type Placed, unite } from "./placement.js";
import type { Chosen } from "./subscription.js";
import { overlap } from "./topics.js";

/** How a session should have a filter. */
export interface Subscription {
  readonly options: Chosen;
  /** Another session has it too, and has received the retained messages. */
  readonly isMoved: boolean;
}

/** The sessions of each filter. */
class Sessions {
  readonly #of = new Map<string, Set<number>>();

  of(filter: string): ReadonlySet<number> {
    return this.#of.get(filter) ?? new Set();
  }

  add(filter: string, number: number): void {
    this.#of.set(filter, new Set([...this.of(filter), number]));
  }

  delete(filter: string, number: number): void {
    const sessions = this.#of.get(filter);
    sessions?.delete(number);
    if (sessions?.size === 0) {
      this.#of.delete(filter);
    }
  }

  has(filter: string): boolean {
    return this.#of.has(filter);
  }

  /** The filters of a session. */
  filters(number: number): string[] {
    return [...this.#of].filter(([, sessions]) => sessions.has(number)).map(([filter]) => filter);
  }
}

/** Where a session should be, and the number of the answer with that: a new answer is followed even to the same address. */
export interface Target {
  readonly answer: number;
  readonly address: Address;
}

interface Slot {
  target: Target | undefined;
  isLeaving: boolean;
  /** Moved filters whose last messages may still arrive. */
  readonly draining: Set<string>;
}

const newSlot = (target?: Target): Slot => ({ target, isLeaving: false, draining: new Set() });

/** Filters, sessions, and which session should have which filter. */
export class Plan {
  readonly #maxSessions: number;
  #answers = 0;
  readonly #options = new Map<string, Chosen>();
  readonly #home = new Map<string, number>();
  readonly #at = new Sessions();
  /** Sessions with a SUBSCRIBE or UNSUBSCRIBE that is not answered yet. */
  readonly #asked = new Sessions();
  readonly #moving = new Set<string>();
  readonly #slots = new Map<number, Slot>([[1, newSlot()]]);

  constructor(maxSessions: number) {
    this.#maxSessions = maxSessions;
  }

  /** The filters that the application wants. */
  get wanted(): string[] {
    return [...this.#home.keys()];
  }

  /** The application wants a filter. One that overlaps another joins its session. New options replace the old ones. */
  subscribe(filter: string, options: Chosen): void {
    if (!this.#home.has(filter)) {
      this.#home.set(filter, [...this.#home].find(([other]) => overlap(filter, other))?.[1] ?? 1);
    }
    this.#options.set(filter, options);
  }

  /** The application does not want a filter any more. Returns whether a session has it. */
  unsubscribe(filter: string): boolean {
    this.#home.delete(filter);
    this.#options.delete(filter);
    return this.#at.has(filter);
  }

  options(filter: string): Chosen | undefined {
    return this.#options.get(filter);
  }

  home(filter: string): number | undefined {
    return this.#home.get(filter);
  }

  /** Whether the session that should have the filter has it. */
  isHome(filter: string): boolean {
    const home = this.#home.get(filter);
    return home !== undefined && this.#at.of(filter).has(home);
  }

  /** Follows an answer of the control plane. Returns the filters that begin to move. */
  apply(placed: ReadonlyMap<number, Placed>): string[] {
    this.#answers += 1;
    const assigned = new Map<string, number>();
    for (const [number, { address, subscribe }] of placed) {
      const slot = this.#slot(number);
      if (address !== undefined) {
        slot.target = { answer: this.#answers, address };
      }
      subscribe.forEach((filter) => assigned.set(filter, number));
    }
    const homes = new Map(
      [...this.#home].map(([filter, home]) => [filter, assigned.get(filter) ?? (placed.has(home) ? home : 1)]),
    );
    return [...unite(homes)].filter(([filter, home]) => this.#settle(filter, home)).map(([filter]) => filter);
  }

  /** The session for an address, an existing one or a new one. Undefined: there are enough already. */
  sessionAt(address: Address): number | undefined {
    for (const [number, slot] of this.#slots) {
      if (!slot.isLeaving && slot.target?.address === address) {
        return number;
      }
    }
    for (let number = 1; number <= this.#maxSessions; number += 1) {
      if (!this.#slots.has(number)) {
        this.#answers += 1;
        this.#slots.set(number, newSlot({ answer: this.#answers, address }));
        return number;
      }
    }
    return undefined;
  }

  /** Whether a filter may have a session of its own; one that overlaps others stays with them. */
  mayMove(filter: string): boolean {
    return this.#home.has(filter) && !this.wanted.some((other) => other !== filter && overlap(other, filter));
  }

  /** Moves one filter. Returns whether it begins to move. */
  moveTo(filter: string, home: number): boolean {
    return this.mayMove(filter) && this.#settle(filter, home);
  }

  #settle(filter: string, home: number): boolean {
    const changes = this.#home.get(filter) !== home;
    this.#home.set(filter, home);
    if (!changes || this.#elsewhere(filter).length === 0 || this.#moving.has(filter)) {
      return false;
    }
    this.#moving.add(filter);
    return true;
  }

  /** Sessions besides its home that have a filter, or may have it. */
  #elsewhere(filter: string): number[] {
    return [...this.#at.of(filter), ...this.#asked.of(filter)].filter((number) => number !== this.#home.get(filter));
  }

  /** Where a session is, if it was not assigned an address. */
  noteAddress(number: number, address: Address): void {
    const slot = this.#slots.get(number);
    if (slot !== undefined && slot.target === undefined) {
      slot.target = { answer: 0, address };
    }
  }

  /** A SUBSCRIBE or UNSUBSCRIBE is sent on a session. Until it is answered, it is not known whether the session has the filter. */
  onAsked(number: number, filter: string): void {
    this.#at.delete(filter, number);
    this.#asked.add(filter, number);
  }

  onSubscribed(number: number, filter: string): void {
    this.#asked.delete(filter, number);
    this.#at.add(filter, number);
  }

  /** The broker refuses a filter on a session. Returns whether another session still has it. */
  onRefused(number: number, filter: string): boolean {
    this.#asked.delete(filter, number);
    const others = [...this.#at.of(filter)].filter((session) => session !== number);
    if (others.length > 0 && this.#home.has(filter)) {
      this.#home.set(filter, Math.min(...others));
      return true;
    }
    this.unsubscribe(filter);
    return false;
  }

  /** A session no longer has a filter. */
  onUnsubscribed(number: number, filter: string): void {
    this.#at.delete(filter, number);
    this.#asked.delete(filter, number);
    if (this.#moving.has(filter) && this.#home.get(filter) !== number) {
      this.#slots.get(number)?.draining.add(filter);
    }
  }

  /** Whether no session has a filter or may have it, or the application wants it again. */
  isUnsubscribed(filter: string): boolean {
    return this.#home.has(filter) || (!this.#at.has(filter) && !this.#asked.has(filter));
  }

  /** A session is silent. Returns the filters whose move is over. */
  onDrained(number: number): string[] {
    const slot = this.#slots.get(number);
    const drained = [...(slot?.draining ?? [])];
    slot?.draining.clear();
    return drained.filter((filter) => !this.#mayStillArrive(filter)).filter((filter) => this.#moving.delete(filter));
  }

  /** Whether messages of a filter may arrive over a session that is not its home. */
  #mayStillArrive(filter: string): boolean {
    return this.#elsewhere(filter).length > 0 || [...this.#slots.values()].some(({ draining }) => draining.has(filter));
  }

  /** A session has ended. If it is needed again by now, it begins again. Returns the filters whose move is over. */
  onLeft(number: number, isRouted: boolean): string[] {
    for (const filter of [...this.#at.filters(number), ...this.#asked.filters(number)]) {
      this.onUnsubscribed(number, filter);
    }
    const over = this.onDrained(number);
    const slot = this.#slots.get(number);
    if (slot !== undefined && (isRouted || [...this.#home.values()].includes(number))) {
      slot.isLeaving = false;
    } else {
      this.#slots.delete(number);
    }
    return over;
  }

  /** A session cannot be made: the first session takes over its filters. */
  giveUp(number: number): void {
    for (const [filter, home] of this.#home) {
      if (home === number) {
        this.#home.set(filter, 1);
      }
    }
  }

  /** The sessions that should exist. */
  sessions(): number[] {
    return [...new Set([...this.#slots.keys(), ...this.#home.values()])].sort((one, other) => one - other);
  }

  target(number: number): Target | undefined {
    return this.#slots.get(number)?.target;
  }

  /** What a session should have now. */
  filters(number: number): Map<string, Subscription> {
    const filters = new Map<string, Subscription>();
    if (this.#slots.get(number)?.isLeaving) {
      return filters;
    }
    for (const [filter, home] of this.#home) {
      const sessions = this.#at.of(filter);
      const options = this.#options.get(filter);
      if (options === undefined) {
        continue;
      }
      if (home === number || (sessions.has(number) && !sessions.has(home))) {
        const isMoved = [...sessions].some((session) => session !== number);
        filters.set(filter, { options, isMoved });
      }
    }
    return filters;
  }

  /** Marks a session as one to leave, unless it has or should have filters. The first one stays. */
  leaves(number: number): boolean {
    const slot = this.#slot(number);
    const hasAny = this.#at.filters(number).length + this.#asked.filters(number).length > 0;
    if (number !== 1 && !hasAny && this.filters(number).size === 0) {
      slot.isLeaving = true;
    }
    return slot.isLeaving;
  }

  #slot(number: number): Slot {
    const slot = this.#slots.get(number) ?? newSlot();
    this.#slots.set(number, slot);
    return slot;
  }
}
