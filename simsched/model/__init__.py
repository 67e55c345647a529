"""The nouns: graphs, clusters, costs, profiles, schedules, programs, traces."""
