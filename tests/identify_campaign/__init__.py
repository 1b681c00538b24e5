"""A campaign that measures how well ``nmpsim identify`` names rules that it was not told."""
