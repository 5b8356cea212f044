"""The `uac` library, which user code imports."""

import copy
import datetime
from dataclasses import dataclass

import pytest

from sandbox_image.uac import PartialDate, Record, Ref, Severity, critical, info, warning
from sandbox_image.uac.alerts import Alert
from sandbox_image.uac.records import resolve_references_with


@dataclass(kw_only=True)
class Document(Record):
    number: str


@dataclass(kw_only=True)
class Passport(Document):
    country: str = ""


class TestRecord:
    def test_a_subclass_brings_key_and_sources(self) -> None:
        passport = Passport(key="p-1", number="X1", sources=(3,))
        assert (passport.key, passport.number, passport.sources) == ("p-1", "X1", (3,))

    def test_sources_default_to_none_at_all(self) -> None:
        assert Passport(key="p-1", number="X1").sources == ()

    def test_key_is_required(self) -> None:
        with pytest.raises(TypeError, match="key"):
            Passport(number="X1")  # type: ignore[call-arg]


class TestRef:
    def test_resolves_among_the_loaded_records(self) -> None:
        passport = Passport(key="p-1", number="X1")
        previous = resolve_references_with(lambda key: [passport] if key == "p-1" else [])
        try:
            assert Ref[Passport]("p-1").get() is passport
            assert Ref[Document]("p-1").get() is passport  # by a base class
            with pytest.raises(LookupError, match="no Passport with the key 'p-2'"):
                Ref[Passport]("p-2").get()
        finally:
            resolve_references_with(previous)

    def test_a_record_of_another_class_with_the_key_is_not_meant(self) -> None:
        previous = resolve_references_with(lambda key: [Document(key=key, number="X1")])
        try:
            with pytest.raises(LookupError):
                Ref[Passport]("p-1").get()
        finally:
            resolve_references_with(previous)

    def test_a_class_of_the_same_name_elsewhere_is_not_meant(self) -> None:
        elsewhere = type("Passport", (Document,), {})
        stranger, passport = (one(key="p-1", number="X1") for one in (elsewhere, Passport))
        previous = resolve_references_with(lambda key: [stranger, passport])
        try:
            assert Ref[Passport]("p-1").get() is passport
            assert Ref["Passport"]("p-1").get() is stranger  # the name is all it says
        finally:
            resolve_references_with(previous)

    def test_without_a_project_there_is_nothing_to_refer_to(self) -> None:
        with pytest.raises(LookupError):
            Ref[Passport]("p-1").get()

    def test_equal_by_class_and_key(self) -> None:
        assert Ref[Passport]("p-1") == Ref[Passport]("p-1")
        assert len({Ref[Passport]("p-1"), Ref[Passport]("p-1")}) == 1
        assert Ref[Passport]("p-1") != Ref[Passport]("p-2")
        assert Ref[Passport]("p-1") != Ref[Document]("p-1")
        assert Ref[Passport]("p-1") != "p-1"

    def test_a_class_named_in_quotes(self) -> None:
        assert Ref["Passport"]("p-1").class_name == "Passport"
        assert Ref["Passport"]("p-1") == Ref[Passport]("p-1")

    def test_without_a_class_it_says_how_to_write_it(self) -> None:
        reference: Ref[Passport] = Ref("p-1")
        with pytest.raises(TypeError, match=r"Ref\[ClassName\]\('p-1'\)"):
            reference.get()
        assert reference == Ref("p-1")

    def test_prints_as_it_is_written(self) -> None:
        assert repr(Ref[Passport]("p-1")) == "Ref[Passport]('p-1')"


