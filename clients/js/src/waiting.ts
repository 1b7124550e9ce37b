/** Waiting for events. */

/** Wakes one loop; a wake-up is remembered while the loop does not wait. */
export class Wake {
  #isSet = false;
  #resolve: (() => void) | undefined;

  /** Wakes the one that waits, or the next one that will. */
  set(): void {
    this.#isSet = true;
    this.#resolve?.();
  }

  /** Waits until it is set, or `seconds` have passed. Returns whether it was set. */
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

/** Wakes all that wait at the moment. */
export class Changes {
  #waiting: Array<() => void> = [];

  /** Waits until the next `notify`. */
  next(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  notify(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    waiting.forEach((resolve) => resolve());
  }
}

/** A promise with its two ends. A failure that nobody waits for is no fault. */
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

/** Seconds of a monotonic clock. */
export function now(): number {
  return performance.now() / 1000;
}
