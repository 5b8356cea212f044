"""A stored project is read, and written, only where something changes."""

import pytest

from memory.project import (
    EditError,
    Location,
    Project,
    ProjectError,
    RecordEntry,
    RecordId,
    apply,
    compile_record,
    render,
)

from .support import (
    SILENT,
    TESTS,
    Store,
    add,
    add_field,
    changed_paths,
    define,
    edit,
    project_with,
    trip,
    trips_project,
    write,
)

MANIFEST = "manifest.py"
STATE = "domains/travel/state.py"
SCHEMA = "domains/travel/schema.py"
TRIPS = {"domain": "travel", "collection": "trips"}


@pytest.fixture(scope="module")
def life() -> Store:
    """Five thousand trips in ten files, stored."""
    return Store(trips_project(5_000))


def update(project: Project, key: str, source: int = 1, **fields: object) -> None:
    edit(project, "update", **TRIPS, key=key, fields=fields, sources=[source])


def retire(project: Project, key: str, source: int = 1) -> None:
    edit(project, "retire", **TRIPS, key=key, sources=[source])


def last_shard(store: Store) -> str:
    return max(path for path in store.files if path.startswith("domains/travel/trips_"))


def test_appending_one_record_parses_and_writes_the_last_shard_alone(life: Store) -> None:
    project = life.open()

    edit(project, **trip(5_001))
    change = project.change()

    assert changed_paths(change) == [last_shard(life), MANIFEST]
    assert change.files_parsed == 1
    assert change.files_rendered == 2
    # Read without being parsed, to see whether the text has changed at all.
    assert set(life.reads) == {last_shard(life), MANIFEST}
    # Everything that the shard contained before is still in it, byte for byte.
    before, after = life.files[last_shard(life)], change.files[last_shard(life)]
    assert after is not None
    assert after.startswith(before.removesuffix("]\n"))
    assert after.count("\n") == before.count("\n") + 1


def test_compiling_an_entry_of_a_known_type_needs_the_last_shard_alone(life: Store) -> None:
    project = life.open()
    data = {"to": "Oslo", "starts_on": "2025-01-01", "days": 3}

    for compiled in compile_record(project, RecordEntry(6_000, "travel", "Trip", data=data)):
        apply(project, compiled)
    change = project.change()

    assert change.files_parsed == 1
    assert changed_paths(change) == [last_shard(life), MANIFEST]
    assert change.added == [RecordId("travel", "trips", "trip-6000")]


def test_updating_a_record_in_the_middle_changes_its_shard_alone(life: Store) -> None:
    project = life.open()
    path = life.places["travel", "trips", "trip-2500"].path
    assert STATE < path < last_shard(life)

    update(project, "trip-2500", source=7_000, to="Elsewhere")
    change = project.change()

    assert changed_paths(change) == [path]
    assert change.files_parsed == change.files_rendered == 1
    old, new = life.files[path].splitlines(), (change.files[path] or "").splitlines()
    assert len(old) == len(new)
    assert [line for line in new if line not in old] == [
        '    Trip(key="trip-2500", to="Elsewhere", starts_on=datetime.date(2025, 3, 1), days=10, '
        "sources=(2500, 7000)),"
    ]


def test_retiring_a_record_in_the_middle_changes_its_shard_and_the_count(life: Store) -> None:
    project = life.open()
    path = life.places["travel", "trips", "trip-2500"].path

    retire(project, "trip-2500", source=7_000)
    change = project.change()

    assert changed_paths(change) == sorted([path, MANIFEST])
    assert change.files_parsed == 1
    assert change.files_rendered == 2
    kept = [line for line in life.files[path].splitlines() if '"trip-2500"' not in line]
    assert (change.files[path] or "").splitlines() == kept
    assert change.outline.domains["travel"].collections["trips"].count == 4_999


def trips_that_fill(shard_count: int) -> int:
    """Return how many trips fit in that many shards."""
    project = trips_project(0)
    number = 0
    while True:
        edit(project, **trip(number + 1))
        if len(project.outline.domains["travel"].collections["trips"].shards) > shard_count:
            return number
        number += 1


