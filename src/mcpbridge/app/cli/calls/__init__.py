"""Commands about calls that were made, or wait: approvals, the call log, counts, kept results, the cache."""
