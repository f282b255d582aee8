"""Invoices of the foreign project, in an app that is called as one of Spillway's."""
