"""Problems of mathematics, answered by a tool or in the text."""
