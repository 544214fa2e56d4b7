"""Names: those of other libraries and of old versions, and what messages say where a name is wrong."""
