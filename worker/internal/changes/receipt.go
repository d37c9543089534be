package changes

// A Receipt has the hashes of what was read back from the store of a workspace's
// change: SHA-256 in hexadecimal, "" for missing parts.
type Receipt struct{ Patch, Bundle string }
