"""Tests that need the guest; `run` starts it, and elsewhere they are skipped."""
