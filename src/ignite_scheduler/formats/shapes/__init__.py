"""Pydantic shapes of our documents: one definition validates a document and gives its JSON schema.

Imported only when a document is read or a schema is printed, since importing pydantic takes longer than most commands.
"""
