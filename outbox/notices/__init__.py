"""Tells people what needs them: incidents, who is told of them and when, and the notices that go out."""
