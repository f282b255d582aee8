"""An extension as another company writes it: it imports spillway_ext alone, and no file of Spillway knows of it."""
