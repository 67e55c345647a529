"""What all backends share: profiles, microbenchmarks, synthetic operators, and the environment of a measurement."""
