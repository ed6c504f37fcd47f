"""What several ranks need: parameters that FSDP2 shards, amaxes, codes that travel, the same graphs on each."""
