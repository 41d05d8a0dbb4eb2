"""The facts of an error -> one sentence that explains it, for the usual errors.

Pure: records in, text out.  The patterns are TensorFlow 2.16 to 2.21's and Keras 3's own wording, so an error that
they do not fit stays unexplained, never wrongly explained.
"""

import re
from collections.abc import Callable, Sequence

from tfdb import explanations_data, syntax
from tfdb.explain import Facts, Place
from tfdb.misuses import misuse


def explain(facts: Facts) -> str | None:
    """One sentence on why this error came about, or None for an error that is none of the usual ones."""
    for rule in RULES:
        sentence = rule(facts)
        if sentence:
            return sentence
    return None


def listed(lines: Sequence[int]) -> str:
    """`line 17` or `lines 17 and 19`."""
    numbers = [str(line) for line in lines]
    return f"line {numbers[0]}" if len(numbers) == 1 else f"lines {', '.join(numbers[:-1])} and {numbers[-1]}"


def shapes(facts: Facts) -> str | None:
    """Two shapes that do not go together: both, and where each came from."""
    patterns = (
        r"Incompatible shapes: (\[[^\]]*\]) vs\.? (\[[^\]]*\])",
        r"variable shape (\([^)]*\)), and the assigned value shape (\([^)]*\))",
        r"Shapes are (\[[^\]]*\]) and (\[[^\]]*\])",
        r"target\.shape=(\([^)]*\)), output\.shape=(\([^)]*\))",
        r"with input shapes: (\[[^\]]*\]), (\[[^\]]*\])",
        r"(?:In\[0\]|a\.shape)[:=]? ?(\[[^\]]*\]),? (?:In\[1\]|b\.shape)[:=]? ?(\[[^\]]*\])",
        r"(?:[Ss]hapes?) (\(?[\[(][^\])]*[\])]\)?) and (\(?[\[(][^\])]*[\])]\)?) (?:are|must|do)",
        r"shape\[0\] = (\[[^\]]*\]) vs\.? shape\[\d+\] = (\[[^\]]*\])",
        r"required broadcastable shapes()()",
        r"Input to reshape is a tensor with (\d+) values, but the requested shape (?:has|requires a multiple of) (\d+)",
        r"Matrix size-incompatible: In\[0\]: (\[[^\]]*\]), In\[1\]: (\[[^\]]*\])",
        r"must have the same (?:first dimension|shape|size)[^\[]*(\[[^\]]*\])[^\[]*(\[[^\]]*\])",
        r"Dimensions must be equal, but are (\d+) and (\d+)",
    )
    what = facts.op or "This line"
    if found := re.search(r"Inconsistent shapes: saw (\([^)]*\)) but expected (\([^)]*\))", facts.message):
        return f"The function of the loop gives shape {found[1]} and must give {found[2]}, as the initial value has."
    source = f" ({facts.operands[0].told})" if facts.operands else ""
    if found := re.search(r"Cannot reshape a tensor with (\d+) elements to shape (\[[^\]]*\])", facts.message):
        return f"{what} got {found[1]} elements{source}, which cannot fill the shape {found[2]}."
    if found := re.search(r"Dimension size must be evenly divisible by (\d+) but is (\d+)", facts.message):
        whole = max(facts.operands, key=lambda operand: len(operand.shape or ()), default=None)
        source = f" of {whole.told}" if whole is not None else ""
        return f"{what} cannot divide a dimension of {found[2]}{source} into {found[1]} equal parts."
    found = next((found for pattern in patterns if (found := re.search(pattern, facts.message))), None)
    if found is None:
        return None
    if "reshape" in found[0]:
        several = "shapes of a multiple of" if "multiple" in found[0] else "a shape of"
        return f"{what} got {found[1]} elements{source}, which cannot fill {several} {found[2]} elements."
    both = " and ".join(operand.told for operand in facts.operands[:2])
    given = f"shapes {found[1]} and {found[2]}" if found[1] else "shapes"
    return f"{what} was given {given} that do not go together{': ' + both if both else ''}."


