"""Compare training backends of vision-language-action models, and prove that the comparison is fair."""

__version__ = "0.1.0"
