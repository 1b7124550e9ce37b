/** Waiting for events. */

/** Wakes one loop; remembers when it does not wait. */
export class Wake {
  #isSet = false;
  #resolve: (() => void) | undefined;

  /** Wakes whoever waits, or the next who will. */
  set(): void {
    this.#isSet = true;
    this.#resolve?.();
  }

  /** Until it is set, or `seconds` have passed. Answers whether it was set. */
  async wait(seconds?: number): Promise<boolean> {
    if (!this.#isSet) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      await new Promise<void>((resolve) => {
        this.#resolve = resolve;
        if (seconds !== undefined) {
          timer = setTimeout(resolve, Math.max(seconds, 0) * 1000);
        }
      });
      clearTimeout(timer);
      this.#resolve = undefined;
    }
    const wasSet = this.#isSet;
    this.#isSet = false;
    return wasSet;
  }
}

/** Wakes everybody who waits at the moment. */
export class Changes {
  #waiting: Array<() => void> = [];

  /** Until the next `notify`. */
  next(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  notify(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    waiting.forEach((resolve) => resolve());
  }
}

/** A promise and the ends of it. Nobody need wait for it: a failure that nobody waits for is no fault. */
export class Reply<T> {
  readonly promise: Promise<T>;
  isDone = false;
  #resolve!: (value: T) => void;
  #reject!: (error: Error) => void;

  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.promise.catch(() => undefined);
  }

  resolve(value: T): void {
    this.isDone = true;
    this.#resolve(value);
  }

  reject(error: Error): void {
    this.isDone = true;
    this.#reject(error);
  }
}

/** Seconds, of a clock that does not jump. */
export function now(): number {
  return performance.now() / 1000;
}
