"""The rules of the static policy, applied to one syntax tree."""

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from memory.project.names import RESERVED_LOWER
from workers.policy.kinds_of_file import (
    DOMAIN_MODULE,
    MANIFEST,
    PACKAGE,
    QUERY,
    SCHEMA,
    SCHEMA_MODULE,
    STATE,
    FileKind,
    Holds,
)
from workers.policy.library import LIBRARY
from workers.policy.syntax_trees import (
    is_docstring,
    is_one_value,
    is_text,
    list_bound_names,
    list_called,
    list_format_attributes,
    list_type_calls,
    parameters_of,
    root_name,
)
from workers.policy.tables import (
    CLASS_BUILDERS,
    CLOCK,
    CONSTRUCTORS,
    DECORATORS,
    EXECUTION,
    FORBIDDEN_CALLS,
    FORBIDDEN_NAMES,
    INNER_MODULES,
    NAMED_TUPLE_METHODS,
    QUERY_NAMES,
    TYPE_CHECKER_NAMES,
)

# Modules of the library that only some kinds of files may import.
_ONLY_SOME = ("builtins", "uac.testing")

Breach = tuple[int, str, str]  # line, code, message


def check_tree(kind: FileKind, tree: ast.Module) -> Iterator[Breach]:
    """Yield each violation, in a file's syntax tree, of the rules for this kind of file."""
    return _Policy(kind, tree).check()


