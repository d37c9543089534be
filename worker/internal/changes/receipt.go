package changes

// A Receipt says what was read back from where a workspace's change was
// stored: SHA-256 sums in hexadecimal, "" for what the change has none of.
type Receipt struct{ Patch, Bundle string }
