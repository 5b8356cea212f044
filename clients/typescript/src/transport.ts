/** Sends requests: repeats what may be repeated, and follows what takes time to its end. */
import type { FailedRun } from "./api.js";
import { ConnectionFailed, Problem, StillRunning, UnexpectedAnswer } from "./errors.js";
import { BY_NAME } from "./problems.js";
import type { Answer, Body, Item, Matching, Method, Names, Path, Query, Waiting } from "./types.js";

/** Longest wait that a request asks of the server; it stays below what proxies allow. */
export const MAX_WAIT_SECONDS = 25;
/** Before the first repetition of a request that has no answer; doubled each time. */
const FIRST_DELAY_SECONDS = 0.5;
/** Answers after which the same request may succeed; those of proxies too. */
const REPEATED = new Set([429, 502, 503, 504]);
/** Posts that change nothing, and need no key to be repeated. */
const READS = /\/(search|context)$/;

const etags = new WeakMap<object, string>();

/** Return the ETag of an answer, for `ifMatch` of a later change. */
export function etagOf(answer: object): string | undefined {
  return etags.get(answer);
}

/** The parts of a request to an operation. */
export interface Parts<P extends Path, M extends Method> extends Matching {
  names?: Names<P, M>;
  query?: Query<P, M>;
  body?: Body<P, M>;
  zip?: Uint8Array<ArrayBuffer>;
  form?: FormData;
  signal?: AbortSignal | undefined;
}

/** A request as it is sent, and sent again: each time with the same `Idempotency-Key`. */
interface Sendable {
  method: string;
  url: URL;
  headers: Record<string, string>;
  body?: string | Uint8Array<ArrayBuffer> | FormData;
  signal?: AbortSignal | undefined;
}

/** One server, and one key for it. */
export class Transport {
  constructor(
    private readonly base: URL,
    private readonly key: string,
    private readonly timeoutSeconds: number,
    private readonly patienceSeconds: number,
    private readonly fetcher: typeof globalThis.fetch,
  ) {}

  /** Send a request; return its answer. */
  async fetch<P extends Path, M extends Method>(
    method: M,
    path: P,
    parts: Parts<P, M> = {},
  ): Promise<Answer<P, M>> {
    return parse(await this.send(this.sendable(method, path, parts)));
  }

  /** Send a request whose answer is a file. */
  async download<P extends Path>(path: P, parts: Parts<P, "get">): Promise<Uint8Array> {
    const answer = await this.send(this.sendable("get", path, parts));
    return new Uint8Array(await answer.arrayBuffer());
  }

  /**
   * Send a request that starts a run; return its result, which the same request returns in the
   * end. Throws StillRunning after `timeoutSeconds`.
   */
  async finish<P extends Path, M extends Method>(
    method: M,
    path: P,
    parts: Parts<P, M>,
    { timeoutSeconds = this.patienceSeconds, signal }: Waiting,
  ): Promise<Answer<P, M>> {
    const deadline = now() + timeoutSeconds;
    const request = this.sendable(method, path, { ...parts, signal });
    request.url.searchParams.set("wait", String(Math.min(MAX_WAIT_SECONDS, timeoutSeconds)));
    let answer = await this.send(request);
    while (answer.status === 202) {
      await this.follow(answer, timeoutSeconds, deadline, signal);
      answer = await this.send(request);
    }
    return parse(answer);
  }

  /** Send a request whose answer is its own progress; return it at the end. */
  async settle<P extends Path, M extends Method>(
    method: M,
    path: P,
    parts: Parts<P, M>,
    { timeoutSeconds = this.patienceSeconds, signal }: Waiting,
  ): Promise<Answer<P, M>> {
    const answer = await this.send(this.sendable(method, path, { ...parts, signal }));
    if (answer.status !== 202) return parse(answer);
    return this.follow(answer, timeoutSeconds, now() + timeoutSeconds, signal);
  }

  /** Return a list, which is read page by page. */
  pages<P extends Path>(path: P, parts: Parts<P, "get">): Pages<Item<P>> {
    const request = this.sendable("get", path, parts);
    return new Pages(async (following) => {
      const url = new URL(request.url);
      if (typeof following === "number") url.searchParams.set("page", String(following));
      if (typeof following === "string") {
        const cursor = new URL(following, this.base).searchParams.get("cursor");
        url.searchParams.set("cursor", cursor ?? "");
      }
      return parse(await this.send({ ...request, url }));
    });
  }

  /** Read what a 202 names until it has ended; return its last state. */
  private async follow<T>(
    first: Response,
    seconds: number,
    deadline: number,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const url = new URL(first.headers.get("Location") ?? "", this.base);
    if (url.origin !== this.base.origin) {
      throw new UnexpectedAnswer(202, `its Location is at another server: ${url}`);
    }
    let answer = first;
    for (;;) {
      const progress = await parse<T & { finished_at?: string | null }>(answer);
      if (progress.finished_at) return progress;
      const pause = retryAfter(answer) ?? 1;
      if (now() + pause > deadline) throw new StillRunning(url.pathname, progress, seconds);
      await sleep(pause, signal);
      answer = await this.send({ method: "GET", url, headers: {}, signal });
    }
  }