@pytest.mark.parametrize(("shards", "full"), [(1, STATE), (2, "domains/travel/trips_0002.py")])
def test_a_full_last_shard_is_followed_by_a_new_one(shards: int, full: str) -> None:
    # Given a collection whose last shard has no room for one more
    count = trips_that_fill(shards)
    store = Store(trips_project(count))
    assert store.places["travel", "trips", f"trip-{count}"].path == full

    # When one more comes
    project = store.open()
    edit(project, **trip(count + 1))
    change = project.change()

    # Then it goes to a new shard that state.py imports; the full one is not even read
    new = f"domains/travel/trips_{shards + 1:04}.py"
    assert changed_paths(change) == sorted([STATE, new, MANIFEST])
    assert change.files_parsed == 1
    assert set(store.reads) == {STATE, MANIFEST}
    assert change.records_in(new) == {
        "trips": [change.records[RecordId("travel", "trips", f"trip-{count + 1}")].record]
    }
    assert change.previous_records_in(new) == {}
    name = f"trips_{shards + 1:04}"
    state = change.files[STATE] or ""
    assert f"from domains.travel.{name} import trips as {name}\n" in state
    assert state.endswith(f"    *{name},\n]\n")
    # And what is stored then is the whole project
    store.keep(change)
    assert store.files == render(trips_project(count + 1))
    assert Project.from_files(store.files) == trips_project(count + 1)


def test_a_record_larger_than_a_shard_has_one_of_its_own() -> None:
    project = trips_project(1)

    edit(project, **trip(2, to="x" * 100_000))
    edit(project, **trip(3))

    assert [project.find(RecordId("travel", "trips", f"trip-{n}")) for n in (1, 2, 3)] == [
        Location(STATE),
        Location("domains/travel/trips_0002.py"),
        Location("domains/travel/trips_0003.py"),
    ]
    assert Project.from_files(render(project)) == project


def test_collections_and_singletons_share_the_room_of_state_py() -> None:
    text = "x" * 12_000
    project = project_with(
        define("a", "One", {"text": "str"}, collection="ones"),
        define("a", "Two", {"text": "str"}, collection="twos"),
        {**add("a", "One", "only", text=text), "collection": "only", "singleton": True},
        add("a", "One", "1", text=text),
        add("a", "Two", "1", text=text),
        add("a", "Two", "2", text=text),
    )

    shards = project.outline.domains["a"].collections["twos"].shards
    assert [(shard.path, shard.count) for shard in shards] == [
        ("domains/a/state.py", 0),
        ("domains/a/twos_0002.py", 2),
    ]
    assert Project.from_files(render(project)) == project


def test_records_go_on_in_insertion_order_and_are_never_rebalanced() -> None:
    store = Store(trips_project(700))
    paths = sorted(path for path in store.files if "trips_" in path)
    project = store.open()

    # Given a first shard that has room again
    for number in range(1, 50):
        retire(project, f"trip-{number}")
    store.keep(project.change())

    # When a record is added, then it goes to the end all the same
    project = store.open()
    edit(project, **trip(701))
    assert changed_paths(project.change()) == [paths[-1], MANIFEST]
    assert [record.key for _, record in project.records("travel", "trips")] == [
        f"trip-{number}" for number in range(50, 702)
    ]


def test_an_emptied_shard_stays() -> None:
    count = trips_that_fill(2)
    store = Store(trips_project(count))
    last = last_shard(store)
    project = store.open()

    for key, location in list(store.places.items()):
        if location.path == last:
            retire(project, key[2])
    store.keep(project.change())

    assert "trips: list[Trip] = []" in store.files[last]
    assert Project.from_files(store.files) == project


def test_adding_an_optional_field_leaves_every_record_as_it_is() -> None:
    store = Store(trips_project(1_000))
    project = store.open()

    edit(project, **add_field("travel", "Trip", "purpose", "str | None"))
    change = project.change()

    assert changed_paths(change) == [SCHEMA, MANIFEST]
    assert change.files_parsed == 0
    store.keep(change)
    assert Project.from_files(store.files) == project


@pytest.mark.parametrize("type_", ["float", "int | None"])
def test_widening_a_field_leaves_every_record_as_it_is(type_: str) -> None:
    store = Store(trips_project(1_000))
    project = store.open()

    edit(project, "widen_field", domain="travel", class_name="Trip", name="days", type=type_)
    change = project.change()

    assert changed_paths(change) == [SCHEMA, MANIFEST]
    store.keep(change)
    assert Project.from_files(store.files) == project


def test_a_new_domain_leaves_all_others_alone() -> None:
    store = Store(trips_project(10))
    project = store.open()

    edit(project, **define("health", "Visit", {"at": "str"}))
    edit(project, **add("health", "Visit", "v", at="x"))
    change = project.change()

    assert changed_paths(change) == [
        "domains/health/__init__.py",
        "domains/health/schema.py",
        "domains/health/state.py",
        MANIFEST,
    ]
    assert change.files_parsed == 0


