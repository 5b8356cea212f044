/** What the client throws. Each problem type of the API has a class in `problems`. */
import type { FailedRun } from "./api.js";

/** Anything that the client throws on purpose. */
export class UserAsCodeError extends Error {
  override get name(): string {
    return this.constructor.name;
  }
}

/** The address or the key of the server is missing or unusable. */
export class ConfigurationError extends UserAsCodeError {}

/** There was no answer, also not to the repeated request; `cause` is the last failure. */
export class ConnectionFailed extends UserAsCodeError {}

/** A webhook's message was not sent by this endpoint's server, or is too old. */
export class InvalidSignature extends UserAsCodeError {}

/** The answer does not come from this API: perhaps the address is wrong, or a proxy answered. */
export class UnexpectedAnswer extends UserAsCodeError {
  constructor(
    readonly status: number,
    text: string,
  ) {
    super(`HTTP ${status}, which is not an answer of UaC: ${text.slice(0, 300)}`);
  }
}

/**
 * An operation has not ended within `timeoutSeconds`; it goes on at the server. `location` is the
 * address of the resource that shows its progress, `progress` that resource.
 */
export class StillRunning extends UserAsCodeError {
  constructor(
    readonly location: string,
    readonly progress: unknown,
    seconds: number,
  ) {
    super(`not finished after ${seconds} s, still running at ${location}`);
  }
}

/**
 * An error of the API. `detail` says what is wrong and how to fix it, `fields` what is wrong with
 * each field, such as `entries.0.kind`. `answer` is the whole problem object; if a run failed, it
 * has the run's `id`, `outcome`, `error` and `verdict`.
 */
export class Problem extends UserAsCodeError {
  readonly type: string;
  readonly status: number;
  readonly detail: string;
  readonly requestId: string | undefined;
  readonly limit: string | undefined;
  readonly fields: ReadonlyMap<string, string[]>;

  constructor(
    readonly answer: FailedRun,
    readonly retryAfterSeconds?: number,
  ) {
    const fields = new Map(flatten(answer.errors ?? {}, ""));
    const lines = [...fields].map(([field, fixes]) => `\n  ${field}: ${fixes.join("; ")}`);
    super([answer.detail, answer.request_id && ` [${answer.request_id}]`, ...lines].join(""));
    this.type = answer.type;
    this.status = answer.status;
    this.detail = answer.detail;
    this.requestId = answer.request_id;
    this.limit = answer.limit;
    this.fields = fields;
  }
}

/** Yield each wrong field of a request with its messages. */
function* flatten(errors: unknown, path: string): Generator<[string, string[]]> {
  const isNested = typeof errors === "object" && errors !== null;
  if (isNested && (!Array.isArray(errors) || errors.some((one) => typeof one === "object"))) {
    for (const [name, inner] of Object.entries(errors)) {
      yield* flatten(inner, path ? `${path}.${name}` : name);
    }
  } else {
    yield [path, (Array.isArray(errors) ? errors : [errors]).map(String)];
  }
}
