"""Fuzzers of everything that nmpsim reads: ``python -m tests.fuzz``; see docs/campaigns.md."""
