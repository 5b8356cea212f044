/** The client against servers that misbehave. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Client,
  ConfigurationError,
  ConnectionFailed,
  etagOf,
  InvalidSignature,
  type models,
  Problem,
  problems,
  record,
  StillRunning,
  UnexpectedAnswer,
  verifyWebhook,
} from "../src/index.js";

const URL_ = "https://uac.example.com";
const RUN = "/v1/runs/r-1/";

/** Return a client of a server that gives these answers in turn, and the requests it receives. */
function clientOf(answers: (Response | Error)[], options: object = {}): [Client, Request[]] {
  const requests: Request[] = [];
  const fetch = async (input: unknown, init: RequestInit = {}): Promise<Response> => {
    requests.push(new Request(String(input), { ...init, signal: null }));
    const following = answers.shift();
    if (following === undefined) throw new Error("there is no further answer");
    if (following instanceof Error) throw following;
    return following;
  };
  return [new Client({ url: URL_, key: "key", fetch: fetch as typeof globalThis.fetch, ...options }), requests];
}

function json(body: unknown, status = 200, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(body), { status, headers });
}

function problem(status: number, name: string, members = {}, headers = {}): Response {
  const body = { type: `urn:uac:problem:${name}`, title: "", status, detail: name, ...members };
  const type = "application/problem+json";
  return json(body, status, { "Content-Type": type, "Retry-After": "0", ...headers });
}

test("a problem names the fields and has a class of its own", async () => {
  const errors = { entries: [{}, { kind: ["Choose one."] }], wait: ["Not a number."] };
  const [client, requests] = clientOf([problem(400, "invalid-fields", { errors, request_id: "r" })]);

  await assert.rejects(client.user("ada").add("hello"), (error) => {
    assert(error instanceof problems.InvalidFields);
    assert.deepEqual([...error.fields.keys()], ["entries.1.kind", "wait"]);
    assert.equal(error.requestId, "r");
    assert.match(error.message, /entries\.1\.kind: Choose one\./);
    return true;
  });
  assert.equal(requests.length, 1);
});

test("a problem type of a newer server is a problem", async () => {
  const [client] = clientOf([problem(418, "teapot")]);

  await assert.rejects(client.user("ada").details(), (error) => error instanceof Problem);
});

for (const [name, first] of Object.entries({
  busy: problem(429, "too-many-requests"),
  unavailable: problem(503, "unavailable"),
  "in progress": problem(409, "in-progress"),
  proxy: new Response("Bad Gateway", { status: 502 }),
  refused: new TypeError("fetch failed"),
})) {
  test(`a write is repeated with its key: ${name}`, async () => {
    const [client, requests] = clientOf([first, json({ entries: [] }, 202)]);

    await client.user("ada").add(record("travel", "Trip", { to: "Rome" }));

    const keys = requests.map((request) => request.headers.get("Idempotency-Key"));
    assert.equal(keys.length, 2);
    assert.ok(keys[0]);
    assert.equal(keys[0], keys[1]);
  });
}

test("what is final is not repeated", async () => {
  const answers: [Response, typeof Error | typeof Problem][] = [
    [problem(409, "conflict"), problems.Conflict as typeof Problem],
    [problem(500, "server-error"), problems.ServerError as typeof Problem],
    [new Response("<html>", { status: 404 }), UnexpectedAnswer as unknown as typeof Error],
    [new Response("<html>"), UnexpectedAnswer as unknown as typeof Error],
  ];
  for (const [answer, expected] of answers) {
    const [client, requests] = clientOf([answer]);
    await assert.rejects(client.user("ada").details(), expected);
    assert.equal(requests.length, 1);
  }
});

test("it waits as long as it is told, and no longer than its timeout", async () => {
  const busy = problem(429, "too-many-requests", { limit: "requests" }, { "Retry-After": "60" });
  const [client] = clientOf([busy], { timeoutSeconds: 5 });

  await assert.rejects(client.user("ada").details(), (error) => {
    assert(error instanceof problems.TooManyRequests);
    assert.deepEqual([error.retryAfterSeconds, error.limit], [60, "requests"]);
    return true;
  });
});

test("a server that is not there is named", async () => {
  const [client] = clientOf([new TypeError("fetch failed")], { timeoutSeconds: 0.05 });

  await assert.rejects(client.user("ada").details(), ConnectionFailed);
});

function accepted(location: string): Response {
  return json({ finished_at: null }, 202, { Location: location, "Retry-After": "0" });
}

test("a run that takes long is one call", async () => {
  const [client, requests] = clientOf([
    accepted(RUN),
    json({ finished_at: null }, 200, { "Retry-After": "0" }),
    json({ finished_at: "2026-01-01T00:00:00Z" }),
    json({ version: 2 }),
  ]);

  const decision = await client.user("ada").constraints.put("late", { source: "s", tests: "t" });

  assert.equal(decision.version, 2);
  assert.deepEqual(
    requests.map((request) => new URL(request.url).pathname).slice(1, 3),
    [RUN, RUN],
  );
  const [first, last] = [requests[0], requests[3]];
  assert.equal(first?.headers.get("Idempotency-Key"), last?.headers.get("Idempotency-Key"));
  assert.equal(await first?.text(), await last?.text());
});

test("a run that takes too long goes on", async () => {
  const [client] = clientOf([json({ finished_at: null }, 202, { Location: RUN })]);

  await assert.rejects(client.user("ada").query("1", { timeoutSeconds: 0 }), (error) => {
    assert(error instanceof StillRunning);
    assert.equal(error.location, RUN);
    return true;
  });
});

