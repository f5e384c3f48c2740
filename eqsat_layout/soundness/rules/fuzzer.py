"""The rule fuzzer: whether what rules conclude is true.

In: rule files. Out: :class:`RuleReport` per rule, with the smallest counterexample found. Every match of a rule's body
in a random model is an instance; its actions must be true there. Nothing is skipped: a rule without instances, or with
something in it that has no meaning, is reported with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from eqsat_layout.egraph.op_answers import OpAnswers
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.egraph.rule_lint import lint
from eqsat_layout.egraph.rules import RuleSource, is_own
from eqsat_layout.soundness.rules.body_searches import searches
from eqsat_layout.soundness.rules.conclusions import Conclusions
from eqsat_layout.soundness.rules.counterexample import describe
from eqsat_layout.soundness.rules.host_answers import check_answers
from eqsat_layout.soundness.rules.instances import Instances
from eqsat_layout.soundness.rules.lexicon import Host, Lexicon
from eqsat_layout.soundness.rules.made_rows import made_names
from eqsat_layout.soundness.rules.matching import MOST, Matcher
from eqsat_layout.soundness.rules.model import Row, RuleModel
from eqsat_layout.soundness.rules.needed_answers import names_its_ops
from eqsat_layout.soundness.rules.pace import Pace
from eqsat_layout.soundness.rules.promising import Promise
from eqsat_layout.soundness.rules.questions import Questions
from eqsat_layout.soundness.rules.random_model import make_model, make_narrow_model
from eqsat_layout.soundness.rules.remarks import never_false, never_held, never_true, remarks_on
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport, RuleReport, in_file_order, side_by_side
from eqsat_layout.soundness.rules.rule_base import RuleBase, claims_anything, read_rule_base
from eqsat_layout.soundness.rules.terms import MeaninglessError
from eqsat_layout.soundness.rules.unmatched import named_ops, other_operands, why_missing, why_never_matched
from eqsat_layout.soundness.rules.vocabulary import FAMILIES, make_vocabulary

CHECKED = 400
"""Instances of one rule that are checked in one model; which, is drawn."""
DESCRIBED = 5
"""Counterexamples of one rule in one model that are put into words; the smallest is kept."""
TOGETHER_EVERY, USERS_TOGETHER_EVERY = 2, 3
"""Models in one of which all rules run together: of the package, and of somebody's own."""
ASKED_EVERY = 6
"""Models in one of which the host is asked all that rules ask, for rules of somebody's own that need no answer and
name their ops."""
FEW_RULES = 24
"""Up to so many rules, models are made with more terms of each; more of somebody's own are fuzzed in groups."""
NARROW = 1
"""Models of the fuzzed rules' own terms after each other one, for a file of somebody's own: these take a fifth of its
time, and hold as many draws of elements."""
VOCABULARIES = 3
"""Vocabularies per family of shapes."""

Progress = Callable[[FuzzReport, float], None]
"""Called with what was found so far and the share of the work that is done."""


def fuzz_rules(
    paths: Sequence[RuleSource],
    effort: Effort | None = None,
    seed: int = 0,
    only: Callable[[Rule], bool] = lambda rule: True,
    progress: Progress = lambda found, share: None,
    host: Host = OpAnswers,
) -> FuzzReport:
    """Fuzzes the rules of ``paths``: all files and rules that make up a rule base, the package's own first.

    ``only`` picks those that are reported, ``host`` answers what rules ask. Raises
    :class:`~eqsat_layout.errors.RuleError` for files that can't be read.
    """
    base = read_rule_base(paths)
    effort = effort or Effort()
    groups = in_groups([rule for rule in base.rules if only(rule)], effort)
    done: list[FuzzReport] = []
    for number, group in enumerate(groups):
        waiting = FuzzReport([RuleReport(rule) for later in groups[number + 1 :] for rule in later], seed)

        def group_progress(found: FuzzReport, share: float, waiting: FuzzReport = waiting) -> None:
            progress(side_by_side([*done, found, waiting]), (len(done) + share) / len(groups))

        done.append(Fuzzer(base, group, seed, host=host).run(effort, group_progress))
    return side_by_side(done)