def index(facts: Facts) -> str | None:
    """An index outside its table: the position, the value, the table's size."""
    found = re.search(
        r"(\w+)(\[[\d, ]*\])? = (-?\d+|\[[-\d, ]+\]) is (?:not in|out of range) \[0, (\d+)\)", facts.message
    )
    if found:
        named = {operand.argument: operand for operand in facts.operands}
        name = named["indices"].name if "indices" in named else found[1]
        source = named.get("params") or named.get("resource") or named.get("input")
        table = f" ({source.text})" if source is not None and source.shape else ""
        return (
            f"{name}{found[2] or ''} is {found[3]}, but the table has {found[4]} rows{table}: "
            f"0 to {int(found[4]) - 1} are allowed. On a GPU or with jit_compile=True it would go unnoticed."
        )
    found = re.search(
        r"indices(\[[\d, ]*\]) = (\[[-\d, ]+\]) does not index into (?:param )?shape (\[[\d,]*\])", facts.message
    )
    if found:
        return f"indices{found[1]} are {found[2]}, outside of the shape {found[3]} they index into."
    found = re.search(r"[Ll]abel value of (-?\d+) which is outside the valid range of \[0, (\d+)\)", facts.message)
    if found:
        return f"A label is {found[1]}, but there are {found[2]} classes: labels must be 0 to {int(found[2]) - 1}."
    found = re.search(r"slice index (-?\d+) of dimension (\d+) out of bounds", facts.message)
    if found:
        first = f" of {facts.operands[0].told}" if facts.operands else ""
        return f"Index {found[1]} is beyond the end of dimension {found[2]}{first}."
    return None


def leaked(facts: Facts) -> str | None:
    """A tensor that left its graph: the line that leaked it, the line that used it."""
    leak = facts.leak
    if leak is None:
        return None
    line = syntax.leaking_line(leak.text, leak.made.lineno, leak.expression) or leak.made.lineno
    kept = Place(leak.made.filename, line, leak.made.function)
    used = f"; {facts.place.short} uses it outside" if facts.place else ""
    return (
        f"{leak.expression} is a symbolic tensor of the graph of {leak.made.function}(): {kept.short} kept it while "
        f"the function was traced (made by line {leak.made.lineno}){used}. Return it from the function, or keep it in "
        "a tf.Variable."
    )


def late_variable(facts: Facts) -> str | None:
    """A variable made on a later trace."""
    if not re.search(
        r"singleton tf\.Variables|[Cc]reating variables on a non-first call|only supports singleton", facts.message
    ):
        return None
    where = f"{facts.place.short} makes" if facts.place else "The function makes"
    return (
        f"{where} a tf.Variable on a trace after the first, and only the first may (a function that makes variables is "
        "traced twice before it runs): make it once, outside the function, or behind `if self.v is None:`."
    )


def loop_variable(facts: Facts) -> str | None:
    """A loop variable whose shape, dtype or structure changes: the variable, and the line that changes it."""
    patterns = (
        (r"'([^']+)' has shape (.+?) before the loop, but shape (.+?) after one iteration", "shape"),
        (
            r"'([^']+)' has shape (.+?) (?:before the loop|after one iteration), which does not conform with "
            r"the shape invariant (.+?)\.$",
            "shape",
        ),
        (
            r"[Ii]nput tensor `([^`]+)` enters the loop with shape (.+?), but has shape (.+?) after one iteration",
            "shape",
        ),
        (r"'([^']+)' has dtype (\S+) before the loop, but dtype (\S+) after one iteration", "dtype"),
    )
    for pattern, kind in patterns:
        if found := re.search(pattern, facts.message):
            plain = kind == "shape" and "`" in found[0]
            return (changed_in_while if plain else changed_in_loop)(facts, kind, *found.groups())
    if found := re.search(r"'([^']+)' is None at the end of the iteration", facts.message):
        return f"{loop_head(facts, found[1])}: it is None at the end of an iteration ({loop_lines(facts, found[1])})."
    if found := re.search(r"'([^']+)' (?:is not allowed to be None|must be defined) before the loop", facts.message):
        name = returned(found[1])
        return f"{name} has no value before the loop{loop_line(facts)}: give it a tensor of its final dtype there."
    if found := re.search(r"'([^']+)' does not have the same nested structure after one iteration", facts.message):
        return f"{loop_head(facts, found[1])}: its structure changes in an iteration ({loop_lines(facts, found[1])})."
    return None


