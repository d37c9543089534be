// Command penstock runs coding agents in parallel, each in a jail of its own,
// on a queue that loses nothing.
package main

import (
	"os"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/initproc"
	"github.com/penstock-run/penstock/cmd/internal/secrets"
)

func main() {
	zombies := initproc.Run()
	taken, err := secrets.Take()
	a := &app{in: os.Stdin, out: console.New(os.Stdout, os.Getenv), err: console.New(os.Stderr, os.Getenv), secrets: taken, exposed: err}
	if zombies != nil {
		a.err.Printf("penstock: %v\n", zombies)
	}
	os.Exit(run(untilSignal(a.endings()...), a, os.Args[1:]))
}