test("the key is sent to no other server", async () => {
  const [client, requests] = clientOf([accepted("https://evil.example/v1/runs/r-1/")]);

  await assert.rejects(client.user("ada").query("1"), UnexpectedAnswer);
  assert.equal(requests.length, 1);
});

test("a redirect is not followed", async () => {
  const headers = { Location: "https://evil.example/" };
  const [client, requests] = clientOf([new Response(null, { status: 302, headers })]);

  await assert.rejects(client.user("ada").details(), UnexpectedAnswer);
  assert.equal(requests[0]?.redirect, "manual");
});

test("lists are read to their end, as often as they are iterated over", async () => {
  const page = (next: string | null) => json({ results: [{ user_id: "ada" }], next });
  const next = `${URL_}/v1/users/?cursor=abc&page_size=1`;
  const [client, requests] = clientOf([page(next), page(null), page(null)]);
  const users = client.users.list({ page_size: 1 });

  assert.equal((await users.all()).length, 2);
  assert.equal((await users.all()).length, 1);
  assert.deepEqual(
    requests.map((request) => new URL(request.url).search),
    ["?page_size=1", "?page_size=1&cursor=abc", "?page_size=1"],
  );
});

test("alerts are streamed from where the last answer ended, until the signal", async () => {
  const stop = new AbortController();
  const feed = (next: number, results: object[]) => json({ results, next, waited: true });
  const [client, requests] = clientOf([feed(7, []), feed(9, [{ id: "a" }])]);
  const alerts = client.user("ada").alerts.stream({ severity: "critical", signal: stop.signal });

  const first = await alerts.next();
  stop.abort();

  assert.equal((first.value as models.AlertNews).id, "a");
  await assert.rejects(alerts.next(), { name: "AbortError" });
  const asked = requests.map((request) => new URL(request.url).searchParams);
  assert.deepEqual(asked.map((one) => one.get("after")), ["now", "7"]);
  assert.deepEqual(asked.map((one) => one.get("severity")), ["critical", "critical"]);
});

test("names of any script are one part of the path", async () => {
  const [client, requests] = clientOf([json({}), json({})]);

  await client.user("https://idp/ä?b").details();
  await client.user("ada").checkpoints.file(1, "domains/a b/state.py");

  assert.deepEqual(
    requests.map((request) => new URL(request.url).pathname),
    [
      "/v1/users/https%3A%2F%2Fidp%2F%C3%A4%3Fb/",
      "/v1/users/ada/checkpoints/1/files/domains/a%20b/state.py",
    ],
  );
});

test("an ETag is kept for the change that it guards", async () => {
  const [client, requests] = clientOf([json({}, 200, { ETag: '"1"' }), json({})]);
  const ada = client.user("ada");

  const ifMatch = etagOf(await ada.details());
  await ada.change({ time_zone: "Europe/Paris", ifMatch });

  assert.equal(requests[1]?.headers.get("If-Match"), '"1"');
  assert.deepEqual(await requests[1]?.json(), { time_zone: "Europe/Paris" });
});

test("an address or key that is missing is named", () => {
  delete process.env.UAC_KEY;
  assert.throws(() => new Client({ url: URL_ }), { name: "ConfigurationError", message: /UAC_KEY/ });
  assert.throws(() => new Client({ url: "ftp://x", key: "k" }), ConfigurationError);
});

test("webhooks are verified", async () => {
  const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZg==";
  const body = '{"type": "alert.opened"}';
  const sign = async (timestamp: number, text: string): Promise<Record<string, string>> => {
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    const raw = Buffer.from(secret.slice("whsec_".length), "base64");
    const key = await crypto.subtle.importKey("raw", raw, algorithm, false, ["sign"]);
    const signed = new TextEncoder().encode(`m-1.${timestamp}.${text}`);
    const code = Buffer.from(await crypto.subtle.sign("HMAC", key, signed)).toString("base64");
    const other = Buffer.alloc(32).toString("base64");
    const signatures = `v1,${other} v1,${code}`;
    return {
      "Webhook-Id": "m-1",
      "Webhook-Timestamp": String(timestamp),
      "Webhook-Signature": signatures,
    };
  };
  const now = Math.floor(Date.now() / 1000);
  const headers = await sign(now, body);

  assert.deepEqual(await verifyWebhook(secret, body, new Headers(headers)), { type: "alert.opened" });
  assert.deepEqual(await verifyWebhook(secret, Buffer.from(body), headers), { type: "alert.opened" });
  await assert.rejects(verifyWebhook(secret, `${body} `, headers), InvalidSignature);
  await assert.rejects(verifyWebhook(secret, body, await sign(now - 3600, body)), InvalidSignature);
  await assert.rejects(verifyWebhook(secret, body, {}), InvalidSignature);
});

/** Never called: wrong names and values of the API do not compile. */
export async function wrong(client: Client): Promise<void> {
  const ada = client.user("ada");
  // @ts-expect-error: `top_k` is a number
  await ada.search("flight", { top_k: "many" });
  // @ts-expect-error: it is called `time_zone`
  await ada.change({ timeZone: "Europe/Paris" });
  // @ts-expect-error: a reason is required
  await client.alerts.resolve("a", {});
  // @ts-expect-error: answers have the fields of the document
  (await ada.details()).mood;
  for await (const trip of ada.records<{ cost: number }>("travel.trips")) {
    // @ts-expect-error: records have the fields of the given class
    trip.fields.price;
  }
}