def changed_in_loop(facts: Facts, kind: str, name: str, before: str, after: str) -> str:
    """The sentence on a loop variable that changes."""
    line = facts.place.lineno if facts.place else 0
    changed = syntax.loop_stores(facts.text, line, name)
    by = f"{listed(changed)} {'grows it' if kind == 'shape' else 'turns it'}" if changed else "its body changes it"
    fix = (
        "let it vary with tf.autograph.experimental.set_loop_options(shape_invariants=...), or use a tf.TensorArray"
        if kind == "shape"
        else "cast it to one dtype"
    )
    return f"{name} enters the loop{loop_line(facts)} with {kind} {before} and leaves it with {after}: {by}; {fix}."


def changed_in_while(facts: Facts, kind: str, name: str, before: str, after: str) -> str:
    """The sentence on a variable of `tf.while_loop`, which the message knows by the tensor it began with only."""
    stores = syntax.while_stores(facts.text, facts.place.lineno) if facts.place else {}
    if not stores:
        return changed_in_loop(facts, kind, name, before, after)
    told, lines = next(iter(stores.items())) if len(stores) == 1 else (name, sorted(sum(stores.values(), [])))
    return (
        f"{told} enters the loop with {kind} {before} and leaves its body with {after}: {listed(lines)} changes it; "
        "let it vary with tf.while_loop's shape_invariants=, or use a tf.TensorArray."
    )


def loop_line(facts: Facts) -> str:
    """` of line 15`, where the loop is known."""
    loop = syntax.loop_at(facts.text, facts.place.lineno) if facts.place else None
    return f" of line {loop.lineno}" if loop is not None else ""


def loop_head(facts: Facts, name: str) -> str:
    """How a sentence on a loop variable begins."""
    return f"{returned(name)} does not keep its kind in the loop{loop_line(facts)}"


def loop_lines(facts: Facts, name: str) -> str:
    """The lines of the loop's body that change a name."""
    lines = syntax.loop_stores(facts.text, facts.place.lineno, name) if facts.place else []
    return listed(lines) if lines else "in its body"


def returned(name: str) -> str:
    """What the user calls one of AutoGraph's own names."""
    return "the return value" if name.startswith(("retval_", "do_return")) else name


def branch(facts: Facts) -> str | None:
    """A tensor `if` whose branches do not give the same: the branch and its line."""
    if found := re.search(r"'([^']+)' is None at the end of the (main|else) branch", facts.message):
        where = branch_lines(facts, found[1], found[2])
        return (
            f"{returned(found[1])} is None at the end of the {found[2]} branch{where} of "
            f"the tensor `if`{branch_line(facts)}: both branches must give it a tensor of the same dtype."
        )
    if found := re.search(r"'([^']+)' must also be initialized in the (main|else) branch", facts.message):
        other = "main" if found[2] == "else" else "else"
        return (
            f"{returned(found[1])} gets no value in the {found[2]} branch of the tensor `if`{branch_line(facts)}, but "
            f"one in the other{branch_lines(facts, found[1], other)}: give it one in both, or before."
        )
    if found := re.search(r"the (main|else) branch must also have a return statement", facts.message):
        lines = branch_lines(facts, "retval_", "main" if found[1] == "else" else "else")
        return (
            f"The {found[1]} branch of the tensor `if`{branch_line(facts)} returns nothing, the other a value{lines}: "
            "return a tensor from both, or after the `if`."
        )
    pattern = r"'([^']+)' has (dtype|shape) (\S+) in the main branch, but \2 (\S+?)\.? in the else branch"
    if found := re.search(pattern, facts.message):
        main, other = (branch_lines(facts, found[1], side) for side in ("main", "else"))
        return (
            f"{returned(found[1])} is {found[3]} in the main branch{main} and {found[4]} in the else branch{other} "
            f"of the tensor `if`{branch_line(facts)}: they must agree."
        )
    if found := re.search(
        r"'([^']+)' must have the same nested structure in the main and else branches", facts.message
    ):
        main, other = (branch_lines(facts, found[1], side) for side in ("main", "else"))
        return (
            f"{returned(found[1])} is built differently in the main branch{main} and the else branch{other} "
            f"of the tensor `if`{branch_line(facts)}: they must agree."
        )
    return None


