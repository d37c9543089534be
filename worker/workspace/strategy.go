package workspace

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/penstock-run/penstock/jobs"
)

// A Strategy is a way to give a job files of its own.
type Strategy string

// The strategies.
const (
	// Auto is the fastest that the host can do.
	Auto Strategy = "auto"
	// Overlay shows a checkout that all jobs of a commit share, through a directory
	// that takes the job's writes: constant in time and space.
	Overlay Strategy = "overlay"
	// Clone checks out the files for each job.
	Clone Strategy = "clone"
	// Linked is a linked worktree of the user's own repository. It shares objects and
	// refs with that: only for agents that may write those, and only if a user or a job
	// names it.
	Linked Strategy = "linked"
	// Hook is a directory that a program of the operator makes, for version control
	// other than git. Only if it is configured.
	Hook Strategy = "hook"
)

// trials remembers whether the host can show overlays.
type trials struct {
	mu   sync.Mutex
	done bool
	err  error
}

// Try reports why strategy cannot be used here, or nil. It performs the steps of a job
// once.
func (s *Spaces) Try(ctx context.Context, strategy Strategy) error {
	switch strategy {
	case Clone, Auto, Linked:
		return nil
	case Hook:
		return s.cfg.Programs.check()
	case Overlay:
	default:
		return fmt.Errorf("unknown workspace strategy %q; known are %s, %s, %s, %s and %s", strategy, Auto, Overlay, Clone, Linked, Hook)
	}
	s.trials.mu.Lock()
	defer s.trials.mu.Unlock()
	if !s.trials.done {
		err := s.tryOverlay(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.trials.done, s.trials.err = true, err
	}
	return s.trials.err
}

// files returns what makes the files of a request, in the way that is chosen for
// it.
func (s *Spaces) files(ctx context.Context, r Request, at *site) (files, error) {
	switch {
	case r.Isolation == jobs.IsolationNone && r.Repo.URL == "":
		return &scratchFiles{own{at}}, nil
	case r.Isolation == jobs.IsolationNone:
		return &inPlaceFiles{own{at}}, nil
	}
	chosen, err := s.choose(ctx, r)
	if err != nil {
		return nil, err
	}
	if chosen != Hook {
		if at.origin, err = s.access.Locate(ctx, r.Repo.URL); err != nil {
			return nil, err
		}
	}
	return filesOf(chosen, at), nil
}

// filesOf returns the files of a strategy for one job.
func filesOf(strategy Strategy, at *site) files {
	switch strategy {
	case Hook:
		return &hookFiles{site: at}
	case Linked:
		return &linkedFiles{own: own{at}}
	case Overlay:
		return &overlayFiles{own{at}}
	}
	return &cloneFiles{own{at}}
}

func (s *Spaces) choose(ctx context.Context, r Request) (Strategy, error) {
	switch want := s.cfg.Strategy; {
	case want == Overlay && r.Plain:
		return "", errors.New("workspace strategy overlay: the backend of this job cannot show one; use clone")
	case want == Linked || want == Hook:
		return want, nil
	case want == Clone || r.Plain:
		return Clone, nil
	}
	err := s.Try(ctx, Overlay)
	switch {
	case err == nil:
		return Overlay, nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case s.cfg.Strategy == Auto:
		return Clone, nil
	}
	return "", err
}
