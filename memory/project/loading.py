"""Parsing a whole project from its files."""

from collections.abc import Mapping

from memory.project.errors import ProjectError
from memory.project.outline import Collection, Domain, Outline, Shard, Singleton
from memory.project.parse import StateSource, documentation, parse_schema, parse_state
from memory.project.paths import constraint_name, domain_name
from memory.project.render import record_size
from memory.project.set_aside import count_set_aside
from memory.project.values import Record

_Records = dict[str, dict[str, dict[str, Record]]]


def load(files: Mapping[str, str]) -> tuple[Outline, _Records]:
    """Parse a tree's files, and return the project's outline and records.

    The records are keyed by file path, then by collection or singleton name, then by record key.

    Raises ProjectError for a file that can't be read or doesn't belong to a project.
    """
    outline = Outline()
    records: _Records = {}
    domains = {domain_name(path) for path in files if _is(path, "domains", "*", "schema.py")}
    for name in sorted(domains):
        domain, domain_records = load_domain(name, files)
        outline = outline.with_domain(domain)
        records |= domain_records
    for path in sorted(files):
        if _is(path, "constraints", "*") and not path.endswith("/__init__.py"):
            name = constraint_name(path)
            outline = outline.with_constraint(name, _documentation(path, files[path]))
    tests = [path for path in sorted(files) if _is(path, "tests", "test_*")]
    outline = Outline(outline.domains, outline.constraints, tuple(tests))
    _check_paths(files, outline)
    return outline, records


def load_domain(name: str, files: Mapping[str, str]) -> tuple[Domain, _Records]:
    """Parse a domain; return it and its records, which are keyed as in the result of `load`."""
    path = Domain(name).schema_path
    domain = parse_schema(path, files[path], name)
    path = domain.state_path
    state = parse_state(path, files.get(path, ""), domain)
    records = {path: state.records}
    for collection, class_name in state.collections.items():
        shards = [_shard(path, state, collection)]
        for module in state.shards[collection]:
            shard_path = f"domains/{name}/{module}.py"
            if shard_path != domain.shard_path(collection, len(shards) + 1):
                raise ProjectError(
                    path, f"{collection} continues in {module}, which has the wrong number"
                )
            if shard_path not in files:
                raise ProjectError(shard_path, f"is missing, but {path} imports it")
            shard = parse_state(shard_path, files[shard_path], domain)
            if shard.collections != {collection: class_name} or shard.singletons:
                raise ProjectError(shard_path, f"must contain {collection} and nothing else")
            shards.append(_shard(shard_path, shard, collection))
            records[shard_path] = shard.records
        domain = domain.with_collection(Collection(collection, class_name, tuple(shards)))
        keys = [key for shard in shards for key in records[shard.path][collection]]
        if len(set(keys)) < len(keys):
            raise ProjectError(path, f"{collection} has the same key in two of its shards")
    for singleton, class_name in state.singletons.items():
        (record,) = state.records[singleton].values()
        held = Singleton(singleton, class_name, record_size(record), count_set_aside(record))
        domain = domain.with_singleton(held)
    return domain, records


def _shard(path: str, state: StateSource, collection: str) -> Shard:
    records = state.records[collection].values()
    size = sum(map(record_size, records))
    return Shard(path, len(records), size, sum(map(count_set_aside, records)))


def _documentation(path: str, source: str) -> str:
    try:
        return documentation(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProjectError(path, f"invalid Python: {error}") from None


def _is(path: str, *pattern: str) -> bool:
    """Return whether a path fits a pattern; `*` matches any name, `test_*` any with this prefix."""
    parts = path.split("/")
    return (
        len(parts) == len(pattern)
        and path.endswith(".py")
        and all(
            part.startswith(want[:-1]) if want.endswith("*") else part == want
            for part, want in zip(parts, pattern, strict=True)
        )
    )


def _check_paths(files: Mapping[str, str], outline: Outline) -> None:
    allowed = set(outline.paths())
    for path, source in files.items():
        is_package = path.endswith("__init__.py")
        if path not in allowed and not (is_package and not source.strip()):
            raise ProjectError(path, "does not belong to a project")
        if is_package and source.strip():
            raise ProjectError(path, "must be empty")