class _Policy:
    def __init__(self, kind: FileKind, tree: ast.Module) -> None:
        self.kind = kind
        self.tree = tree
        self.origins: dict[str, str] = dict(QUERY_NAMES) if kind is QUERY else {}
        self.bound = set(list_bound_names(tree.body))
        self.type_checking = {id(node.test) for node in tree.body if self.is_type_checking(node)}
        self.classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        self.called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    self.origins[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        self.in_place = set(map(id, self.uses_of_classes()))

    def check(self) -> Iterator[Breach]:
        if self.kind is MANIFEST:
            return
        qualified = {
            id(node.value) for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)
        }
        for node in ast.walk(self.tree):
            line = getattr(node, "lineno", 1)
            for code, message in self.check_node(node, id(node) in qualified):
                yield line, code, message
        if self.kind is not QUERY:
            for statement in self.tree.body:
                for node, message in self.check_top_level(statement):
                    yield getattr(node, "lineno", statement.lineno), "top_level", message
            yield from self.check_content()

    def uses_of_classes(self) -> Iterator[ast.AST]:
        """Yield the nodes where a decorator, or a class that could build classes, is allowed."""
        for node in ast.walk(self.tree):
            match node:
                case (
                    ast.arg(annotation=ast.expr() as annotation)
                    | ast.AnnAssign(annotation=annotation)
                ):
                    yield from ast.walk(annotation)
                case ast.FunctionDef(decorator_list=decorators, returns=returns):
                    yield from list_called(decorators)
                    if returns is not None:
                        yield from ast.walk(returns)
                case ast.ClassDef(decorator_list=decorators, bases=bases):
                    yield from list_called(decorators)
                    yield from (
                        base for base in bases if root_name(base) not in ("type", "builtins")
                    )
                case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kind]):
                    yield kind
                case ast.Call(func=function, args=[ast.expr() as value], keywords=[]):
                    origin = self.origin(function) or ""
                    if origin.startswith(("enum.", "typing.")) and is_one_value([value]):
                        yield function
                case ast.Compare(left=left, comparators=others):
                    yield from list_type_calls(left, *others)
                case ast.Expr(value=value):  # a query's value, which is not used in the code
                    yield from list_type_calls(value)

    # Rules for every node, regardless of its position in the tree.

    def check_node(self, node: ast.AST, qualified: bool) -> Iterator[tuple[str, str]]:  # noqa: C901 - one case for each kind
        match node:
            case ast.Import():
                for alias in node.names:
                    yield from self.check_import(alias.name)
                    if alias.asname and alias.name in LIBRARY and alias.name != "datetime":
                        message = f"import {alias.name} as …: keep the module's name"
                        yield "import", message
            case ast.ImportFrom():
                yield from self.check_import_from(node)
            case ast.Name(id=name):
                yield from self.check_name(name)
                if name in TYPE_CHECKER_NAMES and id(node) not in self.type_checking:
                    yield (
                        "directive",
                        f"{name} shows different code to the type checker: write the code once",
                    )
                yield from self.check_use(node, qualified)
            case ast.Attribute(attr=name):
                yield from self.check_attribute(name)
                yield from self.check_use(node, qualified)
                if name == "format" and is_text(node.value) and id(node) not in self.called:
                    yield "attribute", ".format is passed as a value: use an f-string"
                owner = self.origin(node.value)
                if owner is not None and owner in LIBRARY and f"{owner}.{name}" not in LIBRARY:
                    yield from self.check_member(owner, name)
                if self.kind.check and not isinstance(node.ctx, ast.Load):
                    message = (
                        f".{name} is assigned: a constraint reads the state and must not change it"
                    )
                    yield "mutation", message
            case ast.MatchClass(kwd_attrs=names):
                for name in names:
                    yield from self.check_attribute(name)
            case ast.Call():
                yield from self.check_call(node)
            case ast.FunctionDef() | ast.ClassDef():
                yield from self.check_definition(node)
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield from self.check_name(name)
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                yield from self.check_name(name)
            case ast.Global():
                yield "statement", "global keeps a value between calls: return it instead"
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield "statement", "async code does not run here: write an ordinary function"
            case ast.comprehension(is_async=1):
                yield "statement", "async code does not run here: write an ordinary loop"

    def check_use(
        self, node: ast.Name | ast.Attribute, qualified: bool
    ) -> Iterator[tuple[str, str]]:
        """Reject the use of modules, and of anything that builds classes, as values."""
        origin = self.origin(node) or ""
        if (
            origin in LIBRARY
            and not qualified
            and (isinstance(node, ast.Attribute) or origin == self.origins.get(node.id))
        ):
            message = f"the module {origin} is used as a value: use the names that you need from it"
            yield "import", message
        elif id(node) in self.in_place or not isinstance(node.ctx, ast.Load):
            return
        elif origin in CLASS_BUILDERS:
            name = origin.rpartition(".")[2]
            fix = "compare type(x) == …" if name == "type" else "write a class"
            yield "name", f"{name} can build classes: {fix}, or rename your variable"
        elif origin == "dataclasses.dataclass":
            yield "name", "dataclass is called or passed as a value: write @dataclass above a class"

    def check_import(self, module: str) -> Iterator[tuple[str, str]]:
        if module in LIBRARY:
            if self.may_use(module):
                return
        elif any(pattern.fullmatch(module) for pattern in self.kind.modules):
            return
        elif DOMAIN_MODULE.fullmatch(module) and self.kind not in (SCHEMA, STATE):
            yield "import", f"import {module}: write from {module} import … with the names"
            return
        yield "import", f"import {module} is not allowed here: use {self.allowed_imports()}"

    def check_import_from(self, node: ast.ImportFrom) -> Iterator[tuple[str, str]]:
        module = node.module or ""
        names = [alias.name for alias in node.names]
        if node.level:
            yield (
                "import",
                "a relative import: use an absolute one, from domains.<domain>.schema import …",
            )
        elif "*" in names:
            yield "import", f"from {module} import *: import the names that you need"
        elif module in LIBRARY:
            if not self.may_use(module):
                yield "import", f"{module} is not allowed here: use {self.allowed_imports()}"
            for name in names:
                if name in TYPE_CHECKER_NAMES and not self.kind.has_type_checking:
                    yield (
                        "directive",
                        f"{name} shows different code to the type checker: write the code once",
                    )
                if f"{module}.{name}" in LIBRARY:
                    yield "import", f"from {module} import {name}: write import {module}.{name}"
                else:
                    yield from self.check_member(module, name)
        elif self.is_own_module(module):
            for name in names:
                yield from self.check_attribute(name)
                # A collection may be called `calendar`, so this name may refer to records; the
                # names of other modules are reserved and can't.
                if name in LIBRARY and (name in RESERVED_LOWER or SCHEMA_MODULE.fullmatch(module)):
                    yield "import", f"{module} only imports the module {name}: write import {name}"
        elif module != self.kind.package:
            message = f"from {module} import … is not allowed here: use {self.allowed_imports()}"
            yield "import", message

    def is_own_module(self, module: str) -> bool:
        return any(pattern.fullmatch(module) for pattern in self.kind.imports)

    def may_use(self, module: str) -> bool:
        return module not in _ONLY_SOME or module in self.kind.library

    def allowed_imports(self) -> str:
        names = sorted(name for name in LIBRARY if self.may_use(name))
        return ", ".join(filter(None, [*names, self.kind.own]))

    def check_member(self, module: str, name: str) -> Iterator[tuple[str, str]]:
        if name not in LIBRARY[module]:
            yield "import", f"{module}.{name} is not allowed: use another name of {module}"

    def is_type_checking(self, node: ast.stmt) -> TypeGuard[ast.If]:
        """Return whether a node is `if TYPE_CHECKING:` around imports for quoted annotations."""
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
                return self.kind.has_type_checking and all(
                    isinstance(one, ast.ImportFrom) and SCHEMA_MODULE.fullmatch(one.module or "")
                    for one in body
                )
        return False

    def check_name(self, name: str) -> Iterator[tuple[str, str]]:
        if name in FORBIDDEN_NAMES:
            message = f"{name} is not allowed: name things directly, or rename your variable"
            yield "name", message
        elif name.startswith("__") or (name[0] == name[-1] == "_" and len(name) > 2):
            yield "name", f"{name} is not allowed: use a name without leading underscores"

    def check_attribute(self, name: str) -> Iterator[tuple[str, str]]:
        if name.startswith("_") and name not in NAMED_TUPLE_METHODS:
            yield "attribute", f".{name} is internal: use public fields and methods"
        elif name in EXECUTION:
            yield "attribute", f".{name} inspects running code: use values instead"
        elif name in CLOCK:
            fix = "use today or now" if self.kind is QUERY else "take the parameter today or now"
            yield "clock", f".{name} reads the clock: {fix} instead"
        elif name in TYPE_CHECKER_NAMES:
            yield (
                "directive",
                f".{name} shows different code to the type checker: write the code once",
            )
        elif name == "format_map":
            yield "attribute", ".format_map() is not allowed: use an f-string"
        elif name in INNER_MODULES:
            yield "attribute", f".{name} reaches into a module: import what you need"

    def check_call(self, node: ast.Call) -> Iterator[tuple[str, str]]:
        match node.func:
            case ast.Name(id=name) if name in FORBIDDEN_CALLS:
                yield "name", f"{name}() differs from run to run: compare the values or their keys"
            case ast.Attribute(attr="astimezone") if not node.args and not node.keywords:
                yield "clock", ".astimezone() uses the machine's time zone: name one with ZoneInfo"
            case ast.Attribute(attr="samples"):
                yield "random", ".samples() is random: compute the quantiles instead"
            case ast.Attribute(attr="format", value=ast.Constant(value=str(text))):
                if any("_" in part for part in list_format_attributes(text)):
                    yield "attribute", "the format reads an internal attribute: use an f-string"
            case ast.Attribute(attr="format"):
                yield (
                    "attribute",
                    ".format() called on something other than a string literal: use an f-string",
                )

    def check_definition(self, node: ast.FunctionDef | ast.ClassDef) -> Iterator[tuple[str, str]]:
        yield from self.check_name(node.name)
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name not in DECORATORS:
                message = f"the decorator {ast.unparse(decorator)}: only"
                yield "decorator", f"{message} {', '.join(sorted(DECORATORS))} are allowed"
            elif (root := root_name(called)) in self.bound:
                yield "decorator", f"the decorator {root} is defined in this file: rename yours"
        if isinstance(node, ast.ClassDef) and node.keywords:
            yield (
                "statement",
                f"class {node.name} has keyword arguments: a class may have only bases",
            )

    # Rules for what a module does when it is imported: it may only contain definitions.

    def check_top_level(self, statement: ast.stmt) -> Iterator[tuple[ast.AST, str]]:
        if is_docstring(statement):
            return
        match statement:
            case _ if self.kind is PACKAGE:
                yield statement, "an __init__.py must be empty: move the code to a module"
            case ast.Import() | ast.ImportFrom():
                pass
            case _ if self.is_type_checking(statement):
                pass
            case ast.ClassDef() if Holds.CLASSES in self.kind.holds:
                yield from self.check_class(statement)
            case ast.FunctionDef() if Holds.FUNCTIONS in self.kind.holds:
                yield from self.check_signature(statement)
            case ast.Assign() | ast.AnnAssign() if Holds.ASSIGNMENTS in self.kind.holds:
                yield from self.check_assignment(statement)
            case _:
                what = self.kind.contents
                text = ast.unparse(statement).split("\n")[0][:60]
                yield statement, f"{text!r} runs on import: this file may contain only {what}"

    def check_class(self, node: ast.ClassDef) -> Iterator[tuple[ast.AST, str]]:
        for base in node.bases:
            yield from self.check_pure(base)
        yield from self.check_decorators(node)
        for statement in node.body:
            match statement:
                case ast.AnnAssign() | ast.Assign():
                    yield from self.check_assignment(statement)
                case ast.FunctionDef():
                    yield from self.check_signature(statement)
                case ast.Pass():
                    pass
                case _ if not is_docstring(statement):
                    yield statement, f"class {node.name} contains more than fields and methods"

    def check_signature(self, node: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            yield from self.check_pure(default)
        every = parameters_of(node)
        for annotation in [*(argument.annotation for argument in every), node.returns]:
            if annotation is not None:
                yield from self.check_pure(annotation)
        yield from self.check_decorators(node)

    def check_decorators(
        self, node: ast.FunctionDef | ast.ClassDef
    ) -> Iterator[tuple[ast.AST, str]]:
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call):
                for value in [*decorator.args, *(word.value for word in decorator.keywords)]:
                    yield from self.check_pure(value)

    def check_assignment(self, node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[ast.AST, str]]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if len(targets) != 1 or not isinstance(targets[0], ast.Name):
            yield (
                node,
                "an assignment to something other than a single name: assign each name separately",
            )
        if isinstance(node, ast.AnnAssign):
            yield from self.check_pure(node.annotation)
        if node.value is not None:
            yield from self.check_pure(node.value)

    def check_pure(self, node: ast.expr) -> Iterator[tuple[ast.AST, str]]:
        """Reject expressions evaluated on import, except literals, names and constructor calls."""
        match node:
            case ast.Constant() | ast.Name() | ast.Lambda():
                return  # a lambda's body does not run
            case ast.Call(func=function) if root_name(function) in self.bound:
                name = root_name(function)
                message = f"{name}(…) runs on import, and {name} is defined in this file"
                yield node, f"{message}: rename yours, or call it within a function"
            case ast.Call(func=function):
                origin = self.origin(function) or ""
                is_pure = origin in CONSTRUCTORS or SCHEMA_MODULE.fullmatch(
                    origin.rpartition(".")[0]
                )
                if not is_pure:
                    text = ast.unparse(function)[:60]
                    yield node, f"{text}(…) runs on import: call it within a function"
                elif origin == "dataclasses.field":
                    yield from self.check_factories(node.keywords)
            case ast.BinOp(op=ast.Pow() | ast.LShift() | ast.MatMult()):
                yield node, "an operation that can be slow runs on import: write its result"
            case (
                ast.Attribute()
                | ast.Subscript()
                | ast.Starred()
                | ast.List()
                | ast.Tuple()
                | ast.Set()
                | ast.Dict()
                | ast.UnaryOp()
                | ast.BinOp()
            ):
                pass
            case _:
                text = ast.unparse(node)[:60]
                yield node, f"{text!r} runs on import: write a literal, or move it into a function"
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword):
                yield from self.check_pure(child.value)
            elif isinstance(child, ast.expr):
                yield from self.check_pure(child)

    def check_factories(self, keywords: list[ast.keyword]) -> Iterator[tuple[ast.AST, str]]:
        """Reject default factories that run code.

        A default factory runs whenever a state file is imported that has a record without the
        field.
        """
        for keyword in keywords:
            match keyword:
                case ast.keyword(arg="default_factory", value=ast.Lambda(body=body)):
                    yield from self.check_pure(body)
                case ast.keyword(arg="default_factory", value=value):
                    name = root_name(value)
                    if name in self.bound - self.classes:
                        message = f"{name} runs on import: write a literal in a lambda"
                        yield keyword.value, message

    def origin(self, node: ast.expr) -> str | None:
        """Return the full name that an expression refers to, as far as the imports reveal it."""
        match node:
            case ast.Name(id=name):
                return self.origins.get(name, name)
            case ast.Attribute(value=value, attr=name):
                owner = self.origin(value)
                return None if owner is None else f"{owner}.{name}"
            case ast.Subscript(value=value):
                return self.origin(value)
        return None

    # Rules for what a file must contain.

    def check_content(self) -> Iterator[Breach]:
        functions = {
            node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)
        }
        if self.kind.check:
            if "check" in functions:
                yield from self.check_check(functions["check"])
            else:
                yield (
                    1,
                    "check",
                    f"no check: define def check({self.kind.check}) -> Iterator[Alert]",
                )
        if self.kind.has_tests:
            tests = [node for name, node in functions.items() if name.startswith("test_")]
            if not tests:
                yield 1, "test", "no test: define functions named test_…"
            for node in tests:
                if parameters_of(node):
                    yield node.lineno, "test", f"{node.name} has parameters: a test takes none"

    def check_check(self, node: ast.FunctionDef) -> Iterator[Breach]:
        if self.kind.takes_instant:
            yield from self.check_instant(node)
        returns = "" if node.returns is None else ast.unparse(node.returns)
        if not re.fullmatch(r"(?:[\w.]*\.)?(?:Iterator|Iterable|list)\[(?:\w+\.)?Alert\]", returns):
            yield node.lineno, "check", "check returns Iterator[Alert]: write -> Iterator[Alert]"

    def check_instant(self, node: ast.FunctionDef) -> Iterator[Breach]:
        """Require that `check` in a user's own constraint takes only `today` or `now`."""
        parameters = parameters_of(node)
        annotations = {"today": "datetime.date", "now": "datetime.datetime"}
        plain = [argument.arg for argument in node.args.args] if not node.args.defaults else []
        if len(parameters) != 1 or plain not in (["today"], ["now"]):
            message = "check takes one parameter: today: datetime.date, or now: datetime.datetime"
            yield node.lineno, "check", message
        else:
            (parameter,) = parameters
            wanted = annotations[parameter.arg]
            if parameter.annotation is None or self.origin(parameter.annotation) != wanted:
                yield (
                    node.lineno,
                    "check",
                    f"check's parameter must be written {parameter.arg}: {wanted}",
                )
