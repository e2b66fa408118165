"""A scalar Python function, rewritten so that kernels can be compiled around it and give the same bits on every device.

    numbers and names of the user's module      → constants
    math.exp, numpy.log, abs, max, x ** y, …    → kernels/formulas.py, which rounds alike everywhere
    in a loss: what depends on the margin       → jets, which carry both derivatives (automatic differentiation)

Allowed are arithmetic, comparisons, assignment to plain names, if, conditional expressions, for over range(), and calls of such
functions. Anything else is refused with the line that holds it. The new function keeps the user's line numbers.
"""

import ast
import builtins
import inspect
import math
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import numpy as np
from numba import float32, float64

from gpuboost.kernels import formulas
from gpuboost.kernels.jit import inlined_scalar

__all__ = ["Formula", "FormulaError", "read_formula"]

Number = (int, float, np.integer, np.floating)
UNARY = {
    "exp": (math.exp, np.exp), "log": (math.log, np.log), "log1p": (math.log1p, np.log1p), "expm1": (math.expm1, np.expm1),
    "tanh": (math.tanh, np.tanh), "sqrt": (math.sqrt, np.sqrt), "abs": (abs, math.fabs, np.abs, np.fabs),
}  # fmt: skip
KNOWN: dict[Any, str] = {function: name for name, functions in UNARY.items() for function in functions}
KNOWN |= {max: "larger", np.maximum: "larger", min: "smaller", np.minimum: "smaller"}
KNOWN |= {math.pow: "power", np.power: "power", float: "number"}
OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "power"}
ALLOWED = "Allowed are + - * / **, comparisons, if, for over range(), and " + ", ".join(
    sorted({"min", "max", "math.pow", *(f"math.{name}" for name in UNARY if name != "abs"), "abs"})
)


class FormulaError(TypeError):
    """A function that cannot be compiled into kernels; the message shows its line and what to do."""


@dataclass(frozen=True)
class Formula:
    """A user's function, read.

    parameters : names of its arguments, and values of those that have a default. returns_pair : whether it returns two numbers.
    """

    function: FunctionType
    tree: ast.FunctionDef
    lines: tuple[str, ...] = field(repr=False)
    first_line: int
    returns_pair: bool

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def arguments(self) -> dict[str, Any]:
        """name → default, or inspect.Parameter.empty."""
        return {p.name: p.default for p in inspect.signature(self.function).parameters.values()}

    def numbers(self, names: list[str]) -> dict[str, float]:
        """The defaults of these arguments."""
        defaults = {name: self.arguments[name] for name in names}
        for name, value in defaults.items():
            if isinstance(value, bool) or not isinstance(value, Number) or not math.isfinite(value):
                self.fail(None, f"Its parameter {name!r} has no finite number as default.", f"Write {name}=1.0.")
        return {name: float(value) for name, value in defaults.items()}

    def fail(self, node: ast.AST | None, problem: str, fix: str) -> NoReturn:
        raise FormulaError(f"{self.place(node)}\n{problem} {fix}")

    def place(self, node: ast.AST | None = None) -> str:
        """The user's line, with its file and number."""
        line = getattr(node, "lineno", self.tree.lineno)
        code = self.function.__code__
        return f'File "{code.co_filename}", line {line + self.first_line - 1}, in {self.name}\n    {self.lines[line - 1].strip()}'

    def compiled(self, dtype: Any) -> Any:
        """The function on numbers of a dtype, numba's float32 or float64, as a scalar function."""
        return _Translation(self, dtype, frozenset()).scalar()

    def jets(self) -> Any:
        """The function with a jet as its first argument, float64 for the others, and a jet as its result. Raises FormulaError
        where no line that returns depends on the first argument."""
        first = next(iter(self.arguments))
        translation = _Translation(self, float64, frozenset([first]))
        function = translation.scalar()
        if not translation.returns_jet:
            self.fail(None, f"What it returns does not depend on {first!r}.", "A loss is a function of the margin.")
        return function


