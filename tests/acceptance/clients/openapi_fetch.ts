// The README's quickstart with `openapi-typescript` and `openapi-fetch`.
import createClient from "openapi-fetch";
import type { paths } from "./openapi_fetch_client/schema";
import { amoxicillin, code, entries, key, present, texts, url, user } from "./texts";

async function main(): Promise<void> {
  const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
  const path = { user_id: user };
  const made = await client.POST("/v1/users", { body: { user_id: user } });
  const logged = await client.POST("/v1/users/{user_id}/entries", {
    params: { path, query: { wait: 30 } },
    body: { entries },
  });
  const answer = await client.POST("/v1/users/{user_id}/query", { params: { path }, body: { code } });
  const answered = present(answer.data, answer.error);
  if (!("value" in answered)) throw new Error("the query did not finish");
  const found = await client.POST("/v1/users/{user_id}/search", {
    params: { path },
    body: { query: "the trip to Oslo" },
  });
  const decision = await client.PUT("/v1/users/{user_id}/constraints/{name}", {
    params: { path: { ...path, name: "drug_allergy" }, query: { wait: 30 } },
    body: texts,
  });
  const decided = present(decision.data, decision.error);
  if (!("accepted" in decided)) throw new Error("the gate did not finish");
  await client.POST("/v1/users/{user_id}/entries", { params: { path }, body: amoxicillin });
  const alerts = await client.GET("/v1/users/{user_id}/events", {
    params: { path, query: { after: "0", wait: 30 } },
  });
  const feed = present(alerts.data, alerts.error);
  const alert = present(feed.results[0], feed);
  const entry = await client.GET("/v1/users/{user_id}/entries/{seq}", {
    params: { path: { ...path, seq: 5 } },
  });
  const trips = await client.GET("/v1/users/{user_id}/state/{domain}/{collection}", {
    params: { path: { ...path, domain: "travel", collection: "trips" } },
  });
  console.log(
    JSON.stringify({
      user_id: present(made.data, made.error).user_id,
      states: present(logged.data, logged.error).entries.map((one) => one.state),
      value: answered.value,
      found: present(found.data, found.error).hits[0]?.seq,
      accepted: decided.accepted,
      message: alert.message,
      entries: alert.entries,
      evidence: alert.evidence.map((one) => one.key).sort(),
      seq: present(entry.data, entry.error).seq,
      records: present(trips.data, trips.error).records.map((one) => one.fields["to"]),
    }),
  );
}

void main();
