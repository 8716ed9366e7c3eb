"""Causal tests: what the tokens at which a checkpoint differs bring about.

`interventions` chooses positions, controls and tokens, `swaps` forces them, `swap_effects` says what they change and
whether divergence predicts it. `pivots` finds the tokens across which the chance of success jumps. `continuations`
samples what both rest on. `cross_sampling` lets one model take the other's tokens, `attribution` asks which earlier
tokens made it decide.
"""
