/** Topic names and filters (5.0, 4.7). */

/** Bytes of a text, or of binary data, in a packet. */
export const LONGEST = 65_535;
const SHARED = "$share/";

/** Throws RangeError unless `topic` is a topic name. */
export function checkTopic(topic: string): void {
  check(topic, "topic");
  if (!isExact(topic)) {
    throw new RangeError(`topic ${JSON.stringify(topic)}: a topic name has no wildcards`);
  }
}

/** Throws RangeError unless `filter` is a topic filter, shared or not. */
export function checkFilter(filter: string): void {
  check(filter, "filter");
  let rest = filter;
  if (filter.startsWith(SHARED)) {
    const [name = "", ...more] = filter.slice(SHARED.length).split("/");
    rest = more.join("/");
    if (!name || !isExact(name) || !rest) {
      throw new RangeError(`filter ${JSON.stringify(filter)}: expected $share/NAME/FILTER`);
    }
  }
  const levels = rest.split("/");
  levels.forEach((level, index) => {
    if (level.includes("#") && (level !== "#" || index < levels.length - 1)) {
      throw new RangeError(`filter ${JSON.stringify(filter)}: # stands alone in the last level`);
    }
    if (level.includes("+") && level !== "+") {
      throw new RangeError(`filter ${JSON.stringify(filter)}: + stands alone in its level`);
    }
  });
}

function check(text: string, what: string): void {
  if (text === "") {
    throw new RangeError(`${what} ${JSON.stringify(text)}: expected at least one character`);
  }
  checkText(text, what);
}

/** Throws RangeError unless `text` fits into a packet, TypeError if it is no text. */
export function checkText(text: string, what: string): void {
  if (typeof text !== "string") {
    throw new TypeError(`${what}: ${typeof text}: expected text`);
  }
  if (text.includes("\0") || new TextEncoder().encode(text).length > LONGEST) {
    const shown = JSON.stringify(text.slice(0, 50));
    throw new RangeError(`${what} ${shown}: expected at most ${LONGEST} bytes, without U+0000`);
  }
}

/** Whether there are no wildcards. */
export function isExact(filter: string): boolean {
  return !filter.includes("+") && !filter.includes("#");
}

/** Whether a filter, not a shared one, matches a topic. */
export function matches(filter: string, topic: string): boolean {
  if (topic.startsWith("$") && (filter.startsWith("+") || filter.startsWith("#"))) {
    return false;
  }
  const levels = topic.split("/");
  const wanted = filter.split("/");
  for (const [index, level] of wanted.entries()) {
    if (level === "#") {
      return true;
    }
    if (index >= levels.length || (level !== "+" && level !== levels[index])) {
      return false;
    }
  }
  return wanted.length === levels.length;
}

/** Whether a topic can match both. Shared subscriptions overlap with none: each of their messages goes to one session. */
export function overlap(one: string, other: string): boolean {
  if (one.startsWith(SHARED) || other.startsWith(SHARED)) {
    return false;
  }
  if (isExact(other)) {
    return matches(one, other);
  }
  if (isExact(one)) {
    return matches(other, one);
  }
  const first = one.split("/");
  const second = other.split("/");
  const shared = Math.min(first.length, second.length);
  for (let index = 0; index < shared; index += 1) {
    const [a, b] = [first[index], second[index]];
    if (a === "#" || b === "#") {
      return true;
    }
    if (a !== b && a !== "+" && b !== "+") {
      return false;
    }
  }
  const longer = first.length > second.length ? first : second;
  return first.length === second.length || longer[shared] === "#";
}
