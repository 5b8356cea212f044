"""The README's quickstart with the client that `openapi-python-client` generates."""

import json
import os

from ua_c_server_client import AuthenticatedClient
from ua_c_server_client.api.users import (
    users_constraints_update,
    users_create,
    users_entries_create,
    users_entries_retrieve,
    users_events_list,
    users_query_create,
    users_search_create,
    users_state_records,
)
from ua_c_server_client.models import (
    AlertFeed,
    Answer,
    Appended,
    Decision,
    Entry,
    Found,
    NewConstraintRequest,
    NewEntriesRequest,
    NewRecordEntryRequest,
    NewRecordEntryRequestData,
    NewUserRequest,
    QueryRequest,
    RecordEntryKindEnum,
    RecordPage,
    SearchRequest,
    User,
    UserDetail,
)

TEXTS = json.loads(os.environ["UAC_TEXTS"])
USER = os.environ["UAC_USER"]
client = AuthenticatedClient(
    base_url=os.environ["UAC_URL"], token=os.environ["UAC_KEY"], timeout=None
)


def record(domain: str, type_: str, data: dict[str, object]) -> NewRecordEntryRequest:
    return NewRecordEntryRequest(
        kind=RecordEntryKindEnum.RECORD,
        domain=domain,
        type_=type_,
        data=NewRecordEntryRequestData.from_dict(data),
    )


entries = [
    record("travel", "Trip", {"to": "Rome", "on": "2026-05-02", "cost": 840}),
    record("travel", "Trip", {"to": "Oslo", "on": "2026-09-11", "cost": 1260}),
    record("health", "Allergy", {"allergen": "penicillin", "drug_class": "penicillin"}),
    record("health", "Medication", {"name": "Ibuprofen", "drug_class": "nsaid"}),
]
user = users_create.sync(client=client, body=NewUserRequest(user_id=USER))
assert isinstance(user, User | UserDetail), user
logged = users_entries_create.sync(
    USER, client=client, body=NewEntriesRequest(entries=entries), wait=30
)
assert isinstance(logged, Appended), logged
code = "sum(trip.cost for trip in trips if trip.on.year == 2026)"
answer = users_query_create.sync(USER, client=client, body=QueryRequest(code=code))
assert isinstance(answer, Answer), answer
found = users_search_create.sync(USER, client=client, body=SearchRequest(query="the trip to Oslo"))
assert isinstance(found, Found), found
decision = users_constraints_update.sync(
    USER,
    "drug_allergy",
    client=client,
    body=NewConstraintRequest(source=TEXTS["source"], tests=TEXTS["tests"]),
    wait=30,
)
assert isinstance(decision, Decision), decision
amoxicillin = record("health", "Medication", {"name": "Amoxicillin", "drug_class": "penicillin"})
assert isinstance(users_entries_create.sync(USER, client=client, body=amoxicillin), Appended)
feed = users_events_list.sync(USER, client=client, after="0", wait=30)
assert isinstance(feed, AlertFeed), feed
[alert] = feed.results
entry = users_entries_retrieve.sync(USER, 5, client=client)
assert isinstance(entry, Entry), entry
trips = users_state_records.sync(USER, "travel", "trips", client=client)
assert isinstance(trips, RecordPage), trips
told = {
    "user_id": user.user_id,
    "states": [entry.state for entry in logged.entries],
    "value": answer.value,
    "found": found.hits[0].seq,
    "accepted": decision.accepted,
    "message": alert.message,
    "entries": alert.entries,
    "evidence": sorted(one.key for one in alert.evidence),
    "seq": entry.seq,
    "records": [one.fields["to"] for one in trips.records],
}
print(json.dumps(told))
