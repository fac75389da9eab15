"""The state database: intentions and what was learned. Audit records are `audit`'s."""
