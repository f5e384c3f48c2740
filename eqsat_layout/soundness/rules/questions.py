"""The questions that rules ask of the host, found where the rules ask them.

In: a rule base and a vocabulary. Out: a lexicon with the host's answers, and the gaps: questions that no rule comes to
ask, that nobody answers, or whose answers can't be checked. Questions are the matches of the rules that ask, in a model
that has every op, view, pad and crop on something, in every format.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from eqsat_layout.egraph.expressions import Expr, variables
from eqsat_layout.egraph.op_answers import OpAnswers
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.soundness.rules.host_answers import why_unchecked
from eqsat_layout.soundness.rules.ill_typed import IllTypedError
from eqsat_layout.soundness.rules.lexicon import Host, Lexicon, Row, add_graphs_to_lexicon, add_lists, bare_lexicon
from eqsat_layout.soundness.rules.matching import Matcher
from eqsat_layout.soundness.rules.model import RuleModel
from eqsat_layout.soundness.rules.needed_answers import needs_answers
from eqsat_layout.soundness.rules.random_model import make_full_model
from eqsat_layout.soundness.rules.rule_base import RuleBase
from eqsat_layout.soundness.rules.terms import MeaninglessError
from eqsat_layout.soundness.rules.vocabulary import Vocabulary

MOST = 120
"""Questions of a kind about one vocabulary; which, is drawn."""
ROUNDS = 3
"""Of questions: some kinds rules ask only because of the answers to others."""

_NAMES = ("String", "i64")


class Questions:
    """Fills lexicons of one rule base. ``asked``: how many questions of each kind were put to the host."""

    def __init__(self, base: RuleBase, host: Host = OpAnswers):
        self._base, self._host = base, host
        self._rules = [rule for rule in base.rules if any(_asks(rule))]
        self._matcher = Matcher(base, self._rules)
        self._answered: dict[str, None] = {}
        self._answerable: tuple[str, ...] = ()
        self.asked: Counter[str] = Counter()

    def make_lexicon(
        self, vocabulary: Vocabulary, seed: int, rules: Sequence[Rule] = (), *, must: bool = True
    ) -> Lexicon:
        """The lexicon of a vocabulary: asks the host, but where that ``must`` not be and ``rules`` need no answer.

        Of many questions those come first that are about the ops of one instance of these rules.
        """
        lexicon = bare_lexicon(vocabulary, seed, self._host, self._base.builders)
        rng = random.Random(f"{vocabulary.shape} {seed}")
        add_lists(lexicon, rng)
        if not must and not needs_answers(rules, self._base, lexicon.rows):
            return lexicon
        lexicon.is_asked = True
        waiting = {table for rule in self._rules for table, _ in _asks(rule)}
        for _ in range(ROUNDS):
            model = make_full_model(lexicon, self._base, self._rules, seed, rules)
            found = {table: questions for table, questions in self._in(model).items() if table in waiting}
            instances = _names_of_instances(lexicon)
            for table, questions in found.items():
                drawn = rng.sample(sorted(questions), len(questions))
                drawn = sorted(drawn, key=lambda question: not _is_of_one(question, lexicon, instances))[:MOST]
                self.asked[table] += len(drawn)
                for question in drawn:
                    lexicon.ask(table, question)
            waiting -= set(found)
            if not found or not waiting:
                break
        add_graphs_to_lexicon(lexicon, rng)
        self._answered.update(lexicon.answered)
        self._answerable = lexicon.answers.questions
        return lexicon

    def gaps(self) -> list[str]:
        """What was never asked, or can't be; and what the host says that nobody can check."""
        declared = [name for name in self._base.relations if name.startswith("ask-")]
        asked_by = {table: rule for rule in self._base.rules for table, _ in _asks(rule)}
        found = []
        for table in dict.fromkeys([*declared, *self._answerable]):
            if table not in declared:
                found.append(f"({table} ...) is answered, but no rule file declares it")
            elif table not in self._answerable:
                found.append(f"({table} ...) is answered by nobody")
            elif table not in asked_by:
                found.append(f"({table} ...) is asked by no rule")
            elif not set(self._base.relations[table]) <= set(_NAMES):
                found.append(f"({table} ...) is asked of e-classes, for which no answers are made up")
            elif not self.asked[table]:
                rule = asked_by[table]
                found.append(f"({table} ...) was never asked: nothing matches the body of {rule}")
        for relation in self._answered:
            why = why_unchecked(relation, self._base)
            found += [f"({relation} ...), which the host answers, {why}"] if why else []
        return found

    def _in(self, model: RuleModel) -> dict[str, dict[Row, None]]:
        """All questions that rules ask in a model, in the order of the tables."""
        found: dict[str, dict[Row, None]] = {}
        for watched, rows in self._matcher.matches(model).items():
            names = [name for name, _ in watched.variables]
            for table, columns in _asks(watched.rule):
                if model.lexicon.answers.answerer(table) is None or not set(self._base.relations[table]) <= set(_NAMES):
                    continue
                used = {variable for column in columns for variable in variables(column)}
                places = [place for place, name in enumerate(names) if name in used]
                for cells in dict.fromkeys(tuple(row[place] for place in places) for row in rows):
                    scope = {names[place]: cell for place, cell in zip(places, cells, strict=True)}
                    try:
                        question = tuple(model.evaluator.term(column, scope) for column in columns)
                    except (IllTypedError, MeaninglessError):
                        continue  # said of the rule itself
                    found.setdefault(table, {})[question] = None
        return found


def _names_of_instances(lexicon: Lexicon) -> list[frozenset[str]]:
    """For each instance of a rule, the names of its ops, views, pads and crops."""
    parts = {part: name for name, part in lexicon.parts.items()}
    found = (one for instances in lexicon.vocabulary.instances.values() for one in instances)
    return [frozenset(cell if isinstance(cell, str) else parts[cell] for cell in one.values()) for one in found]


def _is_of_one(question: Row, lexicon: Lexicon, instances: Sequence[frozenset[str]]) -> bool:
    """Whether all ops, views, pads and crops in it are those of one instance of a rule."""
    names = {cell for cell in question if cell in lexicon.vocabulary.signatures or cell in lexicon.parts}
    return bool(names) and any(names <= instance for instance in instances)


def _asks(rule: Rule) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """The questions among the actions of a rule."""
    for action in rule.actions:
        if isinstance(action, tuple) and str(action[0]).startswith("ask-"):
            yield str(action[0]), action[1:]
