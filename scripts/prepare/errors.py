"""The one kind of error that is told without a traceback."""


class PreparationError(Exception):
    """One sentence: the thing, what is wrong, what would be right."""
