/**
 * The memory of one user in one conversation, without a framework. `brief` and `rememberTurn` run
 * unasked with each turn: if they fail, they log it, and the agent goes on without its memory. The
 * tools answer a model in text, also about what went wrong.
 */
import { Client, fact, message, type NewTextEntry, problems, type User } from "@userascode/client";

/** Seconds for a request that an answer waits for. */
const TIMEOUT_SECONDS = 10;
/** Limits of the API: for a question, for an entry, and for the turns before a question. */
const [MAX_QUERY, MAX_ENTRY, MAX_TURNS, MAX_TURN] = [10_000, 1_000_000, 8, 4_000];
/** Maximum number of forecasts and of alerts in a text, and of characters in a tool's answer. */
const [MAX_FORECASTS, MAX_ALERTS, MAX_ANSWER] = [5, 20, 8_000];

const INSTRUCTIONS =
  "You have a memory of the user. If an open alert below matters and the user does not know of it" +
  " yet in this conversation, mention it, even if the user has not asked. To count, add up or" +
  " compare, call `compute` instead of estimating.";

/** What the user or the assistant said. Tool calls, their results and prompts are not said. */
export interface Message {
  role: "user" | "assistant";
  text: string;
}

export interface MemoryOptions {
  /** The conversation; without it, the conversation ends with the object. */
  sessionId?: string;
  agentId?: string;
  /** Maximum size of the brief. */
  tokens?: number;
  /** By default one of the server that `UAC_URL` and `UAC_KEY` name. */
  client?: Client;
  /** Where failures are logged; by default `console.warn`. */
  log?: (failure: string, error: unknown) => void;
}

/** What a server remembers of one user. Create one for each conversation. */
export class Memory {
  readonly sessionId: string;
  readonly user: User;
  private readonly client: Client;
  /** The last turn and its brief: an agent may call its model several times in a turn. */
  private briefed = { turn: "", text: "" };

  constructor(
    readonly userId: string,
    private readonly options: MemoryOptions = {},
  ) {
    this.sessionId = options.sessionId ?? crypto.randomUUID();
    this.client = options.client ?? new Client({ timeoutSeconds: TIMEOUT_SECONDS });
    this.user = this.client.user(userId);
  }

  /** Return what the model should know for its answer to the newest message of the user. */
  async brief(messages: readonly Message[]): Promise<string> {
    const asked = messages.slice(0, messages.findLastIndex((one) => one.role === "user") + 1);
    const question = asked.at(-1);
    if (!question) return "";
    const turn = (await keysOf(this.sessionId, asked)).at(-1) ?? "";
    if (this.briefed.turn !== turn) {
      let text = "";
      try {
        text = await this.compose(question.text, asked.slice(0, -1));
      } catch (error) {
        this.log(`A turn of user ${this.userId} has no memory`, error);
      }
      this.briefed = { turn, text };
    }
    return this.briefed.text;
  }

  /** Append the last turn to the log of the user, once, however often this is called. */
  async rememberTurn(messages: readonly Message[]): Promise<void> {
    let start = messages.length;
    while (messages[start - 1]?.role === "assistant") start--;
    while (messages[start - 1]?.role === "user") start--;
    const keys = await keysOf(this.sessionId, messages);
    const entries = messages.slice(start).map((one, number) =>
      this.entry(message(one.text.slice(0, MAX_ENTRY), { role: one.role }), keys[start + number]),
    );
    try {
      if (entries.length) await this.send(() => this.user.add(entries));
    } catch (error) {
      this.log(`A turn of user ${this.userId} is not remembered`, error);
    }
  }

  /** Remember a fact. */
  remember(text: string): Promise<string> {
    return answered(async () => {
      const key = `fact:${await digest([this.sessionId, text])}`;
      const added = await this.send(() => this.user.add(this.entry(fact(text), key)));
      return `Remembered as entry ${added.entries[0]?.seq}.`;
    });
  }

