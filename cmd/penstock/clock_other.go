//go:build !linux

package main

// checkClock takes the clock for right where the kernel cannot be asked.
func checkClock() finding { return finding{Check: "clock", Status: "ok", Detail: "not checked here"} }
