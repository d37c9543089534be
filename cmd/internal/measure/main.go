package measure

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Main is the main function of a program with this name that measures: it runs it with the arguments
// until it ends or is told to, and exits with status 1 if it fails.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Begin makes a temporary directory to work in if none is named in dir, and the path of the program
// absolute. Done removes a temporary directory, unless the run has failed: its log says why.
func Begin(name string, dir, program *string) (done func(failed error) error, err error) {
	done = func(failed error) error { return failed }
	if *program, err = filepath.Abs(*program); err != nil || *dir != "" {
		return done, err
	}
	*dir, err = os.MkdirTemp("", "penstock-"+name+"-")
	return func(failed error) error {
		if failed != nil {
			return failed
		}
		return os.RemoveAll(*dir)
	}, err
}
