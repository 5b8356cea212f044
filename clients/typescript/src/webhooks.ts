/** Webhooks: whether a message comes from the server, and what it says. */
import { InvalidSignature } from "./errors.js";

/** How old a message may be, or how far the clocks may differ. */
const TOLERANCE_SECONDS = 300;

/**
 * Return a message that the server signed with the endpoint's secret (standardwebhooks.com).
 *
 * `headers` are those of the request. Throws InvalidSignature. Every attempt to deliver a message
 * has the same `webhook-id` header: ignore those that you have processed.
 */
export async function verifyWebhook<T = unknown>(
  secret: string,
  body: string | Uint8Array,
  headers: Headers | Record<string, string | string[] | undefined>,
): Promise<T> {
  const [id, timestamp, signatures] = ["id", "timestamp", "signature"].map((name) =>
    header(headers, `webhook-${name}`),
  ) as [string, string, string];
  if (!/^\d+$/.test(timestamp)) throw new InvalidSignature("webhook-timestamp is no number");
  const age = Math.abs(Date.now() / 1000 - Number(timestamp));
  if (age > TOLERANCE_SECONDS) throw new InvalidSignature("the message is too old");
  const text = typeof body === "string" ? body : new TextDecoder().decode(body);
  const signed = new TextEncoder().encode(`${id}.${timestamp}.${text}`);
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const raw = bytes(secret.replace(/^whsec_/, ""));
  const key = await crypto.subtle.importKey("raw", raw, algorithm, false, ["verify"]);
  // While a secret is being replaced, there is a signature by each.
  for (const signature of signatures.split(" ")) {
    const [version, code] = signature.split(",");
    if (version === "v1" && code && (await crypto.subtle.verify("HMAC", key, bytes(code), signed)))
      return JSON.parse(text) as T;
  }
  throw new InvalidSignature("no signature matches");
}

function header(
  headers: Headers | Record<string, string | string[] | undefined>,
  name: string,
): string {
  const entries = headers instanceof Headers ? headers.entries() : Object.entries(headers);
  for (const [key, value] of entries) {
    if (key.toLowerCase() === name && typeof value === "string") return value;
  }
  throw new InvalidSignature(`the header ${name} is missing`);
}

/** Decode base64; throws InvalidSignature. */
function bytes(base64: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    throw new InvalidSignature("not base64");
  }
}
