/**
 * Calls methods of the client that tests in Python name, one by line of JSON: on a server, or on
 * recorded answers.
 */
import { createInterface } from "node:readline";
import { Client, Pages, Problem, StillRunning } from "../src/index.js";

interface Call {
  /** Of the client, or after `user.` of one user. */
  method: string;
  userId: string;
  arguments: unknown[];
  /** Instead of a server. */
  recorded: { status: number; answer?: unknown; headers: Record<string, string> } | null;
}

interface Request {
  method: string;
  path: string;
  query: Record<string, string>;
  headers: Record<string, string>;
  body: unknown;
}

/** Return a body as JSON; of a form, the text of the file. */
async function bodyOf(body: RequestInit["body"]): Promise<unknown> {
  if (body instanceof FormData) return (body.get("file") as File).text();
  return body ? JSON.parse(String(body)) : null;
}

async function call({ method, userId, arguments: values, recorded }: Call): Promise<object> {
  const requests: Request[] = [];
  const fetch = async (input: unknown, init: RequestInit = {}): Promise<Response> => {
    if (recorded === null) return globalThis.fetch(String(input), init);
    const url = new URL(String(input));
    requests.push({
      method: String(init.method),
      path: decodeURIComponent(url.pathname),
      query: Object.fromEntries(url.searchParams),
      headers: Object.fromEntries(new Headers(init.headers)),
      body: await bodyOf(init.body),
    });
    const text = recorded.answer === undefined ? "PK" : JSON.stringify(recorded.answer);
    const { status, headers } = recorded;
    return new Response(status === 204 ? null : text, { status, headers });
  };
  let target: any = new Client({ fetch });
  const parts = method.split(".");
  const last = String(parts.pop());
  for (const part of parts) target = part === "user" ? target.user(userId) : target[part];
  try {
    if (method === "user.documents.add") values[0] = new File([String(values[0])], "lease.txt");
    const answer = await target[last](...values);
    const items = answer instanceof Pages ? await answer.all() : answer;
    return { requests, answer: items instanceof Uint8Array ? items.length : (items ?? null) };
  } catch (error) {
    if (error instanceof Problem) return { requests, problem: error.answer };
    if (error instanceof StillRunning) return { requests, answer: error.progress };
    return { requests, failure: String((error as Error).stack) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await call(JSON.parse(line) as Call)));
}
