/**
 * What each session shall have, and how a filter gets from one to another. Pure: reports in, assignments out.
 *
 * A filter whose home changes stays at its old session until the new one has it; then the old one unsubscribes, and is left
 * when it is silent and has nothing else. If the new session is refused it, the old one is its home again.
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
  readonly #at = new Map<string, Set<number>>();
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
    return home !== undefined && this.#sessionsAt(filter).has(home);
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
    if (!changes || !this.#at.has(filter) || this.#moving.has(filter)) {
      return false;
    }
    this.#moving.add(filter);
    return true;
  }

  /** Where a session is, if nobody said where it shall be. */
  noteAddress(number: number, address: Address): void {
    const slot = this.#slots.get(number);
    if (slot !== undefined && slot.target === undefined) {
      slot.target = { answer: 0, address };
    }
  }

  onSubscribed(number: number, filter: string): void {
    this.#at.set(filter, this.#sessionsAt(filter).add(number));
  }

  /** The broker does not let a session have a filter. Answers whether another has it still. */
  onRefused(number: number, filter: string): boolean {
    const others = [...this.#sessionsAt(filter)].filter((session) => session !== number);
    if (others.length > 0 && this.#home.has(filter)) {
      this.#home.set(filter, Math.min(...others));
      return true;
    }
    this.unsubscribe(filter);
    return false;
  }

  /** A session does not have a filter any more. Answers whether none has it. */
  onUnsubscribed(number: number, filter: string): boolean {
    const sessions = this.#at.get(filter);
    if (sessions === undefined) {
      return true;
    }
    sessions.delete(number);
    const home = this.#home.get(filter);
    if (this.#moving.has(filter) && (home === undefined || sessions.has(home))) {
      this.#slots.get(number)?.draining.add(filter);
    }
    if (sessions.size === 0) {
      this.#at.delete(filter);
    }
    return sessions.size === 0;
  }

  /** A session is silent. Answers the filters whose move is over. */
  onDrained(number: number): string[] {
    const slot = this.#slots.get(number);
    const over = [...(slot?.draining ?? [])].filter((filter) => this.#moving.delete(filter));
    slot?.draining.clear();
    return over;
  }

  /** A session has ended. If it has something to do again by now, it begins anew. Answers the filters whose move is over. */
  onLeft(number: number, isRouted: boolean): string[] {
    const over = this.onDrained(number);
    const slot = this.#slots.get(number);
    if (slot !== undefined && (isRouted || [...this.#home.values()].includes(number))) {
      slot.isLeaving = false;
    } else {
      this.#slots.delete(number);
    }
    for (const [filter, sessions] of this.#at) {
      sessions.delete(number);
      if (sessions.size === 0) {
        this.#at.delete(filter);
      }
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
      const sessions = this.#sessionsAt(filter);
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
    const hasAny = [...this.#at.values()].some((sessions) => sessions.has(number));
    if (number !== 1 && this.filters(number).size === 0 && !hasAny) {
      slot.isLeaving = true;
    }
    return slot.isLeaving;
  }

  #slot(number: number): Slot {
    const slot = this.#slots.get(number) ?? newSlot();
    this.#slots.set(number, slot);
    return slot;
  }

  #sessionsAt(filter: string): Set<number> {
    return this.#at.get(filter) ?? new Set();
  }
}
