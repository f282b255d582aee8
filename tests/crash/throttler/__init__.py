"""`--flow throttler`: throttlers that are killed, leave and join while customers send more than they may."""