  /** Send a request, again where that may help; return an answer that is no error. */
  private async send(request: Sendable): Promise<Response> {
    const wait = Number(request.url.searchParams.get("wait") ?? 0);
    const timeout = this.timeoutSeconds + wait;
    const deadline = now() + timeout;
    const headers = { ...request.headers, Authorization: `Bearer ${this.key}` };
    for (let attempt = 0; ; attempt++) {
      request.signal?.throwIfAborted();
      let answer: Response | undefined;
      let failure: unknown;
      try {
        const limit = AbortSignal.timeout(timeout * 1000);
        answer = await this.fetcher(request.url, {
          method: request.method,
          headers,
          body: request.body ?? null,
          redirect: "manual", // the key goes to no other server
          signal: request.signal ? AbortSignal.any([request.signal, limit]) : limit,
        });
      } catch (error) {
        request.signal?.throwIfAborted();
        failure = error;
      }
      const pause = await delay(answer, attempt);
      if (pause === undefined || now() + pause > deadline) {
        if (answer) return await checked(answer);
        const options = { cause: failure };
        throw new ConnectionFailed(`${request.method} ${this.base}: ${failure}`, options);
      }
      await answer?.body?.cancel();
      await sleep(pause, request.signal);
    }
  }

  /** Return a request; one that changes something has an `Idempotency-Key`. */
  private sendable<P extends Path, M extends Method>(
    method: M,
    path: P,
    { names, query, body, zip, form, ifMatch, signal }: Parts<P, M>,
  ): Sendable {
    const values: Record<string, unknown> = { ...names };
    // The name of a file is the only one that may have several parts.
    const address = path.replace(/\{(\w+)\}/g, (_, name: string) =>
      String(values[name])
        .split(name === "path" ? "/" : /$^/)
        .map(encodeURIComponent)
        .join("/"),
    );
    const url = new URL(`.${address}${path.endsWith("{path}") ? "" : "/"}`, this.base);
    for (const [name, value] of Object.entries({ ...query })) {
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
    }
    const headers: Record<string, string> = {};
    if (method !== "get" && !READS.test(path)) headers["Idempotency-Key"] = crypto.randomUUID();
    if (ifMatch !== undefined) headers["If-Match"] = ifMatch;
    const request: Sendable = { method: method.toUpperCase(), url, headers, signal };
    if (zip !== undefined) {
      headers["Content-Type"] = "application/zip";
      request.body = zip;
    } else if (form !== undefined) {
      request.body = form; // whose content type, with the boundary, comes from `fetch`
    } else if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(body);
    }
    return request;
  }
}

/** A list of the API, read page by page while it is iterated over. */
export class Pages<T> implements AsyncIterable<T> {
  constructor(private readonly read: (following?: string | number) => Promise<Page<T>>) {}

  /** Yield all items of all pages. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    let page = await this.read();
    for (;;) {
      yield* page.records ?? page.results ?? [];
      if (page.next === undefined || page.next === null) return;
      page = await this.read(page.next);
    }
  }

  /** Return all items of all pages. */
  async all(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) items.push(item);
    return items;
  }
}

interface Page<T> {
  results?: T[];
  records?: T[];
  next?: string | number | null;
}

/** Return the JSON of an answer, and keep its ETag. */
async function parse<T>(answer: Response): Promise<T> {
  if (answer.status === 204) return undefined as T;
  const text = await answer.text();
  let parsed: T;
  try {
    parsed = JSON.parse(text) as T;
  } catch {
    throw new UnexpectedAnswer(answer.status, text);
  }
  const etag = answer.headers.get("ETag");
  if (etag !== null && typeof parsed === "object" && parsed !== null) etags.set(parsed, etag);
  return parsed;
}

/** Return an answer that is no error; throw the problem that it describes. */
async function checked(answer: Response): Promise<Response> {
  if (answer.ok) return answer;
  const name = await problemName(answer);
  if (!name) throw new UnexpectedAnswer(answer.status, await answer.text());
  const described = await parse<FailedRun>(answer);
  throw new (BY_NAME[name] ?? Problem)(described, retryAfter(answer));
}

/** Return the seconds before a request is repeated; undefined if its answer is final. */
async function delay(answer: Response | undefined, attempt: number): Promise<number | undefined> {
  const backoff = FIRST_DELAY_SECONDS * 2 ** attempt * (0.5 + Math.random() / 2);
  if (answer === undefined) return backoff;
  const isInProgress = answer.status === 409 && (await problemName(answer)) === "in-progress";
  if (!REPEATED.has(answer.status) && !isInProgress) return undefined;
  return Math.max(backoff, retryAfter(answer) ?? 0);
}

/** Return the last part of a problem's type; nothing if the answer is no problem. */
async function problemName(answer: Response): Promise<string> {
  if (!answer.headers.get("Content-Type")?.startsWith("application/problem+json")) return "";
  const problem = await parse<{ type?: string }>(answer.clone());
  return problem.type?.split(":").pop() ?? "";
}

/** Return the seconds of a `Retry-After`, which may be a number or a date. */
function retryAfter(answer: Response): number | undefined {
  const text = answer.headers.get("Retry-After");
  if (text === null) return undefined;
  if (/^\d+$/.test(text)) return Number(text);
  const moment = Date.parse(text);
  return Number.isNaN(moment) ? undefined : Math.max(0, moment / 1000 - Date.now() / 1000);
}

function now(): number {
  return performance.now() / 1000;
}

/** Wait; rejects when the signal is aborted. */
export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, seconds * 1000);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
