"""The substitution rules by name: those that AutoGraph needs, most of them from TASO's.

All read an operator's inputs in the order of its edges, and need them known: an operator without an edge reads an
input of the network, and nobody can tell which. "Alone" means: by nobody else, and no output of the network. All
operators of a match have one number format.

==== ================================================================== ============================================
rule what becomes what                                                  conditions
==== ================================================================== ============================================
R1   activation(conv(x)) or norm(conv(x)) is one operator; so is the    the second alone reads the first, which has
     activation of a product                                            no activation yet; norms of convolutions
R2   conv(x, v), conv(x, w) are slices of conv(x, [v; w])               same kernel, stride, padding, activation, no
                                                                        groups
R3   the same, the smaller kernel filled up with zeros                  odd kernels that keep the size, stride 1, one
                                                                        not larger along any axis, no groups
R4   conv(x, w), conv(y, w) are slices of conv([x; y], w), over the     same weights, convolutions alike, x is not y
     batch
R5   conv(x, v), conv(y, w) are slices of conv([x, y], [v; w]) with     convolutions alike, x is not y; joined along
     twice the groups                                                   the channels by one that alone reads both, or
                                                                        depthwise
R6   conv(x, v) + conv(y, w) is conv([x, y], [v, w])                    alike but for the channels read, no activation
                                                                        or groups, read alone by the sum, x is not y
R7   avg(x) + avg(y) is avg(x + y), avg(x) + avg(x) is 2 avg(x)         pools alike, read alone by the sum; a sum with
                                                                        activation only in the second case
R8   a convolution has half the groups, filled with zeros               an even number of groups, of more than one
                                                                        channel; stride 1 or 2; no activation or relu
R9   x v, x w are slices of x [v, w]                                    same activation
R10  x v + y w is [x, y] [v; w]; x v + x w is x (v + w), x w + y w is   no activation, read alone by the sum
     (x + y) w
R11  relu(x), relu(y) are slices of relu([x, y]); a join of relus is    the same activation; two slices of a tensor,
     the relu of a join                                                 or of one shape and made of one tensor; relus
                                                                        read alone by the join
R12  a slice of a join is what was joined, a join of all slices is all  a slice is exactly one of the joined; slices in
                                                                        order
R13  elementwise operators after each other are one                     the second alone reads the first, one shape
==== ================================================================== ============================================

Where several become one, those that read a part read a slice (`simsched.rewriting.splitting`), and a concatenation
that puts parts together again is cleaned at once, as by R12. In R9 and R10 v and w are weights, not other operands.
Conditions of ours, so that what is never of use does not swell a search: depthwise convolutions are not grouped by
R8, and of all pairs of activations R11 takes only those that have something in common.

References
----------
.. [1] "AutoGraph: Optimizing DNN computation graph for parallel GPU kernel execution", AAAI 2023,
   doi:10.1609/aaai.v37i9.26343.
.. [2] Jia, Padon, Thomas, Warszawski, Zaharia, Aiken, "TASO: Optimizing deep learning computation with automatic
   generation of graph substitutions", SOSP 2019, doi:10.1145/3341301.3359630.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from simsched.rewriting.rule import Rule
from simsched.rewriting.rules_fusion import R1, R11, R12, R13
from simsched.rewriting.rules_products import R2, R3, R4, R5, R6, R7, R8, R9, R10

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {rule.name: rule for rule in (R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13)}
)
"""The rules "R1" to "R13"."""
