"""The grammar of nvFuser's `Segmented_Fusion` text, letter by letter, in both dialects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

SCHEDULERS = [
    "no_op",
    "pointwise",
    "reduction",
    "inner_persistent",
    "outer_persistent",
    "inner_outer_persistent",
    "transpose",
    "matmul",
    "expr_eval",
    "resize",
    "greedy",
    "communication",
    "cutlass",
    "none",
]
TYPES = [
    "bool",
    "double",
    "float",
    "__half",
    "__bfloat",
    "__e4m3",
    "__e5m2",
    "__e8m0",
    "__e2m1",
    "__e2m1_x2",
    "nvfuser_index_t",
    "int8_t",
    "int16_t",
    "int",
    "int64_t",
    "uint8_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "std::complex<float>",
    "std::complex<double>",
]
INFIX = [
    "+",
    "-",
    "*",
    "/",
    "%",
    "<<",
    ">>",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "&&",
    "||",
    "&",
    "|",
    "^",
]


def _any(words: list[str]) -> str:
    return "(?:" + "|".join(map(re.escape, sorted(words, key=len, reverse=True))) + ")"


TYPE = _any(TYPES)
NUMBERS = r"\{\d+(?:, \d+)*\}"
SCALAR = r"(?:[bdfic]\d+|f4x2_\d+)"
REAL = r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf|nan)"
LITERAL = rf"(?:true|false|-?\d+|{TYPE}\({REAL}(?:,{REAL})?\))"
# Extents: a number, a symbol, or an expression in parentheses.
EXTENT = r"(?:\d+|i\d+|\( [^{}\[\]]+ \))"
DOMAIN = rf"[irb]S\d+\{{{EXTENT}(?: ex {EXTENT})?\}}"


@dataclass(frozen=True)
class Dialect:
    """What the two dialects write differently."""

    tensor: str
    margin: str
    flags: str
    expand: str
    view: str

    @property
    def value(self) -> str:
        """Return a tensor, a scalar or a literal."""
        return f"(?:{self.tensor}|{LITERAL}|{SCALAR})"


DIALECTS = {
    "2024": Dialect(
        rf"T\d+_[gl]\[ (?:{DOMAIN}(?:, {DOMAIN})* )?\]", "", "",
        rf", \{{{EXTENT}(?:, {EXTENT})*\}}",
        "view",
    ),
    "head": Dialect(
        rf"T\d+_[gl]_{TYPE}\[(?:{DOMAIN}(?:, {DOMAIN})*)?\]", "  ",
        r", flags = \{(?:true|false)(?:, (?:true|false))*\}", "", "reshape",
    ),
}  # fmt: skip


def expressions(dialect: Dialect) -> dict[str, str]:
    """Return the form of each kind of expression, without the end of its last line."""
    t, v = dialect.tensor, dialect.value
    infix, size = _any(INFIX), rf"(?:{EXTENT}|{SCALAR}|-?\d+)"
    sizes = rf"\{{(?:{size}(?:, {size})*)?\}}"
    most = rf"(?:{v}|\w+ ?=[^\n]*|[\w.+-]+|\{{[^\n]*\}})"
    return {
        "scalar": rf"{SCALAR} = (?:{v} {infix} {v}|[-!~]?{v}|\w+\({v}(?:, {v})*\));",
        "unary": rf"{t}\n   = [-!~]{v};",
        "infix": rf"{t}\n   = {v}\n   {infix} {v};",
        "call": rf"{t}\n   = [\w:]+\({v}(?:\n  , {v})*\);",
        "reduction": rf"{t}\n   = reduction\( {t}, op = [\w|&]+, initial value = {LITERAL}, "
        rf"allreduce = false \)",
        "welford": rf"{t}\((?:Avg|Var|Count)\)(?:,\n{t}\((?:Avg|Var|Count)\))*\n"
        rf" = Welford \( {t}\(Avg\), \n  allreduce = false \)",
        "broadcast": rf"{t}\n   = (?:broadcast|squeeze)\( {t}{dialect.flags} \)",
        "expand": rf"{t} = expand\( {t}{dialect.expand} \)",
        "view": rf"{t} = {dialect.view}\( {t} \)",
        "set": rf"{t}\n   = Set(?:\.Permute)?\( {v}, cache_op=Streaming \)",
        "segment_set": rf"{t}\n   = SegmenterSet\( {t} \)",
        "pad": rf"{t}\n   = pad\( {t}, {sizes} \)",
        "slice": rf"{t}\n   = slice\( {t}, \{{ {sizes}(?: {sizes})* \}} \)",
        "cat": rf"{t}\n   = cat\( {t}(?:, {t})*, \d+ \)",
        "full": rf"{t}\n   = full\({sizes}, {v}\)",
        "iota": rf"{t}\n   = iota\({size}, {v}, {v}, {TYPE}\);",
        "random": rf"{t}\n   = rng_\w+\({sizes}(?:, {v})*, {TYPE}(?:, {v})*\);",
        "product": rf"{t}\n   = (?:matmul|linear)\({v}(?:,\n +{v})*\)",
        "lookup": rf"{t}\n   = (?:indexSelect|select|torchGather|takeAlongAxis|scatter)"
        rf"\( ?(?:\w+ = )?{t}(?:, (?:\w+ = )?(?:{v}|-?\d+|\w+))* \)",
        "sort": rf"{t} = argsort\( {t}, dim = -?\d+, descending = \w+, stable = \w+ \)",
        "topk": rf"\( {t}, {t} \) = topk\( {t}, {size}, "
        rf"dim = -?\d+, largest = \w+, sorted = \w+ \)",
        "scan": rf"{t}\n = scan\({t},\n dim=-?\d+,\n op_type=\w+,\n init={most}\)",
        # What nvFuser has no name for keeps ours, in the form of its calls.
        "other": rf"(?:{t}|\( {t}(?:, {t})* \))\n   = [a-z]\w*\( (?:{most}(?:, {most})*)? \)",
    }


@cache
def whole(style: str) -> re.Pattern[str]:
    """Return the pattern of a whole dump."""
    d = DIALECTS[style]
    scheduler, typed = _any(SCHEDULERS), rf"(?:{d.tensor}|{SCALAR}) {TYPE}"
    expression = "(?:" + "|".join(f"(?:{e})" for e in expressions(d).values()) + ")"
    lines = rf"(?:{d.margin}{typed}\n)*"
    if style == "head":
        group = scheduler + NUMBERS
        edge = rf"e\{{ {group} -> {group}\((?:{d.tensor}|{SCALAR})\) \}}"
        groups, edges = rf"(?:  {group}\n)+", rf"(?:  {edge}\n)*\n"
        ends = rf"group id: \d+\ninputs:\n{lines}outputs:\n{lines}\n\n"
    else:
        group = "g" + NUMBERS
        edge = rf"e\{{ {group}\n -> {group}\n\((?:{d.tensor}|{SCALAR})\) \}}"
        groups, edges = rf"(?:{group}\n\n)+", rf"(?:(?:{edge}\n\n)+|\n)"
        ends = rf"inputs: \n{lines}outputs: \n{lines}\n"
    detail = rf"g\{{(?:\({scheduler}\))?\n{ends}(?:{expression}\n\(\d+\)\n)*\}}\n\n"
    return re.compile(
        rf"Segmented_Fusion Dump: -- fusion segments:\nSegmented_Fusion\{{ \ngroups: \n{groups}"
        rf"edges: \n{edges}group details:\n(?:{detail})+\}} //Segmented_Fusion\n"
    )


def conforms(text: str, style: str) -> None:
    """Assert that a dump is a word of its dialect's grammar; say which expression is none."""
    d = DIALECTS[style]
    known = re.compile("|".join(f"(?:{e})" for e in expressions(d).values()))
    details = text.partition("group details:\n")[2]
    for block in re.findall(r"^g\{.*?^\}$", details, re.DOTALL | re.MULTILINE):
        body = re.split(r"\n\n+", block, maxsplit=1)[1]
        for piece in re.split(r"\n\(\d+\)\n", body)[:-1]:
            assert known.fullmatch(piece), f"no expression of {style}: {piece!r}"
    frame = re.sub(r"(?s)(?<=\n\n)(?:[T(]|[bdfic]\d).*?\n(?=\}\n\n)", "", text)
    assert whole(style).fullmatch(frame), f"no frame of {style}:\n{frame}"
