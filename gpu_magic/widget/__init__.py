"""What you click: a live panel. Thin: show, record what is wished, call the session."""
