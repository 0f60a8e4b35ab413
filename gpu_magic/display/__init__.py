"""What people see: the text and the HTML of everything. It is given facts, and reads none."""
