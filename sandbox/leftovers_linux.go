package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	held "github.com/penstock-run/penstock/sandbox/internal/jail"
	"github.com/penstock-run/penstock/sandbox/internal/token"
)

// A Leftover is a jail whose starter is dead.
type Leftover struct {
	Label  string
	token  string
	keeper Keeper // nil where no service holds it
}

// Leftovers finds the jails with a label that begins with prefix whose
// starter was killed before it could end them. Jails of living programs are
// never among them. It looks at the host's processes and control groups, and
// asks the keepers; where one does not answer, the error comes with what else was
// found.
func Leftovers(ctx context.Context, prefix string, keepers ...Keeper) ([]Leftover, error) {
	marked, err := token.Marked()
	if err != nil {
		return nil, fmt.Errorf("look for leftovers: %w", err)
	}
	tokens := map[string]Keeper{}
	for _, name := range marked {
		tokens[name] = nil
	}
	for _, name := range cgroup.Names() {
		tokens[name] = nil
	}
	var errs []error
	for _, keeper := range keepers {
		kept, err := keeper.Kept(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("look for leftovers: %s: %w", keeper.Name(), err))
		}
		for _, name := range kept {
			tokens[name] = keeper
		}
	}
	var found []Leftover
	for name, keeper := range tokens {
		if label, ok := token.Orphan(name); ok && strings.HasPrefix(label, prefix) {
			found = append(found, Leftover{label, name, keeper})
		}
	}
	return found, errors.Join(errs...)
}

// Kill ends every process of the leftover and removes its control group, and
// what a service keeps of it.
func (l Leftover) Kill(ctx context.Context) error {
	for {
		held := l.evict(ctx)
		alive := token.Kill(l.token)
		err := errors.Join(held, cgroup.Sweep(l.token))
		if alive == 0 && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("kill leftover %s: %d processes are still ending: %w", l.token, alive, context.Cause(ctx)), held)
		case <-time.After(5 * time.Millisecond): // the kernel offers no event for processes that are not ours
		}
	}
}

// evict lets the service that holds the leftover remove it, and looks whether
// it did.
func (l Leftover) evict(ctx context.Context) error {
	if l.keeper == nil {
		return nil
	}
	commands, env := l.keeper.End()
	failed := held.RunEnd(ctx, commands, l.token, env)
	kept, err := l.keeper.Kept(ctx)
	if err != nil || slices.Contains(kept, l.token) {
		return errors.Join(failed, err, errors.New("the service still holds it"))
	}
	return nil
}
