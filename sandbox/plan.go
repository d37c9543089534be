package sandbox

import (
	"context"
	"slices"
)

// Plan returns what [Start] would execute, and what would not be enforced. It
// starts nothing but what the backend tries on a host that it does not know.
func (s Spec) Plan(ctx context.Context, b Backend) (c *Command, weaker []Feature, err error) {
	if err := s.Validate(); err != nil {
		return nil, nil, err
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if s, err = b.Ready(ctx, s); err != nil {
		return nil, nil, &UnsupportedError{Backend: b.Name(), Err: err}
	}
	enforced, err := b.Check(ctx)
	if err != nil {
		return nil, nil, err
	}
	if weaker, err = s.check(b.Name(), slices.Concat(enforced, kept)); err != nil {
		return nil, nil, err
	}
	if c, err = b.Command(s.WithDefaults()); err != nil {
		return nil, nil, err
	}
	return c, weaker, nil
}
