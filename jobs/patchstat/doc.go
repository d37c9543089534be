// Package patchstat says what patches change: counts of each file and its lines, which
// patches of a batch touch the same ones, and which files may run code where a patch is
// applied.
//
// Patches come from agents. A damaged or hostile patch is counted as far as it can be
// read, and bounded amounts of it are kept.
package patchstat