def in_groups(rules: Sequence[Rule], effort: Effort) -> list[Sequence[Rule]]:
    """The rules as they are, or in groups of few of which the models are made, where these are counted by rules: among
    many of somebody's own those that match by chance alone would be looked at."""
    if effort.at_most is None or len(rules) <= FEW_RULES:
        return [rules]
    count = -(-len(rules) // FEW_RULES)
    return [rules[len(rules) * n // count : len(rules) * (n + 1) // count] for n in range(count)]


class Fuzzer:
    """Checks ``rules``, which need not be those of ``base``, in models of ``base``.

    ``until_caught``: a rule that failed once is left alone from then on.
    """

    def __init__(
        self,
        base: RuleBase,
        rules: Iterable[Rule],
        seed: int = 0,
        *,
        until_caught: bool = False,
        host: Host = OpAnswers,
    ):
        self._base, self._seed, self._until_caught = base, seed, until_caught
        chosen = list(rules)
        self._is_users = host is OpAnswers and not any(is_own(rule.command) for rule in chosen)
        limits = MOST if self._is_users else None
        self._matcher = Matcher(base, chosen, guards=not until_caught and len(chosen) <= FEW_RULES, limits=limits)
        self._questions = Questions(base, host)
        self._found = FuzzReport([], seed)
        self._every = USERS_TOGETHER_EVERY if self._is_users else TOGETHER_EVERY
        self._lexicons: dict[Any, Lexicon] = {}
        self._filled: set[str] = set()
        self._decided: set[str] = set()
        self._wanted = sorted(set(_named_ops(base)))
        fuzzed = [watched.rule for watched in self._matcher.watched]
        self._sought = fuzzed if len(fuzzed) <= FEW_RULES else []
        sought = [(rule, key, one) for rule in self._sought for key, one in searches(base, rule)]
        promises = {key: Promise(base, rule) for rule, key, _ in sought}
        self._instances = Instances({key: one for _, key, one in sought}, promises)
        self.reports = [RuleReport(watched.rule) for watched in self._matcher.watched]
        self._refused = [RuleReport(rule, trouble=why) for rule, why in self._matcher.refused]

    def run(self, effort: Effort, progress: Progress = lambda found, share: None, first: int = 0) -> FuzzReport:
        """Makes and checks models, from number ``first`` on, until the effort is spent."""
        start = time.perf_counter()
        models = 0
        pace = Pace(effort, self.reports, lambda rule: claims_anything(rule, self._base))
        while True:
            seconds = time.perf_counter() - start
            share = pace.share(seconds, are_wrong_together=bool(self._found.false_merges))
            progress(self._so_far(models, seconds), share)
            if share >= 1:
                break
            pace.begins_model()
            model = self.model(first + models)
            self.check(model)
            self._check_narrow(model.lexicon, first + models)
            if not self._until_caught and not self._is_users:
                answers, wrong = check_answers(model)
                self._found.answers += answers
                self._found.wrong_answers += [f"{line} (seed {self._seed}, model {models})" for line in wrong]
            if models % self._every == 0 and not any(r.failures for r in self.reports):
                compared, wrong = self._matcher.together(model)
                self._found.compared += compared
                if wrong and not self._found.false_merges:
                    wrong = [f"{wrong[0]}; {self._blamed(model)}", *wrong[1:]]
                self._found.false_merges += [f"{line} (seed {self._seed}, model {models})" for line in wrong[:3]]
            models += 1
            if self._until_caught or self._is_users:
                pace.vain |= self._vain()
                self._leave_decided(pace.vain)
        for report in self.reports:
            if not report.instances and not report.trouble:
                report.trouble = report.not_made or self._why_none(report.rule)
            report.remarks = tuple(self._remarks(report, effort))
        found = self._so_far(models, time.perf_counter() - start)
        return replace(found, gaps=self._questions.gaps(), attributes=self._attributes())

    def _so_far(self, models: int, seconds: float) -> FuzzReport:
        return replace(
            self._found,
            rules=in_file_order([*self.reports, *self._refused]),
            models=models,
            seconds=seconds,
            crashes=[crash for lexicon in self._lexicons.values() for crash in lexicon.crashes],
            unread=[str(unread) for unread in self._base.unread],
        )

    def _attributes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for lexicon in self._lexicons.values():
            for name, choices in lexicon.vocabulary.attributes.items():
                found[name] = max(choices, found.get(name, 0))
        return found

    def _remarks(self, report: RuleReport, effort: Effort) -> Iterator[str]:
        if not is_own(report.rule.command):
            yield from lint(report.rule)
        wanted = effort.cases if effort.seconds is None else 0
        yield from (never_held(want, why) for want, why in report.not_held.items() if why)
        if not report.failures:
            yield from remarks_on(report.rule, self._base, report.instances, wanted)
            for (key, guard), count in self._matcher.unguarded.items():
                if key == report.rule.key and report.matches and count <= report.matches:
                    yield never_false(guard)

    def _blamed(self, model: RuleModel) -> str:
        """The rules that it takes, of those that are fuzzed, for a model in which all together are wrong."""
        blamed = self._sought
        for rule in self._sought:
            rest = [other for other in blamed if other is not rule]
            blamed = rest if self._wrong_with(rest, model) else blamed
        return f"from {' and '.join(map(str, blamed))}" if blamed else "from none of the rules that are fuzzed alone"

    def _wrong_with(self, rules: Sequence[Rule], model: RuleModel) -> bool:
        """Whether something is wrong where of the fuzzed rules only these run."""
        left_out = [rule for rule in self._sought if rule not in rules]
        commands = {id(rule.command) for rule in left_out} - {id(rule.command) for rule in rules}
        base = replace(
            self._base,
            rules=[rule for rule in self._base.rules if rule not in left_out],
            commands=[command for command in self._base.commands if id(command) not in commands],
        )
        return bool(Matcher(base, []).together(model)[1])

    def model(self, number: int) -> RuleModel:
        """The model of that number: the same for the same seed."""
        shape = FAMILIES[number % len(FAMILIES)]
        variant = (number // len(FAMILIES)) % VOCABULARIES
        known = self._lexicons.get((shape, variant))
        if known is None:
            are_named = names_its_ops(self._sought)
            asked_every = ASKED_EVERY if are_named else self._every
            must = not (self._is_users and self._sought) or number % asked_every == 0
            others = must or number % self._every == 0 or not are_named
            vocabulary = make_vocabulary(shape, variant + self._seed, self._wanted, self._instances, others=others)
            known = self._questions.make_lexicon(vocabulary, variant + self._seed, self._sought, must=must)
            self._lexicons[shape, variant] = known
        return make_model(known, self._base, self._seed * 1_000_003 + number, self._sought)

    def _leave_decided(self, vain: Collection[str]) -> None:
        """Rules that are known to be wrong, or that have no instance in any model, are looked for no longer: what they
        would take is left for the others."""
        self._decided = {report.rule.key for report in self.reports if report.failures}
        self._sought = [rule for rule in self._sought if rule.key not in self._decided and rule.key not in vain]
        self._instances.keep({key for rule in self._sought for key, _ in searches(self._base, rule)})

    def _vain(self) -> set[str]:
        """The keys of rules that no model can have an instance of: nothing more is made for them."""
        lexicons = list(self._lexicons.values())
        waiting = [report.rule for report in self.reports if not report.matches]
        return {rule.key for rule in waiting if why_never_matched(rule, self._base, lexicons)}

    def _check_narrow(self, lexicon: Lexicon, number: int) -> None:
        """Checks models of the rules' own terms."""
        for again in range(NARROW if self._is_users and self._sought else 0):
            if all(report.failures for report in self.reports):
                break
            seed = self._seed * 1_000_003 + number * NARROW + again
            self.check(make_narrow_model(lexicon, self._base, seed, self._sought))

    def check(self, model: RuleModel) -> None:
        """Checks the instances of all rules in one model."""
        self._filled.update(model.facts)
        found = self._matcher.matches(model)
        for report, (watched, rows) in zip(self.reports, found.items(), strict=True):
            report.matches += len(rows)
            if not report.trouble and report.rule.key not in self._decided:
                self._check_rule(model, report, [name for name, _ in watched.variables], rows)

    def _check_rule(self, model: RuleModel, report: RuleReport, names: Sequence[str], rows: Sequence[Row]) -> None:
        check = Conclusions(model, report.rule, report.not_held)
        described = 0
        for row in rows if len(rows) <= CHECKED else model.rng.sample(rows, CHECKED):
            scope = dict(zip(names, row, strict=False))
            try:
                wrong = check.wrong(scope)
            except MeaninglessError as error:
                report.trouble = str(error)
                return
            if wrong is None and check.not_made:
                report.not_made, check.not_made = check.not_made, ""
                continue
            report.instances += 1
            if wrong is None:
                continue
            report.failures += 1
            if described < DESCRIBED:
                described += 1
                shown = describe(model, report.rule, scope, *wrong, seed=self._seed)
                best = report.counterexample
                if best is None or shown.size < best.size:
                    report.counterexample = shown
            if self._until_caught:
                return

    def _why_none(self, rule: Rule) -> str:
        lexicons = list(self._lexicons.values())
        why = why_never_matched(rule, self._base, lexicons) or why_missing(rule, lexicons)
        why = why or self._instances.why_none(rule.key) or other_operands(rule, lexicons)
        if why:
            return f"no instance: {why}"
        guards = [guard for (key, guard), count in self._matcher.unguarded.items() if key == rule.key and count]
        if guards:
            rows = [lexicon.rows for lexicon in lexicons]
            return f"no instance: {' and '.join(never_true(guard, rule, rows) for guard in guards)}"
        heads = [str(fact[0]) for fact in rule.body if isinstance(fact, tuple)]
        empty = [head for head in heads if head in self._base.meanings and head not in self._filled]
        if empty:
            return f"no instance: ({empty[0]} ...) has no rows in any random model"
        return "no instance: nothing in the random models matches its body"


def _named_ops(base: RuleBase) -> Iterator[str]:
    for rule in base.rules:
        yield from named_ops(rule)
        yield from (name for name in made_names(rule) if name)
