/** What a server remembers of one user. */
import { Alerts } from "./alerts.js";
import type * as models from "./api.js";
import { message, type NewEntry } from "./entries.js";
import type { Pages, Transport } from "./transport.js";
import type { Body, Filters, Matching, Query, Waiting } from "./types.js";

type Ask<P extends keyof models.paths, Own extends string = never> = Omit<Body<P, "post">, Own>;

/** A user of your product, under the id that your product uses. Creating this asks nothing. */
export class User {
  readonly alerts: Alerts;
  readonly checkpoints: Checkpoints;
  readonly constraints: Constraints;
  readonly documents: Documents;
  readonly entries: Entries;
  private readonly names: { user_id: string };

  constructor(
    private readonly transport: Transport,
    readonly userId: string,
  ) {
    this.names = { user_id: userId };
    this.alerts = new Alerts(transport, userId);
    this.checkpoints = new Checkpoints(transport, this.names);
    this.constraints = new Constraints(transport, this.names);
    this.documents = new Documents(transport, this.names);
    this.entries = new Entries(transport, this.names);
  }

  /** Return the user, with how far its entries are processed. */
  details(): Promise<models.UserDetail> {
    return this.transport.fetch("get", "/v1/users/{user_id}", { names: this.names });
  }

  /** Change the user's time zone or metadata. */
  change({
    ifMatch,
    ...body
  }: Body<"/v1/users/{user_id}", "patch"> & Matching): Promise<models.UserDetail> {
    const parts = { names: this.names, body, ifMatch };
    return this.transport.fetch("patch", "/v1/users/{user_id}", parts);
  }

  /** Delete everything about the user; return the tombstone. */
  erase(
    { reason, ifMatch, ...waiting }: { reason: string } & Matching & Waiting,
  ): Promise<models.Erasure> {
    const parts = { names: this.names, query: { reason }, ifMatch };
    return this.transport.settle("delete", "/v1/users/{user_id}", parts, waiting);
  }

  /** Merge another user, who is the same person, into this one. */
  merge(fromUser: string, waiting: Waiting = {}): Promise<models.Merge> {
    const parts = { names: this.names, body: { from: fromUser } };
    return this.transport.settle("post", "/v1/users/{user_id}/merge", parts, waiting);
  }

  /** Return how far this user's merge into another one is. */
  merged(): Promise<models.Merge> {
    return this.transport.fetch("get", "/v1/users/{user_id}/merge", { names: this.names });
  }

  /**
   * Append entries to the user's log; a text is a message of the user. With `wait`, typed entries
   * are settled when this returns, unless that takes more seconds.
   */
  add(
    entries: NewEntry | string | (NewEntry | string)[],
    query: Query<"/v1/users/{user_id}/entries", "post"> = {},
  ): Promise<models.Appended> {
    const list = Array.isArray(entries) ? entries : [entries];
    const body = { entries: list.map((one) => (typeof one === "string" ? message(one) : one)) };
    const parts = { names: this.names, query, body };
    return this.transport.fetch("post", "/v1/users/{user_id}/entries", parts);
  }

  /** Run Python on the user's records; return its value with the evidence for it. */
  query(
    code: string,
    { timeoutSeconds, signal, ...options }: Ask<"/v1/users/{user_id}/query", "code"> & Waiting = {},
  ): Promise<models.Answer> {
    const parts = { names: this.names, body: { code, ...options } };
    const waiting = { timeoutSeconds, signal };
    return this.transport.finish("post", "/v1/users/{user_id}/query", parts, waiting);
  }

  /** Have the language model write a query for a question, and run it. */
  ask(
    question: string,
    { timeoutSeconds, signal, ...options }: Ask<"/v1/users/{user_id}/ask", "question"> & Waiting = {},
  ): Promise<models.Asked> {
    const parts = { names: this.names, body: { question, ...options } };
    const waiting = { timeoutSeconds, signal };
    return this.transport.finish("post", "/v1/users/{user_id}/ask", parts, waiting);
  }

