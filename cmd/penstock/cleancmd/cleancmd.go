// Package cleancmd is the command clean: it removes what workers that died left on this
// host, and stores the work in it first.
package cleancmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/poolmark"
	"github.com/penstock-run/penstock/worker/workspace"
)

// Cleaned is one thing that clean found.
type Cleaned struct {
	What   string `json:"what"`
	Action string `json:"action"` // removed, would remove, kept, discarded, would discard
	Why    string `json:"why,omitempty"`
	// Lost is the content of a discarded workspace.
	Lost []string `json:"lost,omitempty"`
}

var view = cli.View[Cleaned]{
	Header: []string{"ACTION", "WHAT", "WHY"},
	Row: func(c Cleaned) []string {
		why := []string{c.Why}
		if len(c.Lost) > 0 {
			why = append(why, "lost: "+strings.Join(c.Lost, "; "))
		}
		return []string{c.Action, c.What, strings.TrimPrefix(strings.Join(why, "; "), "; ")}
	},
	ID: func(c Cleaned) string { return c.What },
}

// New returns the command clean.
func New(shell cli.Shell) *cobra.Command {
	var dry bool
	var discard []string
	cmd := &cobra.Command{
		Use: "clean", Short: "Remove what killed workers left behind on this host", Args: cobra.NoArgs,
		Long: `Clean does by hand what a worker does when it starts: it ends the jails of killed
programs, salvages and removes the workspaces of their jobs, evicts old commits from
the cache, and removes worktrees that have not been used for long
(worker.worktree_age) and whose contents are safe elsewhere. It touches nothing that is
in use, so workers may run. It keeps workspaces that it cannot salvage, and says why.

With --discard it only gives up workspaces that it has kept, by the names in its list,
and says what is lost with them. It still salvages what it can. With --dry-run it only
shows what would be lost.

A dry run collects the contents of workspaces, as clean does, to see whether they can
be stored, and so takes as long; it stores and removes nothing.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clean := func(ctx context.Context, dry bool) ([]Cleaned, error) { return clean(ctx, shell, dry) }
			if len(discard) > 0 {
				clean = func(ctx context.Context, dry bool) ([]Cleaned, error) { return giveUp(ctx, shell, discard, dry) }
			}
			list, err := clean(cmd.Context(), dry)
			return errors.Join(err, view.List(shell.Out, *shell.Format, list))
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only list what would be removed")
	cmd.Flags().StringSliceVar(&discard, "discard", nil, "give up this workspace, and the work in it that cannot be stored (repeatable)")
	return cmd
}

func clean(ctx context.Context, shell cli.Shell, dry bool) ([]Cleaned, error) {
	done := "removed"
	if dry {
		done = "would remove"
	}
	jails, err := leftovers(ctx, shell.Config)
	if err != nil {
		return nil, err
	}
	list := []Cleaned{}
	for _, jail := range jails {
		if workerparts.Elsewhere(shell.Config, jail.Label) {
			continue
		}
		c := Cleaned{What: "jail " + jail.Label, Action: done}
		if !dry {
			if err := jail.Kill(ctx); err != nil {
				c.Action, c.Why = "kept", err.Error()
			}
		}
		list = append(list, c)
	}
	swept, err := cleanSpaces(ctx, shell, dry)
	for _, id := range swept.Workspaces {
		list = append(list, Cleaned{What: "workspace " + id, Action: done})
	}
	for _, id := range slices.Sorted(maps.Keys(swept.Kept)) {
		list = append(list, Cleaned{What: "workspace " + id, Action: "kept", Why: swept.Kept[id].Error()})
	}
	if swept.Undeleted != nil {
		list = append(list, Cleaned{What: "trash", Action: "kept", Why: swept.Undeleted.Error()})
	}
	for _, path := range slices.Sorted(maps.Keys(swept.Worktrees)) {
		c := Cleaned{What: "worktree " + path, Action: done}
		if why := swept.Worktrees[path]; why != nil {
			c.Action, c.Why = "kept", why.Error()
		}
		list = append(list, c)
	}
	for what, n := range map[string]int{"commits of the cache": swept.Bases, "results of setup in the cache": swept.Layers, "entries of the trash": swept.Trash} {
		if n > 0 {
			list = append(list, Cleaned{What: fmt.Sprintf("%d %s", n, what), Action: done})
		}
	}
	return list, err
}

// leftovers are the jails of killed workers on this host, of all pools.
func leftovers(ctx context.Context, settings *cli.Config) ([]sandbox.Leftover, error) {
	return sandbox.Leftovers(ctx, "", workerparts.Keepers(workerparts.Containers(settings))...)
}

func cleanSpaces(ctx context.Context, shell cli.Shell, dry bool) (swept workspace.Swept, err error) {
	err = withSpaces(ctx, shell, dry, func(spaces *workspace.Spaces) error {
		if dry {
			swept, err = spaces.Preview(ctx)
		} else {
			swept, err = spaces.Sweep(ctx)
		}
		return err
	})
	return swept, err
}

// giveUp gives up workspaces by their names. What a kill left of their jails,
// a container for one, may still write there.
func giveUp(ctx context.Context, shell cli.Shell, names []string, dry bool) (list []Cleaned, err error) {
	jails, err := leftovers(ctx, shell.Config)
	for _, jail := range jails {
		if !dry && slices.ContainsFunc(names, func(name string) bool {
			return jail.Label == poolmark.Label(name, workerparts.PoolMark(shell.Config))
		}) {
			err = errors.Join(err, jail.Kill(ctx))
		}
	}
	if err != nil {
		return nil, err
	}
	err = withSpaces(ctx, shell, dry, func(spaces *workspace.Spaces) error {
		for _, id := range names {
			lost, why, err := spaces.Discard(ctx, id, dry)
			if err != nil {
				return cli.NotFound(err, "penstock clean --dry-run lists them")
			}
			c := Cleaned{What: "workspace " + id, Action: "removed", Lost: lost}
			switch {
			case dry:
				c.Action = "would discard"
			case why != nil:
				c.Action, c.Why = "discarded", why.Error()
			}
			list = append(list, c)
		}
		return nil
	})
	return list, err
}

// withSpaces opens the workspaces, with the pool's store for what is in them.
// Without a pool they are only kept.
func withSpaces(ctx context.Context, shell cli.Shell, dry bool, fn func(*workspace.Spaces) error) (err error) {
	cfg := workerparts.Workspaces(shell.Config, workerparts.BestOrNil(jail.Choose(ctx, backends.Auto, nil)))
	p, none := pool.Open(ctx, shell, "clean", pool.Hooks{})
	if none == nil {
		defer func() { err = errors.Join(err, p.Close()) }()
		cfg.Salvage, cfg.Stored = p.Salvager(workerparts.Name(shell.Config)), worker.Stored(p.Store)
	} else {
		cfg.Salvage = func(context.Context, *workspace.Workspace) error {
			return fmt.Errorf("no pool to store it in: %w", none)
		}
	}
	if dry && none == nil {
		// What is in a workspace is collected as it would be, and not stored.
		cfg.Salvage = func(ctx context.Context, w *workspace.Workspace) error {
			_, err := w.Collect(ctx)
			return err
		}
	}
	spaces, err := workspace.Open(ctx, cfg)
	if err != nil {
		return err
	}
	return fn(spaces)
}
