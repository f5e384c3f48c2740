"""What the prover knows of functions besides the rules: sentences of logic, and where functions are partial.

In: nothing. Out: axioms by name, in the language of rule meanings.
"""

from __future__ import annotations

import re

PARTIAL = {
    "Op": (0, 1),
    "Get": (0, 1),
    "window": (0, 1),
    "lay": (0, 1),
    "pick": (0, 1),
    "drop": (0, 1),
    "cons": (0, 1),
    "nth-of": (0, 1),
    "graph": (0, 1),
    "node": (0, 2),
    "nodes": (0, 2),
    "Make": (0, 1, 2),
}
"""Functions that are not defined everywhere, and the arguments that decide it."""

AXIOMS = """
(= (head (Arg x r)) x)
(= (tail (Arg x r)) r)
(= (length (Arg x r)) (+ (length r) 1))
(= (drop a 0) a)
(is-cons (Arg x r))
(=> (and (ok (drop a i)) (is-cons (drop a i))) (= (pick a i) (head (drop a i))))
(=> (and (ok (drop a i)) (is-cons (drop a i))) (= (drop a (+ i 1)) (tail (drop a i))))
(=> (ok (pick (Arg x (End)) i)) (= i 0))

(=> (and (named k "pad") (named k "crop")) (false))
(=> (and (named k "pad") (named k "view")) (false))
(=> (and (named k "view") (named k "crop")) (false))
(=> (and (named k "pad") (ok (Op k a))) (= a (Arg (head a) (End))))
(=> (and (named k "crop") (ok (Op k a))) (= a (Arg (head a) (End))))
(=> (and (named k "view") (ok (Op k a))) (= a (Arg (head a) (End))))
(=> (and (named k "pad") (ok (at k x))) (= (window k (at k x)) x))

(> (added k) 0)
(=> (ok (window k x)) (= (extents x) (+ (inner k) (added k))))
(=> (ok (window k x)) (= (extents (window k x)) (inner k)))
(=> (and (named k "pad") (ok (at k x))) (= (extents x) (inner k)))
(=> (and (named k "pad") (ok (at k x))) (= (extents (at k x)) (+ (inner k) (added k))))
(=> (and (named k "crop") (ok (at k x))) (= (extents x) (+ (inner k) (added k))))
(=> (and (named k "crop") (ok (at k x))) (= (extents (at k x)) (inner k)))

(=> (fits f x) (= (extents x) (format-extents f)))
(=> (and (fits f x) (fits f y) (fits g x)) (fits g y))
(=> (and (ok (at k x)) (ok (at k y)) (fits f x)) (fits f y))
(=> (and (ok (at k x)) (ok (at k y)) (fits f (at k x))) (fits f (at k y)))
(fits-all "" (End))
(=> (ok (cons g hs)) (is-one g))
(=> (ok (cons g hs)) (= (list-length (cons g hs)) (+ (list-length hs) 1)))
(=> (and (ok (cons g hs)) (fits-all (cons g hs) (Arg x r))) (and (fits g x) (fits-all hs r)))
(=> (and (is-one g) (fits-all g (Arg x r))) (and (fits g x) (= r (End))))

(=> (ok (Get i y)) (is-tuple y))
(=> (and (ok (Get i y)) (is-tuple (Get i y))) (false))
(=> (ok (nth-of fs i)) (is-list fs))
(=> (and (ok (nth-of fs i)) (is-list (nth-of fs i))) (false))
(=> (and (fits f y) (is-list f)) (is-tuple y))
(=> (and (fits f y) (is-tuple y)) (is-list f))
(=> (and (fits fs y) (ok (Get i y))) (fits (nth-of fs i) (Get i y)))

(= (constants-named "") (End))
(= (constants-named (joined h (joined "," hs))) (Arg (Const h) (constants-named hs)))
(of-types (End) "")
(=> (and (of-type x t) (of-type y t)) (same-type x y))
(=> (and (of-type x t) (of-types r ts)) (of-types (Arg x r) (joined t (joined ";" ts))))
(=> (ok (lay f x)) (fits f x))
(=> (and (ok (lay f x)) (is-tuple x)) (false))
(=> (and (fits f x) (ok (lay f y)) (ok (lay g x))) (ok (lay f x)))
(serves b b)
(=> (and (serves b c) (serves c d)) (serves b d))
"""
"""What is true of these functions."""

HEADS = frozenset(re.findall(r"\(([a-z-]+)", AXIOMS))
