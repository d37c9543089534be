//go:build !race

package worker

// raced: the race detector is on.
const raced = false
