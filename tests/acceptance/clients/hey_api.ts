// The README's quickstart with `@hey-api/openapi-ts`.
import * as api from "./hey_api_client";
import { client } from "./hey_api_client/client.gen";
import { amoxicillin, code, entries, key, present, texts, url, user } from "./texts";

async function main(): Promise<void> {
  client.setConfig({ baseUrl: url, auth: key, throwOnError: true });
  const path = { user_id: user };
  const made = await api.usersCreate({ body: { user_id: user } });
  const logged = await api.usersEntriesCreate({ path, query: { wait: 30 }, body: { entries } });
  const answer = await api.usersQueryCreate({ path, body: { code } });
  const answered = present(answer.data, answer.error);
  if (!("value" in answered)) throw new Error("the query did not finish");
  const found = await api.usersSearchCreate({ path, body: { query: "the trip to Oslo" } });
  const decision = await api.usersConstraintsUpdate({
    path: { ...path, name: "drug_allergy" },
    query: { wait: 30 },
    body: texts,
  });
  const decided = present(decision.data, decision.error);
  if (!("accepted" in decided)) throw new Error("the gate did not finish");
  await api.usersEntriesCreate({ path, body: amoxicillin });
  const alerts = await api.usersEventsList({ path, query: { after: "0", wait: 30 } });
  const feed = present(alerts.data, alerts.error);
  const alert = present(feed.results[0], feed);
  const entry = await api.usersEntriesRetrieve({ path: { ...path, seq: 5 } });
  const trips = await api.usersStateRecords({
    path: { ...path, domain: "travel", collection: "trips" },
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
