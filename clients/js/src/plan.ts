/**
 * What each session shall have, and how a filter gets from one to another. Pure: reports in, assignments out.
 *
 * A filter whose home changes stays at its old session until the new one has it; then the old one unsubscribes, and is left
 * when it is silent and has nothing else. If the new session is refused it, the old one is its home again. A session that was
 * asked, and has not answered, may have the filter or not: messages may come over it, but no other session unsubscribes in its
 * favour.
 */

import type { Address } from "./address.js";
import type { Qos } from "./message.js";
import { type Placed, unite } from "./placement.js";
import { overlap } from "./topics.js";

/** How a session shall have a filter. */
export interface Subscription {
  readonly qos: Qos;
  /** Another session has it as well, and was sent what is retained. */
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

/** Where a session shall be, and the number of the answer that says so: a new one is followed even to the same address. */
export interface Target {
  readonly answer: number;
  readonly address: Address;
}

interface Slot {
  target: Target | undefined;
  isLeaving: boolean;
  /** Moved filters whose last messages may still come. */
  readonly draining: Set<string>;
}

const newSlot = (target?: Target): Slot => ({ target, isLeaving: false, draining: new Set() });

/** Filters, sessions, and which shall have which. */
export class Plan {
  readonly #maxSessions: number;
  #answers = 0;
  readonly #qos = new Map<string, Qos>();
  readonly #home = new Map<string, number>();
  readonly #at = new Sessions();
  /** Those that were sent a SUBSCRIBE or UNSUBSCRIBE and have not answered. */
  readonly #asked = new Sessions();
  readonly #moving = new Set<string>();
  readonly #slots = new Map<number, Slot>([[1, newSlot()]]);

  constructor(maxSessions: number) {
    this.#maxSessions = maxSessions;
  }

  /** The filters that the application wants. */
  get wishes(): string[] {
    return [...this.#home.keys()];
  }

  /** The application wants a filter; one that overlaps another goes to its session. */
  subscribe(filter: string, qos: Qos): void {
    if (!this.#home.has(filter)) {
      this.#home.set(filter, [...this.#home].find(([other]) => overlap(filter, other))?.[1] ?? 1);
    }
    this.#qos.set(filter, qos);
  }

  /** The application does not want a filter any more. Answers whether any session has it. */
  unsubscribe(filter: string): boolean {
    this.#home.delete(filter);
    this.#qos.delete(filter);
    return this.#at.has(filter);
  }

  home(filter: string): number | undefined {
    return this.#home.get(filter);
  }

  /** Whether the session that shall have the filter has it. */
  isHome(filter: string): boolean {
    const home = this.#home.get(filter);
    return home !== undefined && this.#at.of(filter).has(home);
  }

  /** Follows an answer of the control plane. Answers the filters that begin to move. */
  apply(placed: ReadonlyMap<number, Placed>): string[] {
    this.#answers += 1;
    const told = new Map<string, number>();
    for (const [number, { address, subscribe }] of placed) {
      const slot = this.#slot(number);
      if (address !== undefined) {
        slot.target = { answer: this.#answers, address };
      }
      subscribe.forEach((filter) => told.set(filter, number));
    }
    const homes = new Map(
      [...this.#home].map(([filter, home]) => [filter, told.get(filter) ?? (placed.has(home) ? home : 1)]),
    );
    return [...unite(homes)].filter(([filter, home]) => this.#settle(filter, home)).map(([filter]) => filter);
  }

  /** The session for an address, an old one or a new one. Undefined: there are enough already. */
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
    return this.#home.has(filter) && !this.wishes.some((other) => other !== filter && overlap(other, filter));
  }

  /** Moves one filter. Answers whether it begins to move. */
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

  /** Where a session is, if nobody said where it shall be. */
  noteAddress(number: number, address: Address): void {
    const slot = this.#slots.get(number);
    if (slot !== undefined && slot.target === undefined) {
      slot.target = { answer: 0, address };
    }
  }

  /** A session is sent a SUBSCRIBE or UNSUBSCRIBE: until it is answered, nobody knows whether it has the filter. */
  onAsked(number: number, filter: string): void {
    this.#at.delete(filter, number);
    this.#asked.add(filter, number);
  }

  onSubscribed(number: number, filter: string): void {
    this.#asked.delete(filter, number);
    this.#at.add(filter, number);
  }

  /** The broker does not let a session have a filter. Answers whether another has it still. */
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

  /** A session does not have a filter any more. */
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

  /** A session is silent. Answers the filters whose move is over. */
  onDrained(number: number): string[] {
    const slot = this.#slots.get(number);
    const drained = [...(slot?.draining ?? [])];
    slot?.draining.clear();
    return drained.filter((filter) => !this.#isUnderWay(filter)).filter((filter) => this.#moving.delete(filter));
  }

  /** Whether messages of a filter may come over a session that is not its home. */
  #isUnderWay(filter: string): boolean {
    return this.#elsewhere(filter).length > 0 || [...this.#slots.values()].some(({ draining }) => draining.has(filter));
  }

  /** A session has ended. If it has something to do again by now, it begins anew. Answers the filters whose move is over. */
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

  /** A session is not to be had: the first takes what it should have had. */
  giveUp(number: number): void {
    for (const [filter, home] of this.#home) {
      if (home === number) {
        this.#home.set(filter, 1);
      }
    }
  }

  /** Those that should be there. */
  sessions(): number[] {
    return [...new Set([...this.#slots.keys(), ...this.#home.values()])].sort((one, other) => one - other);
  }

  target(number: number): Target | undefined {
    return this.#slots.get(number)?.target;
  }

  /** What a session shall have now. */
  filters(number: number): Map<string, Subscription> {
    const filters = new Map<string, Subscription>();
    if (this.#slots.get(number)?.isLeaving) {
      return filters;
    }
    for (const [filter, home] of this.#home) {
      const sessions = this.#at.of(filter);
      if (home === number || (sessions.has(number) && !sessions.has(home))) {
        const isMoved = [...sessions].some((session) => session !== number);
        filters.set(filter, { qos: this.#qos.get(filter) ?? 0, isMoved });
      }
    }
    return filters;
  }

  /** Marks a session as one to be left, unless it has or shall have something. The first stays. */
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