  /** Find what was said, by words and by meaning. */
  search(
    query: string,
    options: Ask<"/v1/users/{user_id}/search", "query"> = {},
  ): Promise<models.Found> {
    const parts = { names: this.names, body: { query, ...options } };
    return this.transport.fetch("post", "/v1/users/{user_id}/search", parts);
  }

  /** Return the text for an agent's prompt: alerts, and what matters for the `query`. */
  context(body: Ask<"/v1/users/{user_id}/context"> = {}): Promise<models.Context> {
    const parts = { names: this.names, body };
    return this.transport.fetch("post", "/v1/users/{user_id}/context", parts);
  }

  /**
   * Return the records of a collection, such as `travel.trips`, whose class may be given:
   * `ada.records<Trip>("travel.trips")`.
   */
  records<Fields extends object = Record<string, unknown>>(
    collection: string,
    query: Filters<"/v1/users/{user_id}/state/{domain}/{collection}"> = {},
  ): Pages<TypedRecord<Fields>> {
    const dot = collection.lastIndexOf(".");
    const names = {
      ...this.names,
      domain: dot < 0 ? "general" : collection.slice(0, dot),
      collection: collection.slice(dot + 1),
    };
    const path = "/v1/users/{user_id}/state/{domain}/{collection}";
    return this.transport.pages(path, { names, query }) as Pages<TypedRecord<Fields>>;
  }

  /** Return the classes and collections, without the records. */
  state(query: Query<"/v1/users/{user_id}/state", "get"> = {}): Promise<models.State> {
    return this.transport.fetch("get", "/v1/users/{user_id}/state", { names: this.names, query });
  }

  /** Return a short summary of the project. */
  manifest(query: Query<"/v1/users/{user_id}/manifest", "get"> = {}): Promise<models.Manifest> {
    const parts = { names: this.names, query };
    return this.transport.fetch("get", "/v1/users/{user_id}/manifest", parts);
  }

  /** Return the alerts to come if nothing changes but the clock. */
  forecast(): Promise<models.Forecast> {
    return this.transport.fetch("get", "/v1/users/{user_id}/forecast", { names: this.names });
  }

  /** Return what has changed between two moments or versions. */
  diff(query: Query<"/v1/users/{user_id}/diff", "get">): Promise<models.Difference> {
    return this.transport.fetch("get", "/v1/users/{user_id}/diff", { names: this.names, query });
  }

  /** Return the project as a zip. */
  export(query: Query<"/v1/users/{user_id}/export", "get"> = {}): Promise<Uint8Array> {
    return this.transport.download("/v1/users/{user_id}/export", { names: this.names, query });
  }

  /** Return everything that is stored about the user, as a zip. */
  subjectAccess(): Promise<Uint8Array> {
    return this.transport.download("/v1/users/{user_id}/subject-access", { names: this.names });
  }

  /** Import a project: its files, or a zip. Throws GateRefused. */
  importProject(
    project: Record<string, string> | Uint8Array<ArrayBuffer>,
    waiting: Waiting = {},
  ): Promise<models.ImportDecision> {
    const content = project instanceof Uint8Array ? { zip: project } : { body: { files: project } };
    const parts = { names: this.names, ...content };
    return this.transport.finish("post", "/v1/users/{user_id}/import", parts, waiting);
  }

  /** Return the user's runs, newest first. */
  runs(query: Filters<"/v1/users/{user_id}/runs"> = {}): Pages<models.RunSummary> {
    return this.transport.pages("/v1/users/{user_id}/runs", { names: this.names, query });
  }

  /** Start to run a constraint on the past; `client.backtests.get` shows the progress. */
  backtest(body: Body<"/v1/users/{user_id}/backtests", "post">): Promise<models.BacktestDetail> {
    const parts = { names: this.names, body };
    return this.transport.fetch("post", "/v1/users/{user_id}/backtests", parts);
  }
}

/** A record whose fields have the types of a class of yours. */
export type TypedRecord<Fields extends object> = Omit<models.TypedRecord, "fields"> & {
  fields: Fields;
};

