"""What is promised when something fails: faults of the machine with all that users type, interrupts, and kills."""
