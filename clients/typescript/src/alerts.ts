/** Alerts: of a user, or of a whole workspace. */
import type { AlertDetail, AlertFeed, AlertNews, AlertThen } from "./api.js";
import type { Pages, Transport } from "./transport.js";
import { MAX_WAIT_SECONDS, sleep } from "./transport.js";
import type { Body, Filters, Query } from "./types.js";

/** When too many others wait at the server for this feed to wait as well. */
const FEED_PAUSE_SECONDS = 1;

type Verb = "acknowledge" | "snooze" | "resolve" | "reopen" | "feedback";
type Change<V extends Verb> = Body<`/v1/alerts/{alert_id}/${V}`, "post">;

export class Alerts {
  constructor(
    private readonly transport: Transport,
    private readonly userId?: string,
  ) {}

  /** Return the alerts, newest first; with `as_of`, those that were unresolved then. */
  list(filters: Filters<"/v1/alerts"> = {}): Pages<AlertThen> {
    if (this.userId === undefined) return this.transport.pages("/v1/alerts", { query: filters });
    const names = { user_id: this.userId };
    return this.transport.pages("/v1/users/{user_id}/alerts", { names, query: filters });
  }

  /**
   * Yield alerts as they open, change and end, and wait for the next, until `signal` is aborted.
   * `after` is the number of an event (0: all that ever happened), by default `now`; to go on
   * later, keep that of `alert.events.at(-1).seq`.
   */
  async *stream(
    options: Query<"/v1/events", "get"> & { signal?: AbortSignal } = {},
  ): AsyncGenerator<AlertNews, void, undefined> {
    let after: number | string = options.after ?? "now";
    for (;;) {
      const feed: AlertFeed = await this.feed({
        ...options,
        after: String(after),
        wait: MAX_WAIT_SECONDS,
      });
      yield* feed.results;
      after = feed.next;
      if (!feed.waited) await sleep(FEED_PAUSE_SECONDS, options.signal);
    }
  }

  /** Return a page of events; without filters also of entries that were rejected. */
  feed({
    signal,
    ...query
  }: Query<"/v1/events", "get"> & { signal?: AbortSignal } = {}): Promise<AlertFeed> {
    if (this.userId === undefined) {
      return this.transport.fetch("get", "/v1/events", { query, signal });
    }
    const names = { user_id: this.userId };
    return this.transport.fetch("get", "/v1/users/{user_id}/events", { names, query, signal });
  }

  /** Return an alert with its history. */
  get(alertId: string): Promise<AlertDetail> {
    return this.transport.fetch("get", "/v1/alerts/{alert_id}", { names: { alert_id: alertId } });
  }

  /** Mark an alert as seen. */
  acknowledge(alertId: string, options: Change<"acknowledge"> = {}): Promise<AlertDetail> {
    return this.change(alertId, "acknowledge", options);
  }

  /** Silence an alert until a moment, or until it changes. */
  snooze(alertId: string, options: Change<"snooze"> = {}): Promise<AlertDetail> {
    return this.change(alertId, "snooze", options);
  }

  /** Close an alert although its cause is still there. */
  resolve(alertId: string, options: Change<"resolve">): Promise<AlertDetail> {
    return this.change(alertId, "resolve", options);
  }

  /** Open an alert again. */
  reopen(alertId: string, options: Change<"reopen"> = {}): Promise<AlertDetail> {
    return this.change(alertId, "reopen", options);
  }

  /** Say whether an alert was useful. */
  giveFeedback(alertId: string, options: Change<"feedback">): Promise<AlertDetail> {
    return this.change(alertId, "feedback", options);
  }

  private change<V extends Verb>(alertId: string, verb: V, body: Change<V>): Promise<AlertDetail> {
    const names = { alert_id: alertId };
    return this.transport.fetch<`/v1/alerts/{alert_id}/${Verb}`, "post">(
      "post",
      `/v1/alerts/{alert_id}/${verb}`,
      { names, body: body as never },
    );
  }
}
