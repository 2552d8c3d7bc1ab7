"""What if the data change: terms left out, added or weighted anew, from a solution at hand."""
