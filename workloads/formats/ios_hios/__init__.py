"""Schedules and graphs in the files of IOS and of HIOS, which extends the files of IOS."""
