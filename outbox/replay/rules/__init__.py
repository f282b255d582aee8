"""The pure rules of a batch: pace, canary, stop rule. Time and numbers are passed in."""
