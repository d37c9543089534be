package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// endTimeout bounds all commands of Command.End together. An engine that is
// busy takes seconds to remove a container.
const endTimeout = 20 * time.Second

// complete returns commands with what only a start knows. An element that is
// Mark is one of Command.Args.
func complete(commands [][]string, token, meet string) [][]string {
	replace := strings.NewReplacer(Token, token, Meet, meet)
	done := make([][]string, len(commands))
	for i, c := range commands {
		for _, a := range c {
			if a == Mark {
				a += token
			}
			done[i] = append(done[i], replace.Replace(a))
		}
	}
	return done
}

// runEnd runs the commands that end a jail of a service, all of them, whatever
// becomes of each.
func runEnd(ctx context.Context, commands [][]string, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if env == nil {
		env = []string{} // nil would mean our own
	}
	var errs []error
	for _, args := range commands {
		said := &bounded{left: 4096}
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env, cmd.Dir, cmd.Stderr = env, "/", said
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		// A child of the command's may keep the pipe after it.
		cmd.WaitDelay = time.Second
		if err := cmd.Run(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.b.String())))
		}
	}
	return errors.Join(errs...)
}
