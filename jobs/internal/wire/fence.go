//go:build !penstock_unfenced

package wire

// Fenced is false only in a build with the tag penstock_unfenced, which takes
// out what keeps two workers from acting for one job, so that penstock chaos
// can be seen to find that.
const Fenced = true