def read_formula(function: Callable[..., Any]) -> Formula:
    """Raises FormulaError for what is no plain function, or one whose text is not to be had."""
    if not isinstance(function, FunctionType):
        raise FormulaError(f"a formula must be a Python function made by def, got {function!r:.60}.")
    try:
        # From Python 3.13 on inspect takes the text of "python -c" for that of all that is made of strings.
        if function.__code__.co_filename == "<string>" and function.__globals__ is not vars(sys.modules["__main__"]):
            raise OSError
        lines, first_line = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise FormulaError(
            f"the text of {function.__name__}, which is compiled, is not to be had. Define it in a file or a notebook."
        ) from None
    text = textwrap.dedent("".join(lines))
    try:
        tree = ast.parse(text).body[0]
    except SyntaxError:  # a lambda within an expression
        tree = ast.Pass()
    if not isinstance(tree, ast.FunctionDef):
        raise FormulaError(f"{lines[0].strip()}\na formula must be a function made by def, with one name.")
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.Return)]
    pairs = [isinstance(node.value, ast.Tuple) for node in returns]
    formula = Formula(function, tree, tuple(text.splitlines()), first_line, any(pairs))
    if not returns or any(node.value is None for node in returns):
        formula.fail(returns[0] if returns else None, "The function returns nothing.", "Return its value.")
    if any(pairs) != all(pairs):
        formula.fail(returns[pairs.index(False)], "Some lines return two numbers, this one one.", "Return the same everywhere.")
    for kind in (tree.args.vararg, tree.args.kwarg):
        if kind is not None:
            formula.fail(None, f"Its argument {kind.arg!r} takes any number of values.", "Name each argument.")
    return formula


def _always_returns(body: list[ast.stmt]) -> bool:
    """Whether a block ends in a return on every path."""
    return any(
        isinstance(s, ast.Return) or isinstance(s, ast.If) and _always_returns(s.body) and _always_returns(s.orelse) for s in body
    )


