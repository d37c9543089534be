// Command inside is the first program of the test's containers, and the
// attacker in them. It is built without cgo: the images differ in their C
// libraries, and the test itself may need one.
package main

import "github.com/penstock-run/penstock/sandbox/sandboxtest"

func main() { sandboxtest.Main() }
