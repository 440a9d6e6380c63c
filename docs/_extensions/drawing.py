"""A directive for pictures: `{drawing} MaxPool((2, 2))` shows that op at work, as the library draws it."""

from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive, directives

import lunette
from lunette.drawing import draw


class Drawing(Directive):
    """An op, written as its repr; with `:moving:` its window slides."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {"moving": directives.flag}

    def run(self) -> list[nodes.Node]:
        op = eval(self.arguments[0], dict(vars(lunette)))
        picture = draw(op, moving="moving" in self.options)
        return [nodes.raw("", f'<div class="drawing">{picture}</div>', format="html")]


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True}
