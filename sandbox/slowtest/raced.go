//go:build race

package slowtest

// Raced: the race detector is on. What tests do takes many times as long then, and more memory.
const Raced = true
