package cli

import (
	"io"

	"github.com/penstock-run/penstock/cmd/internal/console"
)

// A Shell is what a program passes to its commands: the streams, and the settings and
// flags of every command. Those behind pointers are known once the command line has
// been parsed.
type Shell struct {
	In       io.Reader
	Out, Err *console.Writer
	Config   *Config
	Format   *Format
	Progress *ProgressMode
	Release  string // of the program
	// Secret returns the value of a secret that a job names. No other process can read it.
	Secret func(name string) (string, bool)
	// Terminal says that the program has a terminal, which is gone after SIGHUP.
	Terminal bool
	// Reread reads the settings of this command line again.
	Reread func() (Config, error)
}

// Progressf writes a line of progress to standard error, unless --progress is quiet.
func (s Shell) Progressf(format string, args ...any) {
	if *s.Progress != ProgressQuiet {
		s.Err.Printf("penstock: "+format+"\n", args...)
	}
}
