package completion

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/visible"
)

const (
	// completeWithin is how long a person waits for a shell to complete a word.
	completeWithin = 1500 * time.Millisecond
	// completeMost is how many words they would look at.
	completeMost = 500

	sorted = cobra.ShellCompDirectiveNoFileComp
	byTime = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
)

// fromPool completes with what a pool that runs has of something. Where none
// runs, or it does not answer at once, there is nothing, and nothing is said.
func (c Completer) fromPool(read func(context.Context, *pool.Pool) ([]cobra.Completion, error), directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if c.Load(cmd.Flags()) != nil {
			return nil, directive
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		answer := make(chan []cobra.Completion, 1)
		// This goroutine may outlive the call: it may wait for a broker that is
		// starting, or resolve a host's name, and cannot be interrupted. The program
		// ends soon.
		go func() {
			found, err := pool.Peek(ctx, c.Shell, completeWithin, read)
			if err != nil {
				found = nil
			}
			answer <- found
		}()
		select {
		case found := <-answer:
			return beginning(found, begun), directive
		case <-ctx.Done():
			return nil, directive
		}
	}
}

// beginning returns the words that begin with what was typed.
func beginning(found []cobra.Completion, begun string) []cobra.Completion {
	found = slices.DeleteFunc(found, func(word string) bool { return !strings.HasPrefix(word, begun) })
	return found[:min(len(found), completeMost)]
}

// described is a word with what a shell shows beside it.
func described(word string, parts ...string) cobra.Completion {
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" || part == word })
	return cobra.CompletionWithDesc(word, visible.Line(strings.Join(parts, " · ")))
}

// jobIDs are the ids of jobs, the newest first.
func jobIDs(fit func(jobs.Record) bool) func(context.Context, *pool.Pool) ([]cobra.Completion, error) {
	return func(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
		list, err := pool.Collect(p.Client.List(ctx, operation.ListRequest{}))
		var ids []cobra.Completion
		for _, rec := range slices.Backward(list) {
			if fit == nil || fit(rec) {
				ids = append(ids, described(rec.ID, string(rec.State), string(rec.Outcome), rec.Item, rec.Title))
			}
		}
		return ids, err
	}
}

func letterIDs(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	list, err := pool.Collect(p.Client.DeadLetters().List(ctx, operation.DeadRequest{}))
	var ids []cobra.Completion
	for _, l := range slices.Backward(list) {
		ids = append(ids, described(l.ID, string(l.Kind), string(l.Reason)))
	}
	return ids, err
}

func queueNames(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	return p.Names(ctx, jobs.HoldQueue)
}

func batchIDs(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	return p.Names(ctx, jobs.HoldBatch)
}

func scheduleNames(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	list, err := pool.Collect(p.Client.Schedules().List(ctx))
	var names []cobra.Completion
	for _, rec := range list {
		names = append(names, rec.Name)
	}
	return names, err
}

func webhookNames(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	list, err := pool.Collect(p.Client.Webhooks().List(ctx))
	var names []cobra.Completion
	for _, w := range list {
		names = append(names, described(w.Name, w.URL))
	}
	return names, err
}

func tokenNames(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	list, err := pool.Collect(p.Client.Tokens().List(ctx))
	var names []cobra.Completion
	for _, t := range list {
		names = append(names, described(t.Name, string(t.Role)))
	}
	return names, err
}

func workerNames(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	workers, err := p.Client.Workers(ctx)
	var names []cobra.Completion
	for _, w := range workers {
		names = append(names, described(w.Name, string(w.State), w.Closed))
	}
	return names, err
}

// workerLabels are what workers have that jobs may need.
func workerLabels(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	workers, err := p.Client.Workers(ctx)
	labels := map[string]bool{}
	for _, w := range workers {
		for _, label := range w.Labels {
			labels[label] = true
		}
	}
	return slices.Sorted(maps.Keys(labels)), err
}

func jobLabels(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	list, err := pool.Collect(p.Client.List(ctx, operation.ListRequest{}))
	labels := map[string]bool{}
	for _, rec := range list {
		for name, value := range rec.Labels {
			labels[name+"="+value] = true
		}
	}
	return slices.Sorted(maps.Keys(labels)), err
}

// agentNames are the agents in the settings and the built-in ones.
func (c Completer) agentNames(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if c.Load(cmd.Flags()) != nil {
		return nil, sorted
	}
	return beginning(workerparts.Agents(c.Shell.Config).Names(), begun), sorted
}

// installedVersions are the versions of agents on this host.
func (c Completer) installedVersions(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if c.Load(cmd.Flags()) != nil {
		return nil, sorted
	}
	agents := workerparts.Agents(c.Shell.Config)
	var all []string
	for _, about := range agents.All() {
		if about.Package.Name == "" {
			continue
		}
		for _, version := range agents.Store().Versions(about.Package.Name) {
			all = append(all, about.Name+"@"+version)
		}
	}
	return beginning(all, begun), sorted
}

// credentialNames are the credentials that the data directory's broker accepts.
func (c Completer) credentialNames(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if c.Load(cmd.Flags()) != nil {
		return nil, sorted
	}
	list, err := natsd.Credentials(pool.StoreDir(c.Shell))
	var names []cobra.Completion
	for _, credential := range list {
		names = append(names, cobra.CompletionWithDesc(credential.Name, string(credential.Role)))
	}
	if err != nil {
		return nil, sorted
	}
	return beginning(names, begun), sorted
}
