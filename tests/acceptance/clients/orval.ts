// The README's quickstart with `orval`; its functions take a path's parameters by position.
import * as api from "./orval_client/client";
import { amoxicillin, code, entries, key, present, texts, url, user } from "./texts";

const options = { headers: { Authorization: `Bearer ${key}` } };

// Its functions request paths of this origin.
const fetchPath = globalThis.fetch;
globalThis.fetch = (path, given) => fetchPath(`${url}${String(path)}`, given);

async function main(): Promise<void> {
  const made = await api.usersCreate({ user_id: user }, options);
  if (made.status !== 201) throw new Error(JSON.stringify(made.data));
  const logged = await api.usersEntriesCreate(user, { entries }, { wait: 30 }, options);
  if (logged.status !== 202) throw new Error(JSON.stringify(logged.data));
  const answer = await api.usersQueryCreate(user, { code }, {}, options);
  if (answer.status !== 200) throw new Error(JSON.stringify(answer.data));
  const found = await api.usersSearchCreate(user, { query: "the trip to Oslo" }, {}, options);
  if (found.status !== 200) throw new Error(JSON.stringify(found.data));
  const decision = await api.usersConstraintsUpdate(
    user,
    "drug_allergy",
    texts,
    { wait: 30 },
    options,
  );
  if (decision.status !== 200) throw new Error(JSON.stringify(decision.data));
  await api.usersEntriesCreate(user, amoxicillin, {}, options);
  const feed = await api.usersAlertsList(user, { after: "0", wait: 30 }, options);
  if (feed.status !== 200) throw new Error(JSON.stringify(feed.data));
  const alert = present(feed.data.results[0], feed.data);
  const entry = await api.usersEntriesRetrieve(user, 5, options);
  if (entry.status !== 200) throw new Error(JSON.stringify(entry.data));
  const trips = await api.usersStateRecords(user, "travel", "trips", {}, options);
  if (trips.status !== 200) throw new Error(JSON.stringify(trips.data));
  console.log(
    JSON.stringify({
      user_id: made.data.user_id,
      states: logged.data.entries.map((one) => one.state),
      value: answer.data.value,
      found: found.data.hits[0]?.seq,
      accepted: decision.data.accepted,
      message: alert.message,
      entries: alert.entries,
      evidence: alert.evidence.map((one) => one.key).sort(),
      seq: entry.data.seq,
      records: trips.data.records.map((one) => one.fields["to"]),
    }),
  );
}

void main();
