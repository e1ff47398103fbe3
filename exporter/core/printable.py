"""Text from outside that is shown on a terminal or in a line of a log."""


def printable(text: str, instead: str = " ") -> str:
    """Replace characters that could break out of a line or change a terminal, and what is no character."""
    return text if text.isprintable() else "".join(one if one.isprintable() else instead for one in text)