def branch_line(facts: Facts) -> str:
    """` of line 14`, where the `if` is known."""
    found = syntax.branch_at(facts.text, facts.place.lineno) if facts.place else None
    return f" of line {found.lineno}" if found is not None else ""


def branch_lines(facts: Facts, name: str, side: str) -> str:
    """` (line 17)`: where one branch gives the name its value, or returns."""
    if facts.place is None:
        return ""
    if name.startswith(("retval_", "do_return")):
        lines = syntax.branch_returns(facts.text, facts.place.lineno, side == "else")
    else:
        lines = syntax.branch_stores(facts.text, facts.place.lineno, name, side == "else")
    return f" ({listed(lines)})" if lines else ""


def symbolic(facts: Facts) -> str | None:
    """Python asked a symbolic tensor for its value: no source for AutoGraph, or code that needs a value at tracing."""
    names = ", ".join(operand.text for operand in facts.operands[:3])
    tensor = f" ({names})" if names else ""
    function = facts.place.function if facts.place else "the function"
    if re.search(r"[Ss]ymbolic.*(not allowed|Python `bool`)|as a Python `?bool`?|[Ii]terating over", facts.message):
        what = "iterates over" if "terating" in facts.message else "asks for the truth of"
        if not facts.has_source:
            return (
                f"AutoGraph found no source of {function}(), so it ran as it is and Python {what} a symbolic "
                f"tensor{tensor}: put the function in a file, or use tf.cond and tf.while_loop."
            )
        return (
            f"{function}() {what} a symbolic tensor{tensor} where AutoGraph does not convert Python: code called by "
            "a library, under do_not_convert, in an assert with a message or a comprehension; use tf.cond or tf.where."
        )
    if re.search(
        r"has no attribute '(numpy|item|tolist)'|numpy\(\) is only|Cannot convert a symbolic tf\.Tensor", facts.message
    ):
        return (
            f"{function}() is traced into a graph, where a tensor{tensor} has no value yet: use tf ops, "
            "or wrap the Python code in tf.py_function."
        )
    return None


def dtypes(facts: Facts) -> str | None:
    """Two dtypes that do not go together: which tensor is which."""
    patterns = (
        r"Input '\w+' of '(\w+)' Op has type (\w+) that does not match (?:expected )?type (?:of )?(\w+)",
        r"Tensor conversion requested dtype ()(\w+) for Tensor with dtype (\w+)",
        r"cannot compute (\w+) as input #\d+.*? was expected to be a (\w+) tensor but is a (\w+) tensor",
        r"types? ()(\w+) and (\w+) (?:do not match|are not compatible)",
        r"Expected ()(\w+)(?:, but got|.*? passed parameter).*?'?(\w+)'?",
    )
    found = next((found for pattern in patterns if (found := re.search(pattern, facts.message))), None)
    if found is None:
        return None
    wanted = {found[2], found[3]}
    known = [operand for operand in facts.operands if operand.dtype in wanted]
    known = [operand for operand in known if operand.argument] or known or list(facts.operands)
    who = " and ".join(operand.told for operand in known[:4])
    op = f" ({found[1]})" if found[1] else ""
    hint = (
        "under a mixed_float16 policy make constants of the layer's compute_dtype, or tf.cast"
        if "float16" in wanted
        else "tf.cast one"
    )
    if wanted == {"int32", "int64"} and not {operand.dtype for operand in known} >= wanted:
        hint = (
            "row splits, sizes and counters must be of one type: cast to it (for a RaggedTensor, with_row_splits_dtype)"
        )
    return f"{found[2]} meets {found[3]} in one op{op}{': ' + who if who else ''}; {hint}."


