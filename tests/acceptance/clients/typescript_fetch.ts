// The README's quickstart with openapi-generator's `typescript-fetch`.
import { Configuration, UsersApi } from "./typescript_fetch_client";
import { amoxicillin, code, entries, key, present, texts, url, user as userId } from "./texts";

async function main(): Promise<void> {
  const users = new UsersApi(new Configuration({ basePath: url, accessToken: key }));
  const made = await users.usersCreate({ newUserRequest: { userId } });
  const logged = await users.usersEntriesCreate({
    userId,
    wait: 30,
    oneOrManyEntriesRequest: { entries },
  });
  const answer = await users.usersQueryCreate({ userId, queryRequest: { code } });
  const found = await users.usersSearchCreate({
    userId,
    searchRequest: { query: "the trip to Oslo" },
  });
  const decision = await users.usersConstraintsUpdate({
    userId,
    name: "drug_allergy",
    wait: 30,
    newConstraintRequest: texts,
  });
  await users.usersEntriesCreate({ userId, oneOrManyEntriesRequest: amoxicillin });
  const feed = await users.usersAlertsList({ userId, after: "0", wait: 30 });
  const alert = present(feed.results[0], feed);
  const entry = await users.usersEntriesRetrieve({ userId, seq: 5 });
  const trips = await users.usersStateRecords({
    userId,
    domain: "travel",
    collection: "trips",
  });
  console.log(
    JSON.stringify({
      user_id: made.userId,
      states: logged.entries.map((one) => one.state),
      value: "value" in answer ? answer.value : null,
      found: found.hits[0]?.seq,
      accepted: "accepted" in decision && decision.accepted,
      message: alert.message,
      entries: alert.entries,
      evidence: alert.evidence.map((one) => one.key).sort(),
      seq: entry.seq,
      records: trips.records.map((one) => one.fields["to"]),
    }),
  );
}

void main();
