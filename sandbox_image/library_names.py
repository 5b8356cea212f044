"""The names of the standard library that users' code may import.

`python -m workers.policy.library` writes this file; every change of it has to be reviewed.
"""

NAMES = {
    "calendar": """
        Calendar FRIDAY IllegalMonthError IllegalWeekdayError MONDAY SATURDAY SUNDAY THURSDAY
        TUESDAY TextCalendar WEDNESDAY calendar day_abbr day_name firstweekday isleap leapdays month
        month_abbr month_name monthcalendar monthrange prcal prmonth timegm weekday weekheader
    """,
    "collections": """
        ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque namedtuple
    """,
    "collections.abc": """
        AsyncGenerator AsyncIterable AsyncIterator Awaitable ByteString Callable Collection
        Container Coroutine Generator Hashable ItemsView Iterable Iterator KeysView Mapping
        MappingView MutableMapping MutableSequence MutableSet Reversible Sequence Set Sized
        ValuesView
    """,
    "dataclasses": """
        Field FrozenInstanceError InitVar KW_ONLY MISSING asdict astuple dataclass field fields
        is_dataclass replace
    """,
    "datetime": """
        MAXYEAR MINYEAR UTC date datetime time timedelta timezone tzinfo
    """,
    "decimal": """
        BasicContext Clamped Context ConversionSyntax Decimal DecimalException DecimalTuple
        DefaultContext DivisionByZero DivisionImpossible DivisionUndefined ExtendedContext
        FloatOperation HAVE_CONTEXTVAR HAVE_THREADS Inexact InvalidContext InvalidOperation MAX_EMAX
        MAX_PREC MIN_EMIN MIN_ETINY Overflow ROUND_05UP ROUND_CEILING ROUND_DOWN ROUND_FLOOR
        ROUND_HALF_DOWN ROUND_HALF_EVEN ROUND_HALF_UP ROUND_UP Rounded Subnormal Underflow
        getcontext localcontext setcontext
    """,
    "enum": """
        CONFORM CONTINUOUS EJECT Enum EnumCheck Flag FlagBoundary IntEnum IntFlag KEEP NAMED_FLAGS
        ReprEnum STRICT StrEnum UNIQUE auto member nonmember pickle_by_enum_name
        pickle_by_global_name property unique verify
    """,
    "functools": """
        cache cached_property cmp_to_key lru_cache partial partialmethod reduce total_ordering
    """,
    "itertools": """
        accumulate chain combinations combinations_with_replacement compress count cycle dropwhile
        filterfalse groupby islice pairwise permutations product repeat starmap takewhile tee
        zip_longest
    """,
    "math": """
        acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf
        erfc exp exp2 expm1 fabs factorial floor fmod frexp fsum gamma gcd hypot inf isclose
        isfinite isinf isnan isqrt lcm ldexp lgamma log log10 log1p log2 modf nan nextafter perm pi
        pow prod radians remainder sin sinh sqrt tan tanh tau trunc ulp
    """,
    "re": """
        A ASCII DOTALL I IGNORECASE L LOCALE M MULTILINE Match NOFLAG Pattern RegexFlag S U UNICODE
        VERBOSE X compile error escape findall finditer fullmatch match purge search split sub subn
        template
    """,
    "statistics": """
        NormalDist StatisticsError correlation covariance fmean geometric_mean harmonic_mean
        linear_regression mean median median_grouped median_high median_low mode multimode pstdev
        pvariance quantiles stdev variance
    """,
    "typing": """
        AbstractSet Annotated Any AnyStr AsyncContextManager AsyncGenerator AsyncIterable
        AsyncIterator Awaitable BinaryIO ByteString Callable ChainMap ClassVar Collection
        Concatenate Container ContextManager Coroutine Counter DefaultDict Deque Dict Final
        FrozenSet Generator Generic Hashable IO ItemsView Iterable Iterator KeysView List Literal
        LiteralString Mapping MappingView Match MutableMapping MutableSequence MutableSet NamedTuple
        Never NewType NoReturn NotRequired Optional OrderedDict ParamSpec ParamSpecArgs
        ParamSpecKwargs Pattern Protocol Required Reversible Self Sequence Set Sized SupportsAbs
        SupportsBytes SupportsComplex SupportsFloat SupportsIndex SupportsInt SupportsRound
        TYPE_CHECKING Text TextIO Tuple Type TypeAlias TypeGuard TypeVar TypeVarTuple TypedDict
        Union Unpack ValuesView assert_never assert_type cast clear_overloads dataclass_transform
        final get_overloads is_typeddict overload reveal_type runtime_checkable
    """,
    "zoneinfo": """
        InvalidTZPathWarning ZoneInfo ZoneInfoNotFoundError
    """,
}
