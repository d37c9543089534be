package main

import (
	"os"

	"github.com/penstock-run/penstock/cmd/internal/console"
)

// A colorFlag is --color. It changes the streams as soon as it is read, so that an
// error in what follows it has the colours, too.
type colorFlag struct{ out, err *console.Writer }

// String is the default, which help texts show.
func (colorFlag) String() string { return string(console.Auto) }

// Type names the flag's value in help texts.
func (colorFlag) Type() string { return "when" }

// Set accepts auto, always and never.
func (f colorFlag) Set(s string) error {
	var mode console.Mode
	if err := mode.Set(s); err != nil {
		return err
	}
	f.out.Recolor(mode, os.Getenv)
	f.err.Recolor(mode, os.Getenv)
	return nil
}