class TestPartialDate:
    @pytest.mark.parametrize(
        ("text", "parts", "earliest", "latest"),
        [
            ("2021", (2021, None, None), (2021, 1, 1), (2021, 12, 31)),
            ("2021-11", (2021, 11, None), (2021, 11, 1), (2021, 11, 30)),
            ("2024-02", (2024, 2, None), (2024, 2, 1), (2024, 2, 29)),
            ("2021-11-05", (2021, 11, 5), (2021, 11, 5), (2021, 11, 5)),
            ("1995~", (1995, None, None), (1993, 1, 1), (1997, 12, 31)),
            ("2024-01~", (2024, 1, None), (2023, 12, 1), (2024, 2, 29)),
            ("2024-03-01~", (2024, 3, 1), (2024, 2, 27), (2024, 3, 4)),
            ("2023-07-15/2023-07-16", (2023, 7, None), (2023, 7, 15), (2023, 7, 16)),
            ("2022-12/2023-01~", (2022, None, None), (2022, 12, 1), (2023, 2, 28)),
            ("2019~/..", (2019, None, None), (2017, 1, 1), (9999, 12, 31)),
            ("../2019-05", (2019, None, None), (1, 1, 1), (2019, 5, 31)),
            ("0001~", (1, None, None), (1, 1, 1), (3, 12, 31)),
        ],
    )
    def test_reads_a_date_as_far_as_it_is_known(
        self,
        text: str,
        parts: tuple[int, int | None, int | None],
        earliest: tuple[int, int, int],
        latest: tuple[int, int, int],
    ) -> None:
        date = PartialDate(text)
        assert (date.year, date.month, date.day) == parts
        assert date.earliest == datetime.date(*earliest)
        assert date.latest == datetime.date(*latest)
        assert str(date) == text
        assert repr(date) == f'PartialDate("{text}")'

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "21",
            "2021-1",
            "2021-13",
            "2021-00",
            "2021-11-00",
            "2021-02-30",
            "0000",
            "2021-11-5",
            " 2021",
            "2021\n",
            "٢٠٢١",
            "2021/11",
            "~2021",
            "2021~~",
            "2021/",
            "../..",
            "2021/2022/2023",
            "2023-07-16/2023-07-15",
            "2021-13/..",
        ],
    )
    def test_refuses_what_is_no_date(self, text: str) -> None:
        with pytest.raises(ValueError, match="date"):
            PartialDate(text)

    def test_compares_only_where_it_is_certain(self) -> None:
        year, day = PartialDate("2021"), datetime.date(2021, 6, 1)
        for uncertain in (year < day, year <= day, year > day, year >= day, day < year):
            assert not uncertain
        assert year < datetime.date(2022, 1, 1)
        assert datetime.date(2022, 1, 1) > year
        assert year <= datetime.date(2021, 12, 31)
        assert year >= datetime.date(2021, 1, 1)
        assert year > PartialDate("2020-12")
        assert not year < PartialDate("2021-03")

    @pytest.mark.parametrize(
        ("text", "other", "relation"),
        [
            ("1995~", datetime.date(1998, 1, 1), "before"),
            ("1995~", datetime.date(1997, 1, 1), "maybe"),
            ("2023-07-15/2023-07-16", datetime.date(2023, 7, 15), "maybe"),
            ("2023-07-15/2023-07-16", datetime.date(2023, 7, 14), "after"),
            ("2019~/..", datetime.date(2016, 12, 31), "after"),
            ("2019~/..", datetime.date(2030, 1, 1), "maybe"),
            ("2021-11-05", datetime.date(2021, 11, 5), "same"),
            ("2021", PartialDate("2021"), "maybe"),
        ],
    )
    def test_says_maybe_where_it_is_uncertain(
        self, text: str, other: PartialDate | datetime.date, relation: str
    ) -> None:
        assert PartialDate(text).relative_to(other) == relation
        assert (PartialDate(text) < other) == (relation == "before")
        assert PartialDate(text).about == ("~" in text)

    def test_does_not_compare_with_an_instant(self) -> None:
        with pytest.raises(TypeError):
            PartialDate("2021") < datetime.datetime(2022, 1, 1, tzinfo=datetime.UTC)  # noqa: B015

    def test_equality_is_that_of_the_text(self) -> None:
        assert PartialDate("2021-11") == PartialDate("2021-11")
        assert PartialDate("2021") != PartialDate("2021-11")
        assert PartialDate("2021-11-05") != datetime.date(2021, 11, 5)
        assert len({PartialDate("2021"), PartialDate("2021")}) == 1

    def test_does_not_change_and_copies(self) -> None:
        date = PartialDate("2021")
        with pytest.raises(AttributeError):
            date.year = 2022
        with pytest.raises(AttributeError):
            del date.year
        assert copy.deepcopy(date) == date


class TestAlerts:
    def test_each_severity_has_its_function(self) -> None:
        made = [raised("hello", key="k") for raised in (info, warning, critical)]
        assert [alert.severity for alert in made] == list(Severity)

    def test_evidence_is_kept_in_order(self) -> None:
        records = [Passport(key="b", number=""), Passport(key="a", number="")]
        assert critical("x", evidence=records).evidence == tuple(records)

    def test_needs_evidence_or_a_key_and_says_so(self) -> None:
        with pytest.raises(TypeError, match=r"evidence=.*key="):
            critical("the passport expires")

    @pytest.mark.parametrize(
        ("message", "evidence", "key"),
        [
            ("", (), "k"),
            ("  ", (), "k"),
            (None, (), "k"),
            ("x", ["passport-1"], None),
            ("x", "passport-1", None),
            ("x", Passport(key="p", number=""), None),
            ("x", (), ""),
            ("x", (), 3),
        ],
    )
    def test_refuses_what_is_no_alert(self, message: object, evidence: object, key: object) -> None:
        with pytest.raises(TypeError):
            critical(message, evidence=evidence, key=key)  # type: ignore[arg-type]

    def test_refuses_a_severity_of_ones_own(self) -> None:
        with pytest.raises(TypeError, match="severity"):
            Alert(severity="fatal", message="x", key="k")  # type: ignore[arg-type]
