"""Views of results: text for the terminal, JSON documents, HTML, SARIF and figures."""
