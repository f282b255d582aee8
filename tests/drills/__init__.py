"""Drills: the failure behind an alert, staged on real servers, until its runbook has ended it."""