  /** Find what was said or recorded. */
  recall(query: string): Promise<string> {
    return answered(async () => {
      const found = await this.send(() => this.user.search(query.slice(0, MAX_QUERY), { top_k: 10 }));
      const lines = found.hits.map((hit) => {
        const old = hit.status && hit.status !== "current" ? ` (${hit.status})` : "";
        const author = hit.speaker ?? hit.role ?? hit.kind;
        return `[${hit.seq}] ${hit.occurred_at.slice(0, 10)} ${author}: ${hit.text}${old}`;
      });
      return lines.join("\n") || "Nothing was found.";
    });
  }

  /** Run Python on the records. */
  compute(code: string): Promise<string> {
    return answered(async () => {
      const answer = await this.send(() => this.user.query(code, { timeoutSeconds: 60 }));
      const { value, evidence, ties, set_aside, lapsed } = answer;
      return JSON.stringify({ value, evidence, ties, set_aside, lapsed });
    });
  }

  /** List the open alerts and those to come. */
  alerts(): Promise<string> {
    return answered(async () => {
      const alerts = await this.send(() => this.user.alerts.list({ state: "open" }).all());
      const lines = alerts
        .slice(0, MAX_ALERTS)
        .map((one) => `${one.severity}: ${one.message} [${one.entries.join(", ")}]`);
      if (alerts.length > MAX_ALERTS) lines.push(`… and ${alerts.length - MAX_ALERTS} more`);
      const open = lines.length ? lines : ["There is no open alert."];
      return [...open, ...(await this.forecasts())].join("\n");
    });
  }

  private async compose(question: string, before: readonly Message[]): Promise<string> {
    const messages = before
      .slice(-MAX_TURNS)
      .map(({ role, text }) => ({ role, content: text.slice(0, MAX_TURN) }));
    const query = question.slice(0, MAX_QUERY);
    const tokens = this.options.tokens ?? 1500;
    const context = await this.send(() => this.user.context({ query, messages, tokens }));
    const forecasts = (await this.forecasts()).join("\n");
    return [INSTRUCTIONS, context.text, forecasts].filter(Boolean).join("\n\n");
  }

  private async forecasts(): Promise<string[]> {
    const { events } = await this.user.forecast();
    const lines = events
      .filter((event) => event.kind === "opens")
      .slice(0, MAX_FORECASTS)
      .map((event) => {
        const name = event.constraint.replace(/^.*\//, "").replace(/\.py$/, "");
        const records = event.records.join(", ") || "no record";
        return `- ${event.day ?? event.at}: ${name} (${event.severity}) about ${records}`;
      });
    return lines.length ? ["Alerts to come if nothing changes but the date:", ...lines] : [];
  }

  private entry(entry: NewTextEntry, key: string | undefined): NewTextEntry {
    const agent = this.options.agentId === undefined ? {} : { agent_id: this.options.agentId };
    return { ...entry, ...agent, session_id: this.sessionId, idempotency_key: key };
  }

  /** Send a request; if the user is unknown, create it and send the request again. */
  private async send<Result>(request: () => Promise<Result>): Promise<Result> {
    try {
      return await request();
    } catch (error) {
      if (!(error instanceof problems.NotFound)) throw error;
    }
    try {
      await this.client.users.create({ user_id: this.userId });
    } catch (error) {
      if (!(error instanceof problems.Conflict)) throw error; // somebody else was faster
    }
    return request();
  }

  private log(failure: string, error: unknown): void {
    if (this.options.log) this.options.log(failure, error);
    else console.warn(`${failure}: ${error}`);
  }
}

/** Return a key for each message, by all that was said before it in the conversation. */
async function keysOf(sessionId: string, messages: readonly Message[]): Promise<string[]> {
  const keys: string[] = [];
  let key = sessionId;
  for (const { role, text } of messages) {
    key = await digest([key, role, text]);
    keys.push(key);
  }
  return keys;
}

async function digest(parts: string[]): Promise<string> {
  const bytes = new TextEncoder().encode(JSON.stringify(parts));
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return a tool's answer in a size for a model, or what it should change if it failed. */
async function answered(tool: () => Promise<string>): Promise<string> {
  let answer: string;
  try {
    answer = await tool();
  } catch (error) {
    answer = `Error: ${error instanceof Error ? error.message : error}`;
  }
  return answer.length > MAX_ANSWER ? `${answer.slice(0, MAX_ANSWER)}… (cut: ask for less)` : answer;
}
