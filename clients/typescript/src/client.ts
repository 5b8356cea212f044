/** The client of a server. */
import { Alerts } from "./alerts.js";
import { ConfigurationError } from "./errors.js";
import { Transport } from "./transport.js";
import { User } from "./user.js";
import {
  Backtests,
  Erasures,
  Runs,
  Schema,
  Users,
  Webhooks,
  WorkspaceConstraints,
} from "./workspace.js";

export interface ClientOptions {
  /** Address of the server; by default the variable `UAC_URL`, where there are variables. */
  url?: string;
  /** Key of one of its workspaces; by default `UAC_KEY`. Never give it to a browser. */
  key?: string;
  /** For one answer; a request is repeated within it if the server is busy or not reached. */
  timeoutSeconds?: number;
  /** For an operation that takes long. */
  patienceSeconds?: number;
  /** Instead of the global one. */
  fetch?: typeof globalThis.fetch;
}

/** A server, with a key of one of its workspaces. */
export class Client {
  readonly alerts: Alerts;
  readonly backtests: Backtests;
  readonly constraints: WorkspaceConstraints;
  readonly erasures: Erasures;
  readonly runs: Runs;
  readonly schema: Schema;
  readonly users: Users;
  readonly webhooks: Webhooks;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    const url = options.url ?? variable("UAC_URL");
    const key = options.key ?? variable("UAC_KEY");
    if (!url) throw new ConfigurationError("There is no address: pass url or set UAC_URL.");
    if (!key) throw new ConfigurationError("There is no key: pass key or set UAC_KEY.");
    if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
      throw new ConfigurationError(`"${url}" is no address: it begins with http:// or https://.`);
    }
    const transport = new Transport(
      new URL(`${url.replace(/\/+$/, "")}/`),
      key,
      options.timeoutSeconds ?? 30,
      options.patienceSeconds ?? 300,
      options.fetch ?? globalThis.fetch.bind(globalThis),
    );
    this.#transport = transport;
    this.alerts = new Alerts(transport);
    this.backtests = new Backtests(transport);
    this.constraints = new WorkspaceConstraints(transport);
    this.erasures = new Erasures(transport);
    this.runs = new Runs(transport);
    this.schema = new Schema(transport);
    this.users = new Users(transport);
    this.webhooks = new Webhooks(transport);
  }

  /** Return what the server remembers of a user. Asks nothing. */
  user(userId: string): User {
    return new User(this.#transport, userId);
  }
}

/** Return an environment variable; browsers have none. */
function variable(name: string): string | undefined {
  const runtime = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return runtime.process?.env?.[name];
}
