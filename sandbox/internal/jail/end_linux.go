package jail

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/stdio"
	"github.com/penstock-run/penstock/sandbox/mechanism"
)

// endTimeout bounds all commands of mechanism.Served together. An engine that is
// busy takes seconds to remove a container.
const endTimeout = 20 * time.Second

// complete returns a command with what only a start knows.
func complete(command []string, token, meet string) (done []string) {
	replace := strings.NewReplacer(mechanism.Token, token, mechanism.Meet, meet)
	for _, a := range command {
		if a == mechanism.Mark {
			a += token
		}
		done = append(done, replace.Replace(a))
	}
	return done
}

// RunEnd runs the commands that end the jail of a service whose starter is dead.
func RunEnd(ctx context.Context, commands [][]string, token string, env []string) error {
	var completed [][]string
	for _, c := range commands {
		completed = append(completed, complete(c, token, ""))
	}
	return run(ctx, completed, env)
}

// run runs the commands that end a jail of a service, all of them, whatever
// becomes of each.
func run(ctx context.Context, commands [][]string, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if env == nil {
		env = []string{} // nil would mean our own
	}
	var errs []error
	for _, args := range commands {
		said := &stdio.Bounded{Left: 4096}
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env, cmd.Dir, cmd.Stderr = env, "/", said
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		// A child of the command's may keep the pipe after it.
		cmd.WaitDelay = time.Second
		if err := cmd.Run(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(said.Bytes()))))
		}
	}
	return errors.Join(errs...)
}
