r"""What a model said: its text after its thinking, up to the mark of its end. Takes linear time on any text.

A mark of thinking is `<`, a prefix, a name, attributes, spaces and `>`: `<think>`, `<mm:think >`, `<thought type="x">`,
`</think>`, `<|begin_of_thought|>`; or a channel (`<|channel|>analysis`). The names are a table; a tag with any other
name is text, so that what it holds can be the answer.
"""

from __future__ import annotations

import re

_NAME = r"(?:think(?:ing)?|thoughts?|reason(?:ing)?|scratchpad)"
_PREFIX = r"(?:\w{1,12}:)?"
_ATTRIBUTES = r"(?:\s[^<>]{0,200}(?<!/))?"
_BAR = "[|\uff5c]"
_TURN = r"(?:im_end|eo[stmd](?:_id|_token)?|end(?:of|[_\u2581]of)?[_\u2581]?(?:text|turn|sentence|sequence|solution)?)"
_MARK = re.compile(
    rf"(?P<open><\|?{_PREFIX}(?:(?:begin_of|start)_)?{_NAME}{_ATTRIBUTES}\|?>|\[think\]|◁think▷"
    r"|<\|channel\|?>\s{0,3}(?:analysis|commentary|thought)\b)"
    rf"|(?P<close><(?:/\|?|\|/){_PREFIX}{_NAME}\s{{0,9}}\|?>|<\|end_(?:of_)?{_NAME}\|>|\[/think\]|◁/think▷"
    r"|<\|channel\|?>\s{0,3}final\b(?:<\|message\|>)?|<channel\|>)"
    rf"|(?P<end></s>|\[eos\]|\[/inst\]|<(?:eos|eot|end_of_(?:turn|text|utterance))>"
    rf"|<{_BAR}(?:{_TURN}(?:_token)?|return|user){_BAR}>"
    r"|(?:<\|im_start\|>|<start_of_turn>|<\|start_header_id\|>)\s{0,3}user)",
    re.IGNORECASE,
)
"""Where thinking begins and ends, and where the model ended or another turn begins."""
_INSIDE = re.compile(r"\s*[}$*`]")


def is_thinking_mark(text: str) -> bool:
    """Whether a text is a mark of where thinking begins or ends.

    >>> is_thinking_mark("</think>"), is_thinking_mark("</s>")
    (True, False)
    """
    mark = _MARK.fullmatch(text)
    return mark is not None and mark["end"] is None


def final_text(text: str, *, after_thinking: bool = True) -> str | None:
    """Return what a model said up to the mark of its end, after its thinking; None: it was still thinking.

    >>> final_text("<thinking> 4? </thinking> It is 5.</s> And 6."), final_text("<mm:think > It is 5")
    (' It is 5.', None)
    """
    start, thinks, inside = 0, False, []
    end = len(text)
    for mark in _MARK.finditer(text):
        if mark["end"] is None:
            thinks = mark["open"] is not None
            start = start if thinks or not after_thinking else mark.end()
        elif _INSIDE.match(text, mark.end()):
            inside.append(mark)  # within a box or a formula, which continues behind it
        elif not text[start : mark.start()].strip():
            start = mark.end()  # padding
        elif not (thinks and mark[0] == "<|end|>"):
            end = mark.start()
            break
    if thinks and after_thinking:
        return None
    for mark in reversed([mark for mark in inside if start <= mark.start() < end]):
        text, end = text[: mark.start()] + text[mark.end() :], end - len(mark[0])
    return text[start:end]
