"""The read-only part of git's protocol: sending refs, and the objects that a client lacks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import BytesIO

from dulwich.errors import GitProtocolError
from dulwich.object_format import DEFAULT_OBJECT_FORMAT
from dulwich.objects import ObjectID
from dulwich.pack import write_pack_data
from dulwich.protocol import SIDE_BAND_CHANNEL_DATA, Protocol

from memory.export.git import History, HistoryChanged, objects, parcel

SERVICE = "git-upload-pack"
_CAPABILITIES = (
    b"multi_ack_detailed side-band-64k ofs-delta shallow no-progress"
    b" symref=HEAD:refs/heads/main object-format=sha1 agent=uac"
)
_NOTHING = b"0" * 40

Write = Callable[[bytes], object]


class BadRequest(ValueError):
    """The request is not a valid git request; the message says what is wrong."""


@dataclass
class _FetchRequest:
    """A client's request: the objects it wants, its capabilities, and a depth, if any."""

    wants: list[ObjectID] = field(default_factory=list)
    capabilities: frozenset[bytes] = frozenset()
    shallow: list[ObjectID] = field(default_factory=list)
    depth: int | None = None


def advertise(history: History, write: Write) -> None:
    """Write the ref advertisement, which lists each ref with its commit."""
    proto = _protocol(b"", write)
    proto.write_pkt_line(b"# service=" + SERVICE.encode() + b"\n")
    proto.write_pkt_line(None)
    refs = history.refs() or [(b"capabilities^{}", ObjectID(_NOTHING))]
    for number, (name, id_) in enumerate(refs):
        extra = b"\0" + _CAPABILITIES if number == 0 else b""
        proto.write_pkt_line(id_ + b" " + name + extra + b"\n")
    proto.write_pkt_line(None)


def answer(history: History, body: bytes, write: Write) -> None:
    """Write the response to a fetch request; raises BadRequest if the request is invalid.

    The client may already have some of the commits. If it asks for a commit that no longer exists,
    the response is an error that says to fetch again.
    """
    proto = _protocol(body, write)
    try:
        request = _read_wants(proto)
        lost = [id_ for id_ in request.wants if id_ not in history.index]
        if lost:
            _refuse(proto, f"the commit {lost[0].decode()} no longer exists: fetch again")
            return
        _answer(history, request, proto)
    except HistoryChanged:
        _refuse(proto, "the history has just changed: fetch again")
    except (GitProtocolError, ValueError, AssertionError) as error:
        raise BadRequest(
            f"This is not a valid git request: {error or 'it ends too early'}."
        ) from None


def _protocol(body: bytes, write: Write) -> Protocol:
    return Protocol(BytesIO(body).read, write)  # type: ignore[arg-type]


def _refuse(proto: Protocol, reason: str) -> None:
    proto.write_pkt_line(b"ERR " + reason.encode())


def _read_wants(proto: Protocol) -> _FetchRequest:
    request = _FetchRequest()
    while (line := proto.read_pkt_line()) is not None:
        command, _, rest = line.rstrip(b"\n").partition(b" ")
        match command:
            case b"want":
                id_, _, capabilities = rest.partition(b" ")
                request.wants.append(ObjectID(id_))
                request.capabilities |= frozenset(capabilities.split())
            case b"shallow":
                request.shallow.append(ObjectID(rest))
            case b"deepen":
                request.depth = int(rest) or None
            case _:
                raise BadRequest(f"unknown command {command[:40]!r}")
    if not request.wants:
        raise BadRequest("the request names no objects")
    return request


def _answer(history: History, request: _FetchRequest, proto: Protocol) -> None:
    shallow = {history.index[id_] for id_ in request.shallow if id_ in history.index}
    wants = [history.index[id_] for id_ in request.wants]
    kept = set()
    if request.depth is not None:
        kept = _union((max(0, want - request.depth + 1), want + 1) for want in wants)
        begins = {number for number in kept if number and number - 1 not in kept}
        for number in sorted(begins - shallow):
            proto.write_pkt_line(b"shallow " + history.commits[number].id)
        for number in sorted(number for number in shallow if number - 1 in kept):
            proto.write_pkt_line(b"unshallow " + history.commits[number].id)
        proto.write_pkt_line(None)
    common, done = _read_haves(history, request, proto)
    if not done:
        return
    # The client has the newest common commit and its ancestors, back to its shallow boundary.
    since = max((number for number in shallow if number <= common), default=0)
    has = set(range(since, common + 1))
    if request.depth is None:
        later = [want for want in wants if want > common]
        older = [want for want in wants if want < since]
        kept = _union([(common + 1, max(later) + 1)] if later else [])
        kept |= _union([(0, max(older) + 1)] if older else [])
    pack = parcel(history, sorted(kept - has), common if has else None)

    def send(data: bytes) -> None:
        if b"side-band-64k" in request.capabilities:
            proto.write_sideband(SIDE_BAND_CHANNEL_DATA, data)
        else:
            proto.write(data)

    write_pack_data(send, objects(history, pack), DEFAULT_OBJECT_FORMAT, num_records=pack.count)
    if b"side-band-64k" in request.capabilities:
        proto.write_pkt_line(None)


def _read_haves(history: History, request: _FetchRequest, proto: Protocol) -> tuple[int, bool]:
    """Return the index of the newest common commit (-1 if none), and whether to send the pack."""
    detailed = b"multi_ack_detailed" in request.capabilities
    common, silent = -1, True
    while not proto.eof():
        line = proto.read_pkt_line()
        if line is None:
            continue
        silent = False
        command, _, rest = line.rstrip(b"\n").partition(b" ")
        if command == b"done":
            last = b"ACK " + history.commits[common].id if common >= 0 else b"NAK"
            if detailed or common < 0:
                proto.write_pkt_line(last + b"\n")
            return common, True
        if command != b"have":
            raise BadRequest(f"unknown command {command[:40]!r}")
        number = history.index.get(ObjectID(rest), -1)
        if number >= 0:
            if detailed:
                proto.write_pkt_line(b"ACK " + rest + b" common\n")
            elif common < 0:
                proto.write_pkt_line(b"ACK " + rest + b"\n")
            common = max(common, number)
    if silent and request.depth is not None:
        return common, False  # the client only asks for its new shallow boundary
    if common >= 0 and detailed:
        proto.write_pkt_line(b"ACK " + history.commits[common].id + b" ready\n")
    if common < 0 or detailed:
        proto.write_pkt_line(b"NAK\n")
    return common, False


def _union(ranges: Iterable[tuple[int, int]]) -> set[int]:
    versions: set[int] = set()
    reached = 0
    for start, stop in sorted(ranges):
        versions.update(range(max(start, reached), stop))
        reached = max(reached, stop)
    return versions
