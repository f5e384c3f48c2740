"""The plan that the user gets.

In: what is known of it (:mod:`eqsat_layout.report.plan_record`). Out: :class:`Plan`, which explains and prints it. What
prints it is imported when it is printed: that takes a tenth of the time of planning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eqsat_layout.errors import EqsatError, did_you_mean
from eqsat_layout.report.plan_record import PlanRecord

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eqsat_layout.report.explain import Explanation
    from eqsat_layout.report.refusals import Refusals


@dataclass(frozen=True)
class Plan(PlanRecord):
    """The chosen module, what is known of it, and why it was chosen. Costs are modelled seconds of one run;
    ``lower_bound`` is proven. Printed, it is a table.

    ``explained`` and ``page`` make what :meth:`explain` and :meth:`html` give.
    """

    explained: Callable[[Plan], Explanation] | None = field(default=None, repr=False, compare=False)
    page: Callable[[str, Plan], str] | None = field(default=None, repr=False, compare=False)

    def why_not(self, op: str = "", layout: str = "") -> Refusals:
        """The layouts that did not go through ops whose name contains ``op``, and the algorithms that they were not
        offered, and why: a tuple that prints as a table; with ``layout`` those only whose name contains that. Worked
        out when asked for.

        Raises :class:`EqsatError` where no op has such a name, or nothing that is called so was refused.
        """
        if self.ops and not any(op in name for name in self.ops):
            raise EqsatError(f"no op of the program has {op!r} in its name; {did_you_mean(op, self.ops)}".rstrip("; "))
        from eqsat_layout.report.refusals import Refusals  # which prints, see the head

        found = [r for r in self.refusals() if op in r.op]
        refused = {r.layout or str(r.index_map) for r in found}
        if layout and not any(layout in name for name in refused):
            nearest = did_you_mean(layout, refused)
            raise EqsatError(f"no layout or algorithm with {layout!r} in its name was refused; {nearest}".rstrip("; "))
        return Refusals(r for r in found if layout in (r.layout or str(r.index_map)))

    def explain(self) -> Explanation:
        """Why each remaining transform stays, what it would cost to do without, how each op came to its layouts, and
        what becomes one kernel.

        Worked out when asked for: the extraction is solved once more per transform that stays.
        """
        from eqsat_layout.report.explain import Explanation  # which prints, see the head

        return Explanation((), ()) if self.explained is None else self.explained(self)

    def html(self, title: str = "Layout plan") -> str:
        """One self-contained page: the program before and after, layouts in colour, bytes, costs, bound and gap."""
        return "" if self.page is None else self.page(title, self)

    def __rich__(self) -> RenderableType:
        from eqsat_layout.report.plan_tables import plan_table  # which prints, see the head

        return plan_table(self)

    def __str__(self) -> str:
        from eqsat_layout.report.text import plain_text  # which prints, see the head

        return plain_text(self)

    def _repr_html_(self) -> str:
        from eqsat_layout.report.text import html_text  # which prints, see the head

        return html_text(self)