/** The documents that were uploaded for a user. */
class Documents {
  constructor(
    private readonly transport: Transport,
    private readonly names: { user_id: string },
  ) {}

  /**
   * Upload a file; return the document once its text is in the log. See its `error` if it has no
   * text there, and `is_duplicate` if it was uploaded before.
   */
  add(
    file: File,
    { occurred_at, ...waiting }: { occurred_at?: string } & Waiting = {},
  ): Promise<models.Document> {
    const form = new FormData();
    form.set("file", file);
    if (occurred_at !== undefined) form.set("occurred_at", occurred_at);
    const parts = { names: this.names, form };
    return this.transport.settle("post", "/v1/users/{user_id}/documents", parts, waiting);
  }

  /** Return the documents, newest first. */
  list(query: Filters<"/v1/users/{user_id}/documents"> = {}): Pages<models.Document> {
    return this.transport.pages("/v1/users/{user_id}/documents", { names: this.names, query });
  }

  /** Return a document by its id. */
  get(id: string): Promise<models.Document> {
    const names = { ...this.names, document_id: id };
    return this.transport.fetch("get", "/v1/users/{user_id}/documents/{document_id}", { names });
  }

  /** Return the file as it was uploaded, if it is stored. */
  content(id: string): Promise<Uint8Array> {
    const names = { ...this.names, document_id: id };
    const path = "/v1/users/{user_id}/documents/{document_id}/content";
    return this.transport.download(path, { names });
  }

  /** Delete a document, its text and everything derived; undefined if it had no text in the log. */
  redact(
    id: string,
    { timeoutSeconds, signal, ...query }: { reason?: string } & Waiting = {},
  ): Promise<models.Redaction | undefined> {
    const parts = { names: { ...this.names, document_id: id }, query };
    const waiting = { timeoutSeconds, signal };
    const path = "/v1/users/{user_id}/documents/{document_id}";
    return this.transport.settle("delete", path, parts, waiting);
  }
}

/** The entries of a user's log. */
class Entries {
  constructor(
    private readonly transport: Transport,
    private readonly names: { user_id: string },
  ) {}

  /** Return the entries, oldest first. */
  list(query: Filters<"/v1/users/{user_id}/entries"> = {}): Pages<models.Entry> {
    return this.transport.pages("/v1/users/{user_id}/entries", { names: this.names, query });
  }

  /** Return an entry by its number. */
  get(seq: number): Promise<models.Entry> {
    const names = { ...this.names, seq };
    return this.transport.fetch("get", "/v1/users/{user_id}/entries/{seq}", { names });
  }

  /** Return what the redaction of an entry would remove. */
  redactionPreview(seq: number): Promise<models.RedactionPreview> {
    const names = { ...this.names, seq };
    return this.transport.fetch("get", "/v1/users/{user_id}/entries/{seq}/redaction", { names });
  }

  /** Empty an entry, and remove everything that was derived from it. */
  redact(
    seq: number,
    { timeoutSeconds, signal, ...query }: { reason?: string } & Waiting = {},
  ): Promise<models.Redaction> {
    const parts = { names: { ...this.names, seq }, query };
    const waiting = { timeoutSeconds, signal };
    return this.transport.settle("delete", "/v1/users/{user_id}/entries/{seq}", parts, waiting);
  }

  /** Return how far a redaction is. */
  redaction(seq: number): Promise<models.Redaction> {
    const names = { ...this.names, seq };
    return this.transport.fetch("get", "/v1/users/{user_id}/redactions/{seq}", { names });
  }

  /** Have entries processed again that were settled wrongly. */
  reopen(body: Ask<"/v1/users/{user_id}/outcomes/reopen"> = {}): Promise<models.Reopening> {
    const parts = { names: this.names, body };
    return this.transport.fetch("post", "/v1/users/{user_id}/outcomes/reopen", parts);
  }
}

/** The constraints of a user. */
class Constraints {
  constructor(
    private readonly transport: Transport,
    private readonly names: { user_id: string },
  ) {}

