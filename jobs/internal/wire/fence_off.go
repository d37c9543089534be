//go:build penstock_unfenced

package wire

// Fenced: see fence.go.
const Fenced = false