class _Translation:
    """One function, rewritten for some of its arguments being jets (the active ones).

    Within it, every expression is a pair: its new text as a tree, and whether it is a jet.
    """

    def __init__(
        self, formula: Formula, dtype: Any, active: frozenset[str], callers: tuple[FunctionType, ...] = ()
    ) -> None:
        self._formula, self._dtype, self._callers = formula, dtype, callers
        self._active, self._jets_given = set(active), active
        self._namespace: dict[str, Any] = {"__float32": float32, "__float64": float64, "__range": range, "__abs": abs}
        self._suffix = "_32" if dtype is float32 else ""
        self._local = set(formula.arguments)
        for node in ast.walk(formula.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._local.add(node.id)
        self._known = self._visible_names()
        self.returns_jet = False  # known once it is translated

    def scalar(self) -> Any:
        """The compiled formula. It has the user's name and module, and a file's and lines for tracebacks."""
        formula, before, body = self._formula, -1, list[ast.stmt]()
        while len(self._active) != before:  # a name is active once anything active is assigned to it: until nothing changes
            before = len(self._active)
            self._set = set(formula.arguments)
            body = self._block(formula.tree.body)
        if not _always_returns(formula.tree.body):
            formula.fail(None, "Some path through it returns nothing.", "End every branch with a return, or the function.")
        lifted = [name for name in formula.arguments if name in self._active - self._jets_given]  # plain ones that become jets
        values = [self._lifted(ast.Name(f"__{name}", ast.Load())) for name in lifted]
        body = [*(ast.Assign([ast.Name(name, ast.Store())], value) for name, value in zip(lifted, values)), *body]
        given = [ast.arg(f"__{name}" if name in lifted else name) for name in formula.arguments]
        arguments = ast.arguments([], given, None, [], [], None, [])
        new = ast.FunctionDef(formula.name, arguments, body, [])
        if sys.version_info >= (3, 12):
            new.type_params = []
        module = ast.Module([ast.copy_location(new, formula.tree)], [])
        ast.increment_lineno(ast.fix_missing_locations(module), formula.first_line - 1)
        code = formula.function.__code__
        self._namespace["__name__"] = formula.function.__module__
        exec(compile(module, code.co_filename, "exec"), self._namespace)  # noqa: S102 - the user's own function
        function = self._namespace[formula.name]
        function.__qualname__ = f"{formula.function.__qualname__}.{'jets' if self._active else self._dtype.name}"
        function.__module__ = formula.function.__module__
        return inlined_scalar(function)

    # -- Statements -------------------------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        return [ast.copy_location(new, node) for new in self._new_statements(node)]

    def _new_statements(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                return [ast.Pass()]
            case ast.Return(value=ast.Tuple(elts=elements)):
                if len(elements) != 2:
                    self._formula.fail(node, f"It returns {len(elements)} values.", "Return a gradient and a hessian, or a loss.")
                return [ast.Return(ast.Tuple([self._number(*self._expression(e)) for e in elements], ast.Load()))]
            case ast.Return(value=value) if value is not None:
                return [ast.Return(self._result(*self._expression(value)))]
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return [self._assign(name, *self._expression(value))]
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                return self._assign_all(names, [self._expression(value) for value in values])
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                return [self._assign(name, *self._expression(value))]
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                both = ast.copy_location(ast.BinOp(ast.copy_location(ast.Name(name, ast.Load()), node), op, value), node)
                return [self._assign(name, *self._expression(both))]
            case ast.If(test=test, body=body, orelse=orelse):
                condition, before = self._test(test), set(self._set)
                first = self._block(body)
                after = None if _always_returns(body) else self._set
                self._set = before
                second = self._block(orelse)
                if _always_returns(orelse) and after is not None:
                    self._set = after
                elif after is not None:
                    self._set = self._set & after
                return [ast.If(condition, first, second)]
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=bounds), body=body, orelse=[]):
                numbers = [self._integer(bound) for bound in bounds]
                if not 1 <= len(numbers) <= 3 or numbers[2:] == [0]:
                    self._formula.fail(node, "range() takes one to three bounds, and no step of 0.", "Write the number of steps.")
                ends: list[ast.expr] = [ast.Constant(number) for number in numbers]
                loop = ast.Call(ast.Name("__range", ast.Load()), ends, [])
                count, before = f"__{name}", set(self._set)
                number = self._assign(name, self._cast(ast.Name(count, ast.Load())), False)
                steps = [number, *self._block(body)]
                self._set = self._set if range(*numbers) else before  # without a step nothing is set
                return [ast.For(ast.Name(count, ast.Store()), loop, steps, [])]  # type: ignore[call-arg,unused-ignore]
        self._formula.fail(node, "This statement cannot be compiled into a kernel.", f"{ALLOWED}.")

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [line for statement in body for line in self._statement(statement)]

    def _assign(self, name: str, value: ast.expr, is_jet: bool) -> ast.stmt:
        self._set.add(name)
        if is_jet:
            self._active.add(name)
        lifted = value if is_jet or name not in self._active else self._lifted(value)
        return ast.Assign([ast.Name(name, ast.Store())], lifted)

    def _assign_all(self, targets: list[ast.expr], values: list[tuple[ast.expr, bool]]) -> list[ast.stmt]:
        """a, b = x, y: all values are there before any name changes."""
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if len(names) < len(targets):
            self._formula.fail(targets[0], "Only plain names can be assigned to.", f"{ALLOWED}.")
        first: list[ast.stmt] = [
            ast.Assign([ast.Name(f"__new_{name}", ast.Store())], value) for name, (value, _) in zip(names, values)
        ]
        return [*first, *(self._assign(n, ast.Name(f"__new_{n}", ast.Load()), jet) for n, (_, jet) in zip(names, values))]

    def _result(self, value: ast.expr, is_jet: bool) -> ast.expr:
        self.returns_jet |= is_jet
        return self._lifted(value) if self._active and not is_jet else value

    # -- Expressions ------------------------------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> tuple[ast.expr, bool]:
        new, is_jet = self._new_expression(node)
        return ast.copy_location(new, node), is_jet

    def _new_expression(self, node: ast.expr) -> tuple[ast.expr, bool]:
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return self._cast(node), False
            case ast.Name(id=name) if name in self._local:
                if name not in self._set:
                    self._formula.fail(node, f"{name!r} may not be set here.", "Give it a value on every path before.")
                return ast.Name(name, ast.Load()), name in self._active
            case ast.Name() | ast.Attribute():
                return self._constant(node), False
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value, is_jet = self._expression(operand)
                return (self._call("jet_neg", value) if is_jet else ast.UnaryOp(ast.USub(), value)), is_jet
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._expression(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return self._operation(OPERATORS[type(op)], op, self._expression(left), self._expression(right))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                (first, is_first), (second, is_second) = self._expression(body), self._expression(orelse)
                if is_first or is_second:
                    first, second = (v if j else self._lifted(v) for v, j in ((first, is_first), (second, is_second)))
                return ast.IfExp(self._test(test), first, second), is_first or is_second
            case ast.Call(func=called, args=given, keywords=[]):
                return self._called(node, self._value_of(called), [self._expression(argument) for argument in given])
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return self._cast(self._test(node)), False  # 1 or 0
            case ast.BoolOp():
                self._formula.fail(node, f"{ast.unparse(node)!r} is used as a number.", "Write a if condition else b.")
        self._formula.fail(node, f"{ast.unparse(node)!r} cannot be compiled into a kernel.", f"{ALLOWED}.")

    def _operation(
        self, name: str, op: ast.operator, left: tuple[ast.expr, bool], right: tuple[ast.expr, bool]
    ) -> tuple[ast.expr, bool]:
        (first, is_first), (second, is_second) = left, right
        if name == "power":
            return self._power(first, is_first, second, is_second)
        if not (is_first or is_second):
            return ast.BinOp(first, op, second), False
        if name == "mul" and not is_second:
            return self._call("jet_scale", first, second), True
        if name == "mul" and not is_first:
            return self._call("jet_scale", second, first), True
        first, second = (v if j else self._lifted(v) for v, j in (left, right))
        return self._call(f"jet_{name}", first, second), True

    def _power(self, base: ast.expr, is_jet: bool, exponent: ast.expr, varies: bool) -> tuple[ast.expr, bool]:
        match exponent:
            case ast.Call(args=[ast.Constant(value=2)]):  # as _cast makes it
                return self._call("jet_square" if is_jet else "square", base), is_jet
        if varies:
            return self._call("jet_power_of", base if is_jet else self._lifted(base), exponent), True
        return (self._call("jet_power", base, exponent), True) if is_jet else (self._call("power", base, exponent), False)

    def _called(self, node: ast.Call, function: Any, given: list[tuple[ast.expr, bool]]) -> tuple[ast.expr, bool]:
        name = KNOWN.get(function) if callable(function) and getattr(function, "__hash__", None) else None
        values, is_jet = [value for value, _ in given], any(jet for _, jet in given)
        if name == "number" and len(given) == 1:
            return given[0]
        if name in UNARY and len(given) == 1:
            if not is_jet and name == "abs":
                return ast.Call(ast.Name("__abs", ast.Load()), values, []), False
            return self._call(f"jet_{name}" if is_jet else name, *values), is_jet
        if name == "power" and len(given) == 2:
            return self._power(*given[0], *given[1])
        if name in ("larger", "smaller") and len(given) >= 2:
            result = given[0]
            for value, jet in given[1:]:
                both = [v if j or not is_jet else self._lifted(v) for v, j in (result, (value, jet))]
                result = self._call(f"jet_{name}" if is_jet else name, *both), is_jet
            return result
        if isinstance(function, FunctionType) and name is None:
            inner = read_formula(function)
            if len(given) != len(inner.arguments):
                self._formula.fail(node, f"{inner.name} takes {len(inner.arguments)} arguments, got {len(given)}.", "Give all.")
            active = frozenset(argument for argument, (_, jet) in zip(inner.arguments, given) if jet)
            if inner.returns_pair:
                self._formula.fail(node, f"{inner.name} returns two numbers.", "Only the formula itself may return a pair.")
            if function in (self._formula.function, *self._callers):
                self._formula.fail(node, f"{inner.name} calls itself.", "Use a for loop over range().")
            place = f"__{inner.name}_{len(self._namespace)}"
            callers = (*self._callers, self._formula.function)
            self._namespace[place] = _Translation(inner, self._dtype, active, callers).scalar()
            return ast.Call(ast.Name(place, ast.Load()), values, []), is_jet
        self._formula.fail(node, f"{ast.unparse(node.func)}() cannot be compiled into a kernel.", f"{ALLOWED}.")

    def _test(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                values = [self._number(*self._expression(value)) for value in (left, *others)]
                if all(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)) for op in ops):
                    return ast.Compare(values[0], ops, values[1:])
            case ast.BoolOp(op=op, values=values):
                return ast.BoolOp(op, [self._test(value) for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ast.UnaryOp(ast.Not(), self._test(operand))
            case _:
                value = self._number(*self._expression(node))
                return ast.Compare(value, [ast.NotEq()], [self._cast(ast.Constant(0))])
        self._formula.fail(node, f"{ast.unparse(node)!r} cannot be compiled into a kernel.", f"{ALLOWED}.")

    def _integer(self, node: ast.expr) -> int:
        """A bound of range()."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._integer(node.operand)
        value = getattr(node, "value", None)
        if isinstance(node, ast.Attribute) or isinstance(node, ast.Name) and node.id not in self._local:
            value = self._value_of(node)
        if not isinstance(value, (int, np.integer)):
            self._formula.fail(node, f"range() needs whole constants, not {ast.unparse(node)!r}.", "Write the number of steps.")
        return int(value)

    def _number(self, value: ast.expr, is_jet: bool) -> ast.expr:
        return ast.Subscript(value, ast.Constant(0), ast.Load()) if is_jet else value

    def _lifted(self, value: ast.expr) -> ast.expr:
        return self._call("jet", value)

    def _cast(self, value: ast.expr) -> ast.expr:
        return ast.Call(ast.Name("__float32" if self._dtype is float32 else "__float64", ast.Load()), [value], [])

    def _call(self, name: str, *arguments: ast.expr) -> ast.expr:
        """A call of kernels/formulas.py, of its float32 function in float32."""
        own = name if name in ("larger", "smaller") or name.startswith("jet") else name + self._suffix
        self._namespace[f"__{own}"] = getattr(formulas, own)  # no name that a user would take
        return ast.Call(ast.Name(f"__{own}", ast.Load()), list(arguments), [])

    # -- The user's names -------------------------------------------------------------------------------------------

    def _visible_names(self) -> dict[str, Any]:
        function = self._formula.function
        cells = zip(function.__code__.co_freevars, function.__closure__ or ())
        closure = {}
        for name, cell in cells:
            try:
                closure[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        return {**vars(builtins), **function.__globals__, **closure}

    def _value_of(self, node: ast.expr) -> Any:
        """What a name, or an attribute of a module, stands for."""
        match node:
            case ast.Name(id=name) if name in self._known and name not in self._local:
                return self._known[name]
            case ast.Attribute(value=value, attr=name):
                owner = self._value_of(value)
                if isinstance(owner, ModuleType) and hasattr(owner, name):
                    return getattr(owner, name)
        self._formula.fail(node, f"{ast.unparse(node)!r} is not known where the function is defined.", "Define it before.")

    def _constant(self, node: ast.expr) -> ast.expr:
        value = self._value_of(node)
        if not isinstance(value, Number):
            what = f"{ast.unparse(node)!r} is {type(value).__name__}, not a number"
            self._formula.fail(node, f"{what}.", "A formula sees one row: numbers, and functions of numbers.")
        return self._cast(ast.Constant(float(value)))