def signature(facts: Facts) -> str | None:
    """A call that no signature of a loaded or signed function takes."""
    found = re.search(
        r"Can not cast TensorSpec\(shape=(.+?), dtype=tf\.(\w+).*?\) to TensorSpec\(shape=(.+?), dtype=tf\.(\w+)",
        facts.message,
    )
    if found:
        accepted = parameters(facts.message.split("for signature")[-1]) or f"{found[4]}{found[3]}"
        return f"The function takes one signature only, {accepted}; this call gives {found[2]}{found[1]}."
    lacking = re.search(
        r"missing a required argument: '(\w+)'.*?kwargs: \{(.*?)\} for signature: (.*)", facts.message, re.S
    )
    if lacking:
        wanted = parameters(lacking[3].split("->")[0])
        gives = ", ".join(re.findall(r"'(\w+)':", lacking[2])) or "none by name"
        return f"The function takes {wanted} by name; this call gives {gives} and no {lacking[1]}."
    if "Could not find matching concrete function" in facts.message:
        got, *options = re.split(r"Option \d+:", facts.message)
        accepted = " or ".join(argument_list(option) for option in options)
        return f"The loaded function takes {accepted}, and nothing else; this call gives {argument_list(got)}."
    found = re.search(r"(\w+)\(\) takes (\d+) positional arguments? but (\d+) (?:was|were) given", facts.message)
    if found and facts.elements:
        return (
            f"Each element of the dataset has {found[3]} components, and each is an argument of its own: "
            f"{found[1]}() must take {found[3]}, or *args."
        )
    return None


def parameters(text: str) -> str:
    """The parameters that TensorFlow lists in a signature, as `x: float32(None, 3), n: int32()`."""
    specs = re.findall(r"(\w+): TensorSpec\(shape=(.+?), dtype=tf\.(\w+)", text)
    return ", ".join(f"{name}: {dtype}{shape}" for name, shape, dtype in specs)


def argument_list(text: str) -> str:
    """The arguments that TensorFlow lists in a message, one a line, as `(x float32(None, 3), True)`."""
    items = []
    for item in re.findall(r"^ *\* (.*)$", text, flags=re.M):
        spec = re.search(r"shape=(.+?),? dtype=(?:tf\.)?(\w+)", item)
        items.append(f"{spec[2]}{spec[1]}" if spec else item.strip())
    return f"({', '.join(items)})"


def assertion(facts: Facts) -> str | None:
    """A check of the program's own, or of TensorFlow's, that did not hold."""
    if "assertion failed" not in facts.message:
        return None
    parts = [part.strip() for part in re.findall(r"\[([^\[\]]*)\]", facts.message.split("assertion failed")[1])]
    text = [part.rstrip(":") for part in parts if re.search(r"[A-Za-z]{3}", part) and not part.endswith("=")]
    pairs = list(zip(parts, parts[1:], strict=False))
    given = [(found[1], value) for head, value in pairs if (found := re.match(r"(.+) \(.*\) =$", head))]
    known = [operand for operand in facts.operands if operand.dtype not in ("string", "bool")]
    named = [operand.told for operand in known if not operand.name.startswith("data[")]
    values = "; ".join(f"{name} is {value}" for name, value in given)
    more = "; ".join(part for part in (values, " and ".join(named)) if part)
    said = "; ".join(dict.fromkeys(filter(None, text))) or facts.message.split("assertion failed")[1].strip(" :[].")
    return f"A check did not hold: {said}{f' ({more})' if more else ''}."


RULES: tuple[Callable[[Facts], str | None], ...] = (
    leaked, assertion, late_variable, loop_variable, branch, signature, index, misuse, explanations_data.explain,
    dtypes, symbolic, shapes,
)  # fmt: skip
