"""The pages of failure groups: their list, their figures, and what people do with a whole group."""
