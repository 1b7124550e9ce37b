/** Requests to control planes over HTTP: when the client starts, and again when its topics change. */

import type { RequestOptions } from "node:https";
import type { SecureContextOptions } from "node:tls";

import type { Tls } from "./connection.js";
import { IS_BROWSER } from "./options.js";
import { type Entry, type Request, refusedEntry } from "./placement.js";
import { Wake } from "./waiting.js";

const TIMEOUT_MS = 2000;
/** Topics that change within this time are requested together. */
const GATHER_S = 0.02;
/** Longest wait before a control plane that did not answer is asked again; the wait is drawn evenly. */
const ASK_AGAIN_S = 20;
/** How often undeclared topics that were published to are looked for. */
const LOOK_S = 1;

/** What happens with the result of a request. */
export interface Answers {
  onAnswer(text: string): void;
  /** The control plane refuses requests with this entry. Returns whether it is newly left out of requests. */
  onDenied(entry: Entry): boolean;
  onProblem(problem: string): void;
}

/** Asks control planes while the client runs; without control planes it does nothing. */
export class Asking {
  readonly #urls: readonly string[];
  readonly #authorization: string | undefined;
  readonly #tls: Tls | undefined;
  readonly #request: () => Request;
  readonly #answers: Answers;
  readonly #wake = new Wake();
  #asked: Request | undefined;
  #later: ReturnType<typeof setTimeout> | undefined;
  #isOver = false;

  constructor(
    urls: readonly string[],
    { userName, password, tls }: { userName: string | undefined; password: string | undefined; tls: Tls | undefined },
    request: () => Request,
    answers: Answers,
  ) {
    this.#urls = urls;
    this.#authorization = userName === undefined ? undefined : basicAuthorization(userName, password ?? "");
    this.#tls = tls;
    this.#request = request;
    this.#answers = answers;
  }

  /** Asks, and keeps asking. Fulfilled after the first answer or failure. */
  async start(): Promise<void> {
    if (this.#urls.length > 0) {
      await this.#ask();
      void this.#keepAsking();
    }
  }

  /** Topics have changed, or a connection was lost. */
  soon(): void {
    this.#wake.set();
  }

  stop(): void {
    this.#isOver = true;
    clearTimeout(this.#later);
    this.#wake.set();
  }

  async #keepAsking(): Promise<void> {
    while (!this.#isOver) {
      const isAsked = await this.#wake.wait(LOOK_S);
      if (!isAsked && this.#asked?.publish.length === this.#request().publish.length) {
        continue;
      }
      await new Promise<void>((resolve) => setTimeout(resolve, GATHER_S * 1000));
      if (!this.#isOver) {
        await this.#ask();
      }
    }
  }

  async #ask(): Promise<void> {
    try {
      const text = await this.#askEach();
      if (!this.#isOver) {
        this.#answers.onAnswer(text);
      }
    } catch (error) {
      this.#answers.onProblem(error instanceof Error ? error.message : String(error));
      this.#askLater();
    }
  }

  /** Asks one after the other, in random order. Throws Error with the last problem if none answers. */
  async #askEach(): Promise<string> {
    let problem = "no control plane is named";
    for (const url of shuffled(this.#urls)) {
      let entry: Entry | undefined;
      // Each time the request has one entry less.
      do {
        entry = undefined;
        this.#asked = this.#request();
        try {
          const { status, text } = await post(url, this.#authorization, this.#tls, JSON.stringify(this.#asked));
          if (status >= 200 && status < 300) {
            return text;
          }
          problem = `${url}: ${status}: ${reasonOf(text)}`;
          entry = refusedEntry(this.#asked, text);
        } catch (error) {
          problem = `${url}: ${describe(error)}`;
        }
      } while (entry !== undefined && !this.#isOver && this.#answers.onDenied(entry));
    }
    throw new Error(problem);
  }

  #askLater(): void {
    clearTimeout(this.#later);
    if (!this.#isOver) {
      this.#later = setTimeout(() => this.soon(), Math.random() * ASK_AGAIN_S * 1000);
    }
  }
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

async function post(
  url: string,
  authorization: string | undefined,
  tls: Tls | undefined,
  body: string,
): Promise<Answer> {
  const headers = { "content-type": "application/json", ...(authorization && { authorization }) };
  const options = { method: "POST", headers, signal: AbortSignal.timeout(TIMEOUT_MS) };
  const address = `${url.replace(/\/+$/, "")}/v1/placements`;
  if (tls !== undefined && address.startsWith("https:") && !IS_BROWSER) {
    return postWith(address, { ...options, ...(tls as SecureContextOptions) }, body);
  }
  const answer = await fetch(address, { ...options, body });
  return { status: answer.status, text: await answer.text() };
}

/** `fetch` accepts no certificates. A static `import` of the module would break bundlers for browsers. */
function postWith(address: string, options: RequestOptions, body: string): Promise<Answer> {
  const { request } = process.getBuiltinModule("node:https");
  return new Promise((resolve, reject) => {
    const asked = request(address, options, (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      answer.on("data", (part) => (text += part));
      answer.on("error", reject);
      answer.on("end", () => resolve({ status: answer.statusCode ?? 0, text }));
    });
    asked.on("error", reject);
    asked.end(body);
  });
}

/** The text of a problem document (RFC 9457). */
function reasonOf(body: string): string {
  try {
    const problem: { detail?: unknown; title?: unknown } | null = JSON.parse(body);
    return String(problem?.detail ?? problem?.title ?? "no reason given");
  } catch {
    return "no reason given";
  }
}

/** `fetch` hides the reason of a failure in its cause. */
function describe(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return cause instanceof Error ? cause.message || cause.name : String(cause);
}

/** The value of `Authorization: Basic`. */
function basicAuthorization(userName: string, password: string): string {
  const bytes = new TextEncoder().encode(`${userName}:${password}`);
  return `Basic ${btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))}`;
}

/** In random order. */
export function shuffled<T>(values: readonly T[]): T[] {
  const drawn = [...values];
  for (let index = drawn.length - 1; index > 0; index -= 1) {
    const other = Math.floor(Math.random() * (index + 1));
    [drawn[index], drawn[other]] = [drawn[other] as T, drawn[index] as T];
  }
  return drawn;
}
