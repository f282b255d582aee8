"""Tells people what needs them: matters, who is told of them and when, and the notices that go out."""