def test_constraints_come_and_go_with_their_packages() -> None:
    store = Store(Project.empty())
    project = store.open()

    edit(project, **write("never"))
    written = project.change()

    assert written.files["constraints/never.py"] == SILENT
    assert written.files["tests/test_never.py"] == TESTS
    assert changed_paths(written) == [
        "constraints/__init__.py",
        "constraints/never.py",
        MANIFEST,
        "tests/__init__.py",
        "tests/test_never.py",
    ]
    store.keep(written)
    project = store.open()
    edit(project, **write("never"))
    assert project.change().files == {}
    edit(project, "delete_constraint", name="never")
    deleted = project.change()
    assert {path for path, text in deleted.files.items() if text is None} == {
        path for path in written.files if path != MANIFEST
    }
    store.keep(deleted)
    assert store.files == render(Project.empty())


def test_a_change_says_what_became_of_every_record() -> None:
    store = Store(trips_project(3))
    project = store.open()

    edit(project, **trip(4))
    edit(project, **trip(5))
    update(project, "trip-4", to="Oslo")
    update(project, "trip-1", days=99)
    update(project, "trip-2", days=2)  # the same value, but one source more
    for key in ("trip-3", "trip-5"):
        retire(project, key)
    change = project.change()

    def ids(*numbers: int) -> list[RecordId]:
        return [RecordId("travel", "trips", f"trip-{number}") for number in numbers]

    assert change.added == ids(4)
    assert change.updated == ids(1, 2)
    assert change.retired == ids(3)
    assert change.transient == ids(5)
    assert list(change.records) == ids(4, 1, 2)
    assert {placed.path for placed in change.records.values()} == {STATE}
    assert change.records[ids(4)[0]].record.fields["to"] == "Oslo"
    assert [record.key for record in change.records_in(STATE)["trips"]] == [
        "trip-1",
        "trip-2",
        "trip-4",
    ]
    assert [record.fields["days"] for record in change.previous_records_in(STATE)["trips"]] == [
        1,
        2,
        3,
    ]


def test_an_update_from_1_to_true_is_a_change() -> None:
    store = Store(
        project_with(define("a", "Thing", {"x": "int | bool"}), add("a", "Thing", "k", x=1))
    )
    project = store.open()

    edit(
        project, "update", domain="a", collection="things", key="k", fields={"x": True}, sources=[1]
    )
    change = project.change()

    assert change.updated == [RecordId("a", "things", "k")]
    assert "x=True" in (change.files["domains/a/state.py"] or "")


def test_a_retired_key_may_come_back_in_the_same_version_or_a_later_one() -> None:
    store = Store(trips_project(1))
    project = store.open()
    retire(project, "trip-1", source=2)
    edit(project, **trip(2))
    retire(project, "trip-2", source=2)
    store.keep(project.change())

    for opened in (project, store.open()):
        entry = RecordEntry(9, "travel", "Trip", "trip-1", data={"to": "x", "days": 1})
        for compiled in compile_record(opened, entry):
            apply(opened, compiled)
        edit(opened, **trip(2))
        with pytest.raises(EditError) as refused:
            edit(opened, **trip(2))
        assert refused.value.code == "key_exists"
        trips = [record for _, record in opened.records("travel", "trips")]
        assert [(one.key, one.sources) for one in trips] == [("trip-1", (9,)), ("trip-2", (2,))]


def test_keys_made_for_records_pass_over_retired_ones() -> None:
    store = Store(trips_project(1))
    project = store.open()
    retire(project, "trip-1", source=2)
    store.keep(project.change())
    project = store.open()

    edit(project, **{**trip(1), "key": None})

    assert project.change().added == [RecordId("travel", "trips", "trip-1-2")]


def test_an_index_that_names_the_wrong_file_is_an_error_and_no_loss() -> None:
    store = Store(trips_project(1))
    store.places["travel", "trips", "ghost"] = Location(STATE)
    project = store.open()

    with pytest.raises(ProjectError, match=r"does not contain .*ghost"):
        update(project, "ghost")

    assert project.change().files == {}


def test_a_damaged_shard_is_named_and_nothing_is_written() -> None:
    store = Store(trips_project(3))
    store.files[STATE] = store.files[STATE].replace("days=2", "days=two()")
    project = store.open()

    with pytest.raises(ProjectError, match=r"domains/travel/state\.py:6: .*two\(\)"):
        edit(project, **trip(4))

    assert project.change().files == {}
