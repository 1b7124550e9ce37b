/** How a filter is subscribed. */

import { type Qos, checkQos } from "./message.js";
import { checkFilter } from "./topics.js";

/** Whether the broker sends the retained messages of a filter when it is subscribed; `sendIfNew`: only if the session did not have it. */
export type RetainHandling = "sendAtSubscribe" | "sendIfNew" | "doNotSend";
/** In the order of their values in a SUBSCRIBE. */
export const RETAIN_HANDLING: readonly RetainHandling[] = ["sendAtSubscribe", "sendIfNew", "doNotSend"];
const LARGEST_IDENTIFIER = 268_435_455;

/** The options of a subscription. All except `qos` need 5.0. */
export interface SubscriptionOptions {
  readonly qos?: Qos;
  /** Messages that this session published are not sent to it. */
  readonly noLocal?: boolean;
  /** RETAIN of a message is as its publisher set it. */
  readonly retainAsPublished?: boolean;
  readonly retainHandling?: RetainHandling;
  /** Comes with each message that matches the filter, 1 to 268,435,455. */
  readonly identifier?: number;
}

/** Options with nothing left out. */
export interface Chosen {
  readonly qos: Qos;
  readonly noLocal: boolean;
  readonly retainAsPublished: boolean;
  readonly retainHandling: RetainHandling;
  readonly identifier: number | undefined;
}

/** The options of a subscription; RangeError or TypeError that names the option if a filter cannot be subscribed like this. */
export function chosen(filter: string, options: Qos | SubscriptionOptions, version: 4 | 5): Chosen {
  checkFilter(filter);
  if (typeof options !== "object" || options === null) {
    checkQos(options);
    return toChosen({ qos: options });
  }
  const names = Object.keys(toChosen({}));
  const unknown = Object.keys(options).find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw new RangeError(`${unknown}: expected one of ${names.join(", ")}`);
  }
  const all = toChosen(options);
  checkQos(all.qos);
  for (const name of ["noLocal", "retainAsPublished"] as const) {
    if (typeof all[name] !== "boolean") {
      throw new TypeError(`${name}: ${JSON.stringify(all[name])}: expected true or false`);
    }
  }
  if (!RETAIN_HANDLING.includes(all.retainHandling)) {
    const shown = JSON.stringify(all.retainHandling);
    throw new RangeError(`retainHandling: ${shown}: expected one of ${RETAIN_HANDLING.join(", ")}`);
  }
  const { identifier } = all;
  if (
    identifier !== undefined &&
    !(Number.isInteger(identifier) && identifier >= 1 && identifier <= LARGEST_IDENTIFIER)
  ) {
    throw new RangeError(`identifier: ${JSON.stringify(identifier)}: expected 1 to ${LARGEST_IDENTIFIER}`);
  }
  if (version !== 5 && !isSame(all, toChosen({ qos: all.qos }))) {
    throw new RangeError("noLocal, retainAsPublished, retainHandling, identifier: expected version 5");
  }
  if (all.noLocal && filter.startsWith("$share/")) {
    throw new RangeError(`noLocal: expected false for the shared subscription ${JSON.stringify(filter)}`);
  }
  return all;
}

function toChosen(options: SubscriptionOptions): Chosen {
  return {
    qos: options.qos ?? 0,
    noLocal: options.noLocal ?? false,
    retainAsPublished: options.retainAsPublished ?? false,
    retainHandling: options.retainHandling ?? "sendAtSubscribe",
    identifier: options.identifier,
  };
}

/** Whether both are the same options. */
export function isSame(one: Chosen | undefined, other: Chosen | undefined): boolean {
  return one !== undefined && other !== undefined && JSON.stringify(one) === JSON.stringify(other);
}
