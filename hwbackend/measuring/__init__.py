"""Parts that all backends share: profiles, microbenchmarks, synthetic operators, environment of a measurement."""