  /** Return the constraints, with what is wrong with each. */
  list(query: Filters<"/v1/users/{user_id}/constraints"> = {}): Pages<models.Constraint> {
    return this.transport.pages("/v1/users/{user_id}/constraints", { names: this.names, query });
  }

  /** Return a constraint with its source and tests. */
  get(
    name: string,
    query: Query<"/v1/users/{user_id}/constraints/{name}", "get"> = {},
  ): Promise<models.ConstraintDetail> {
    const parts = { names: { ...this.names, name }, query };
    return this.transport.fetch("get", "/v1/users/{user_id}/constraints/{name}", parts);
  }

  /** Write a constraint, which goes live if the gate accepts it. Throws GateRefused. */
  put(
    name: string,
    {
      ifMatch,
      timeoutSeconds,
      signal,
      ...body
    }: Body<"/v1/users/{user_id}/constraints/{name}", "put"> & Matching & Waiting,
  ): Promise<models.Decision> {
    const parts = { names: { ...this.names, name }, body, ifMatch };
    const waiting = { timeoutSeconds, signal };
    return this.transport.finish("put", "/v1/users/{user_id}/constraints/{name}", parts, waiting);
  }

  /** Delete a constraint. */
  delete(name: string, { ifMatch, ...waiting }: Matching & Waiting = {}): Promise<models.Decision> {
    const parts = { names: { ...this.names, name }, ifMatch };
    const path = "/v1/users/{user_id}/constraints/{name}";
    return this.transport.finish("delete", path, parts, waiting);
  }

  /** Return what a constraint would alert, and open no alert. */
  run(
    name: string,
    {
      timeoutSeconds,
      signal,
      ...body
    }: Ask<"/v1/users/{user_id}/constraints/{name}/run"> & Waiting = {},
  ): Promise<models.TriedConstraint> {
    const parts = { names: { ...this.names, name }, body };
    const path = "/v1/users/{user_id}/constraints/{name}/run";
    return this.transport.finish("post", path, parts, { timeoutSeconds, signal });
  }
}

/** The versions of a user's project. */
class Checkpoints {
  constructor(
    private readonly transport: Transport,
    private readonly names: { user_id: string },
  ) {}

  /** Return the versions, newest first. */
  list(query: Filters<"/v1/users/{user_id}/checkpoints"> = {}): Pages<models.Checkpoint> {
    return this.transport.pages("/v1/users/{user_id}/checkpoints", { names: this.names, query });
  }

  /** Return a version with its files, edits and verdict. */
  get(version: number): Promise<models.CheckpointDetail> {
    const names = { ...this.names, version };
    return this.transport.fetch("get", "/v1/users/{user_id}/checkpoints/{version}", { names });
  }

  /** Return a file of a version, such as `domains/travel/state.py`. */
  file(version: number, path: string): Promise<models.File> {
    const names = { ...this.names, version, path };
    const template = "/v1/users/{user_id}/checkpoints/{version}/files/{path}";
    return this.transport.fetch("get", template, { names });
  }

  /** Propose a change, by edits or by whole files. Throws GateRefused. */
  propose({
    timeoutSeconds,
    signal,
    ...body
  }: Ask<"/v1/users/{user_id}/checkpoints"> & Waiting): Promise<models.Decision> {
    const parts = { names: this.names, body };
    const waiting = { timeoutSeconds, signal };
    return this.transport.finish("post", "/v1/users/{user_id}/checkpoints", parts, waiting);
  }

  /** Return what a return to a version would leave out. */
  previewRestore(version: number): Promise<models.Excluded> {
    const names = { ...this.names, version };
    const path = "/v1/users/{user_id}/checkpoints/{version}/restore";
    return this.transport.fetch("get", path, { names });
  }

  /** Return to a version, as a new one. */
  restore(
    version: number,
    body: Ask<"/v1/users/{user_id}/checkpoints/{version}/restore"> = {},
  ): Promise<models.CheckpointDetail> {
    const parts = { names: { ...this.names, version }, body };
    const path = "/v1/users/{user_id}/checkpoints/{version}/restore";
    return this.transport.fetch("post", path, parts);
  }
}
